"""The gated MLP. Shape legend: T tokens, H hidden size, I_local this rank's share of the width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.layers.linear import ColumnParallelLinear, RowParallelLinear
    from headrace.ops.op_set import OpSet


@dataclass(frozen=True, eq=False)
class GatedMlp:
    """`down(silu(gate(x)) * up(x))`, with gate and up as one packed product [2 I_local, H]."""

    ops: OpSet
    gate_up: ColumnParallelLinear
    down: RowParallelLinear

    def __call__(self, x: Tensor) -> Tensor:
        """[T, H] -> [T, H]."""
        return self.down(self.ops.silu_mul(self.gate_up(x)))
