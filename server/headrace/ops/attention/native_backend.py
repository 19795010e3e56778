"""Paged attention by the native CPU kernels, float32.

Shape legend: T tokens of the step, Hq query heads, Hkv key/value heads, D head dimension, S block
size, C copies, R rows, B blocks of the longest table. KV layout: keys [num_blocks, Hkv, D, S], values
[num_blocks, Hkv, S, D].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from headrace import _kernels
from headrace.ops.attention.backend import LayerKv
from headrace.ops.memory import address, float_rows

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.ops.attention.metadata import AttentionMetadata

LAYOUT = "native"


def _metadata(metadata: AttentionMetadata) -> _kernels.Metadata:
    rows = metadata.num_rows
    return (
        address(metadata.row_starts, torch.int32, "row_starts"),
        address(metadata.context_lengths, torch.int32, "context_lengths"),
        address(metadata.block_tables, torch.int32, "block_tables"),
        rows,
        metadata.block_tables.shape[1] if rows else 0,
    )


def _kv(kv: LayerKv) -> _kernels.Kv:
    if kv.layout != LAYOUT:
        raise ValueError(f"KV has the layout {kv.layout!r}, not {LAYOUT!r}")
    return (
        kv.keys.data_ptr(),
        kv.values.data_ptr(),
        kv.num_blocks,
        kv.num_kv_heads,
        kv.head_dim,
        kv.block_size,
    )


class NativeAttention:
    """Results of a token depend on its context alone, to the bit; see ``kernels/src/attention``."""

    name = "native"

    def allocate(
        self,
        num_blocks: int,
        num_kv_heads: int,
        head_dim: int,
        block_size: int,
        poison: bool = False,  # noqa: FBT001, FBT002 - a flag of the interface, last by intent
    ) -> LayerKv:
        """See :class:`AttentionBackend`; head_dim and block_size are multiples of 8."""
        _kernels.check_attention(head_dim, block_size)
        keys = torch.empty((num_blocks, num_kv_heads, head_dim, block_size), dtype=torch.float32)
        values = torch.empty((num_blocks, num_kv_heads, block_size, head_dim), dtype=torch.float32)
        if poison:
            keys.fill_(float("nan"))
            values.fill_(float("nan"))
        return LayerKv(keys, values, num_blocks, num_kv_heads, head_dim, block_size, LAYOUT)

    def write(self, kv: LayerKv, k: Tensor, v: Tensor, metadata: AttentionMetadata) -> None:
        """See :class:`AttentionBackend`."""
        expected = (metadata.num_tokens, kv.num_kv_heads, kv.head_dim)
        if k.shape != expected or v.shape != expected:
            raise ValueError(f"k {tuple(k.shape)} and v {tuple(v.shape)} are not {expected}")
        _kernels.write_kv(
            float_rows(k, "k"), float_rows(v, "v"), k.shape[0], _kv(kv), _metadata(metadata)
        )

    def attend(
        self,
        q: Tensor,
        kv: LayerKv,
        metadata: AttentionMetadata,
        scale: float,
        sliding_window: int | None,
    ) -> Tensor:
        """See :class:`AttentionBackend`."""
        tokens, heads, head_dim = q.shape
        if tokens != metadata.num_tokens or head_dim != kv.head_dim:
            raise ValueError(f"q {tuple(q.shape)} fits neither the step nor the KV")
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        _kernels.attend(
            (float_rows(q, "q"), heads, tokens),
            _kv(kv),
            _metadata(metadata),
            (scale, sliding_window),
            (out.data_ptr(), heads * head_dim),
        )
        return out

    def copy_blocks(self, kv: LayerKv, copies: Tensor) -> None:
        """See :class:`AttentionBackend`."""
        if copies.shape[0] == 0:
            return
        if copies.shape[1:] != (3,):
            raise ValueError(f"copies {tuple(copies.shape)} are not [C, 3]")
        _kernels.copy_blocks(_kv(kv), (address(copies, torch.int32, "copies"), copies.shape[0]))
