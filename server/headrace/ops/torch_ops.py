"""The op set in plain torch: any device, any dtype, and the oracle of every other set.

Shape legend: see :mod:`headrace.ops.op_set`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from headrace.ops.attention.torch_backend import TorchAttention
from headrace.ops.op_set import LinearWeight

if TYPE_CHECKING:
    from torch import Tensor

LAYOUT = "rows"


class TorchOpSet:
    """Plain torch. Rows are *not* bit-identical for every number of rows: torch's products are not."""

    name = "torch"

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        """Activations and KV are on ``device`` in ``dtype``."""
        self._attention = TorchAttention(device, dtype)

    @property
    def attention(self) -> TorchAttention:
        """See :class:`OpSet`."""
        return self._attention

    def pack_linear(self, weight: Tensor) -> LinearWeight:
        """See :class:`OpSet`; keeps the tensor itself."""
        return LinearWeight(weight.shape[0], weight.shape[1], weight, LAYOUT)

    def linear(self, x: Tensor, weight: LinearWeight, bias: Tensor | None) -> Tensor:
        """See :class:`OpSet`."""
        if weight.layout != LAYOUT:
            raise ValueError(f"weight is packed as {weight.layout!r}, not as {LAYOUT!r}")
        return F.linear(x, weight.data, bias)

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See :class:`OpSet`; the mean and the scaling are in float32."""
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return weight * scaled.to(x.dtype)

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """See :class:`OpSet`."""
        total = x + residual
        return self.rms_norm(total, weight, eps), total

    def rotary(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
        """See :class:`OpSet`."""
        half = cos.shape[1]
        c = cos[positions][:, None, :].to(q.dtype)
        s = sin[positions][:, None, :].to(q.dtype)
        for heads in (q, k):
            first = heads[..., :half].clone()
            second = heads[..., half : 2 * half].clone()
            heads[..., :half] = first * c - second * s
            heads[..., half : 2 * half] = second * c + first * s

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See :class:`OpSet`."""
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    def non_finite(self, x: Tensor) -> Tensor:
        """See :class:`OpSet`."""
        return ~x.isfinite().all(dim=-1)

    def argmax_logsumexp(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`OpSet`."""
        wide = logits.float()
        best = wide.nan_to_num(nan=float("-inf"), posinf=float("inf"), neginf=float("-inf"))
        # torch.argmax promises no order among equals; the first of the equal ones is asked for here.
        columns = torch.arange(wide.shape[-1], device=wide.device)
        is_best = best == best.amax(-1, keepdim=True)
        index = torch.where(is_best, columns, wide.shape[-1]).amin(-1)
        return index, wide.logsumexp(-1)
