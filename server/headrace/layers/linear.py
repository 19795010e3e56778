"""Linear layers, named for how their weight is split over ranks.

Shape legend: T tokens, K input features, N output features; `_local` is this rank's share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.distributed.process_group import ProcessGroup
    from headrace.ops.op_set import LinearWeight, OpSet


@dataclass(frozen=True, eq=False)
class ColumnParallelLinear:
    """Each rank computes its share of the outputs: rows of the weight [N_local, K].

    Several projections of one input lie in one packed weight, one after the other.
    """

    ops: OpSet
    weight: LinearWeight
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K] -> [T, N_local]."""
        return self.ops.linear(x, self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class RowParallelLinear:
    """Each rank computes a part of every output's sum: columns of the weight [N, K_local]."""

    ops: OpSet
    group: ProcessGroup
    weight: LinearWeight
    bias: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        """[T, K_local] -> [T, N], the same on every rank."""
        if self.group.world_size == 1:
            return self.ops.linear(x, self.weight, self.bias)
        # The bias belongs to the whole sum: it is added once, after it.
        total = self.group.all_reduce_sum(self.ops.linear(x, self.weight, None))
        return total if self.bias is None else total + self.bias
