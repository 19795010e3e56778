"""The op set of the native CPU kernels (crate ``kernels``), float32.

Every output row has the same bits whatever the number of rows, chunks and threads. The kernels are those
for the CPU found, or lower ones where the environment's ``HEADRACE_KERNEL_SET`` (``avx512``, ``avx2``
or ``scalar``) says so. Shape legend: see :mod:`headrace.ops.op_set`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from headrace import _kernels
from headrace.ops.attention.native_backend import NativeAttention
from headrace.ops.memory import address, float_rows
from headrace.ops.op_set import LinearWeight

if TYPE_CHECKING:
    from torch import Tensor


def set_compute_threads(threads: int) -> None:
    """Sets the threads of the native kernels, the caller's included."""
    _kernels.set_threads(threads)


#: Weights are packed into slabs of this size, for one of a few megabytes alone gets no large pages.
_SLAB_FLOATS = 16 << 20


class _Slabs:
    """Memory for packed weights, one after the other; freed when its last weight is."""

    def __init__(self) -> None:
        self._slab = torch.empty(0, dtype=torch.float32)
        self._used = 0

    def take(self, floats: int) -> Tensor:
        """Returns a float32 tensor of this size that starts at a cache line."""
        padded = -(-floats // 16) * 16
        if self._used + padded > self._slab.numel():
            self._slab = torch.empty(max(padded, _SLAB_FLOATS), dtype=torch.float32)
            self._used = 0
            _kernels.advise_large_pages(self._slab.data_ptr(), self._slab.nbytes)
        taken = self._slab[self._used : self._used + floats]
        self._used += padded
        return taken


class NativeOpSet:
    """Native kernels; inputs are float32 on the CPU."""

    def __init__(self) -> None:
        """Takes the kernel set in use; weights packed by this object need it to stay the same.

        Raises:
            ValueError: if ``HEADRACE_KERNEL_SET`` names a set this CPU does not have.
        """
        self._name = f"native-{_kernels.kernel_set()}"
        self._columns = _kernels.panel_columns()
        self._layout = f"panels-{self._columns}"
        self._slabs = _Slabs()
        self._attention = NativeAttention()

    @property
    def name(self) -> str:
        """See :class:`OpSet`."""
        return self._name

    @property
    def attention(self) -> NativeAttention:
        """See :class:`OpSet`."""
        return self._attention

    def pack_linear(self, weight: Tensor) -> LinearWeight:
        """See :class:`OpSet`; makes a copy, in panels of a few vectors."""
        out_features, in_features = weight.shape
        source = weight.detach().to(torch.float32).contiguous()
        panels = -(-out_features // self._columns)
        packed = self._slabs.take(panels * self._columns * in_features)
        _kernels.pack_linear(
            address(source, torch.float32, "weight"),
            (packed.data_ptr(), out_features, in_features, self._columns),
            packed.numel(),
        )
        return LinearWeight(out_features, in_features, packed, self._layout)

    def linear(self, x: Tensor, weight: LinearWeight, bias: Tensor | None) -> Tensor:
        """See :class:`OpSet`."""
        if weight.layout != self._layout:
            raise ValueError(f"weight is packed as {weight.layout!r}, not as {self._layout!r}")
        rows, in_features = x.shape
        if in_features != weight.in_features:
            raise ValueError(f"x has {in_features} features, the weight {weight.in_features}")
        if bias is not None and bias.shape != (weight.out_features,):
            raise ValueError(f"bias {tuple(bias.shape)} is not [{weight.out_features}]")
        y = torch.empty((rows, weight.out_features), dtype=torch.float32)
        _kernels.linear(
            float_rows(x, "x"),
            rows,
            (weight.data.data_ptr(), weight.out_features, in_features, self._columns),
            None if bias is None else address(bias, torch.float32, "bias"),
            (y.data_ptr(), weight.out_features),
        )
        return y

    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See :class:`OpSet`."""
        rows, hidden = x.shape
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        _kernels.rms_norm(
            float_rows(x, "x"),
            None,
            (rows, hidden),
            (_vector(weight, hidden), eps),
            (y.data_ptr(), hidden),
        )
        return y

    def add_rms_norm(
        self, x: Tensor, residual: Tensor, weight: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        """See :class:`OpSet`."""
        rows, hidden = x.shape
        if residual.shape != x.shape:
            raise ValueError(f"residual {tuple(residual.shape)} is not {tuple(x.shape)}")
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        total = torch.empty_like(x, memory_format=torch.contiguous_format)
        _kernels.rms_norm(
            float_rows(x, "x"),
            (float_rows(residual, "residual"), (total.data_ptr(), hidden)),
            (rows, hidden),
            (_vector(weight, hidden), eps),
            (y.data_ptr(), hidden),
        )
        return y, total

    def rotary(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor) -> None:
        """See :class:`OpSet`."""
        if q.shape[0] != k.shape[0] or positions.shape != (q.shape[0],) or q.shape[2] != k.shape[2]:
            raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)} and positions do not fit")
        if cos.shape != sin.shape:
            raise ValueError("cos and sin differ in shape")
        _kernels.rotary(
            (float_rows(q, "q"), q.shape[1]),
            (float_rows(k, "k"), k.shape[1]),
            q.shape[2],
            (
                address(cos, torch.float32, "cos"),
                address(sin, torch.float32, "sin"),
                cos.shape[0],
                cos.shape[1],
            ),
            (address(positions, torch.int64, "positions"), q.shape[0]),
        )

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """See :class:`OpSet`."""
        rows, double = gate_up.shape
        if double % 2:
            raise ValueError(f"gate_up has an odd width, {double}")
        y = torch.empty((rows, double // 2), dtype=torch.float32)
        _kernels.silu_mul(
            float_rows(gate_up, "gate_up"), (rows, double // 2), (y.data_ptr(), double // 2)
        )
        return y

    def non_finite(self, x: Tensor) -> Tensor:
        """See :class:`OpSet`."""
        flags = torch.empty(x.shape[0], dtype=torch.bool)
        _kernels.non_finite(float_rows(x, "x"), (x.shape[0], x.shape[1]), flags.data_ptr())
        return flags

    def argmax_logsumexp(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """See :class:`OpSet`."""
        rows, size = logits.shape
        index = torch.empty(rows, dtype=torch.int64)
        logsumexp = torch.empty(rows, dtype=torch.float32)
        _kernels.argmax_logsumexp(
            float_rows(logits, "logits"), (rows, size), index.data_ptr(), logsumexp.data_ptr()
        )
        return index, logsumexp


def _vector(weight: Tensor, size: int) -> int:
    if weight.shape != (size,):
        raise ValueError(f"weight {tuple(weight.shape)} is not [{size}]")
    return address(weight, torch.float32, "weight")
