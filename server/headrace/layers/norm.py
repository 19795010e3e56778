"""RMS norm. Shape legend: T tokens, H hidden size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.ops.op_set import OpSet


@dataclass(frozen=True, eq=False)
class RmsNorm:
    """Scales each row to a root mean square of one, then by a weight [H]; whole on every rank."""

    ops: OpSet
    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """[T, H] -> [T, H]."""
        return self.ops.rms_norm(x, self.weight, self.eps)

    def add(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        """Adds to the residual stream first: the norm of the sum, and the sum, both [T, H]."""
        return self.ops.add_rms_norm(x, residual, self.weight, self.eps)
