"""The ops that layers are made of; one set is chosen at start and used throughout.

Shape legend: T tokens of the step, K input features, N output features, H hidden size, I intermediate
size, Hq / Hkv query / key-value heads, D head dimension, R rotary dimensions (R <= D), P positions in
the rotary tables, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.ops.attention.backend import AttentionBackend


@dataclass(frozen=True, eq=False)
class LinearWeight:
    """A weight in the layout of the op set that packed it; opaque to everybody else.

    Attributes:
        out_features: N.
        in_features: K.
        data: the weight, as the op set keeps it.
        layout: name of the layout, checked by the op set when it is used.
    """

    out_features: int
    in_features: int
    data: Tensor
    layout: str


class OpSet(Protocol):
    """Tensor in, tensor out; no op keeps state between calls.

    The row dimension of inputs may be strided (a slice of a fused product); the other dimensions are
    contiguous. Outputs are new contiguous tensors, except where an op says "in place".
    """

    @property
    def name(self) -> str:
        """``native-avx512``, ``native-avx2``, ``native-scalar`` or ``torch``; for the log."""
        ...

    @property
    def attention(self) -> AttentionBackend:
        """Paged attention of this set."""
        ...

    def pack_linear(self, weight: Tensor) -> LinearWeight:
        """Brings a weight [N, K] into this set's layout; may share memory with it."""
        ...

    def linear(self, x: Tensor, weight: LinearWeight, bias: Tensor | None) -> Tensor:
        """``x @ weight.T + bias``: [T, K] -> [T, N]; bias [N]."""
        ...

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension: [T, H] -> [T, H]."""
        ...

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """Returns (rms_norm(x + residual), x + residual), both [T, H]."""
        ...

    def rotary(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
        """Rotates the first R dimensions of every head, in place (half-split, "neox").

        Args:
            q: [T, Hq, D].
            k: [T, Hkv, D].
            cos: [P, R / 2].
            sin: [P, R / 2].
            positions: int64 [T], each below P.
        """
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """``silu(gate) * up`` of [T, 2 I] (gate first) -> [T, I]."""
        ...

    def non_finite(self, x: Tensor) -> Tensor:
        """Bool [T]: whether row t of x [T, H] holds a NaN or an infinity."""
        ...

    def argmax_logsumexp(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Per row of [T, V]: (int64 [T] index of the maximum, the lowest one on ties; [T] logsumexp).

        NaN logits are not looked at by the maximum and make the logsumexp NaN.
        """
        ...
