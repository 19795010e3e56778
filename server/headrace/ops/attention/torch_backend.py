"""Paged attention in plain torch: the oracle, on any device and dtype.

Shape legend: T tokens of the step, Hq query heads, Hkv key/value heads, G = Hq / Hkv, D head dimension,
n tokens of a row, c its context, S block size, C copies. KV layout: [num_blocks, Hkv, S, D] for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from headrace.ops.attention.backend import LayerKv

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from headrace.ops.attention.metadata import AttentionMetadata

LAYOUT = "torch"


def _rows(metadata: AttentionMetadata) -> Iterator[tuple[slice, int, Tensor]]:
    """Yields (tokens, context length, blocks that hold the context) of each row."""
    starts: list[int] = metadata.row_starts.tolist()
    lengths: list[int] = metadata.context_lengths.tolist()
    for row, length in enumerate(lengths):
        blocks = -(-length // metadata.block_size)
        yield (
            slice(starts[row], starts[row + 1]),
            length,
            metadata.block_tables[row, :blocks].long(),
        )


class TorchAttention:
    """One row after the other, scores and softmax in float32."""

    name = "torch"

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        """KV is kept on ``device`` in ``dtype``."""
        self._device = device
        self._dtype = dtype

    def allocate(
        self,
        num_blocks: int,
        num_kv_heads: int,
        head_dim: int,
        block_size: int,
        poison: bool = False,  # noqa: FBT001, FBT002 - a flag of the interface, last by intent
    ) -> LayerKv:
        """See :class:`AttentionBackend`."""
        shape = (num_blocks, num_kv_heads, block_size, head_dim)
        keys = torch.empty(shape, dtype=self._dtype, device=self._device)
        values = torch.empty(shape, dtype=self._dtype, device=self._device)
        if poison:
            keys.fill_(float("nan"))
            values.fill_(float("nan"))
        return LayerKv(keys, values, num_blocks, num_kv_heads, head_dim, block_size, LAYOUT)

    def write(self, kv: LayerKv, k: Tensor, v: Tensor, metadata: AttentionMetadata) -> None:
        """See :class:`AttentionBackend`."""
        for tokens, _, blocks in _rows(metadata):
            positions = metadata.positions[tokens]
            block = blocks[positions // kv.block_size]
            slot = positions % kv.block_size
            kv.keys[block, :, slot] = k[tokens]
            kv.values[block, :, slot] = v[tokens]

    def attend(
        self,
        q: Tensor,
        kv: LayerKv,
        metadata: AttentionMetadata,
        scale: float,
        sliding_window: int | None,
    ) -> Tensor:
        """See :class:`AttentionBackend`."""
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        group = q.shape[1] // kv.num_kv_heads
        for tokens, length, blocks in _rows(metadata):
            # [blocks, Hkv, S, D] -> [Hkv, 1, c, D]; the cut drops what lies beyond the length.
            keys = kv.keys[blocks].transpose(0, 1).flatten(1, 2)[:, None, :length].float()
            values = kv.values[blocks].transpose(0, 1).flatten(1, 2)[:, None, :length].float()
            # [n, Hq, D] -> [Hkv, G, n, D]
            queries = q[tokens].float().reshape(-1, kv.num_kv_heads, group, kv.head_dim)
            queries = queries.permute(1, 2, 0, 3)
            scores = queries @ keys.transpose(-1, -2) * scale
            age = (
                metadata.positions[tokens][:, None] - torch.arange(length, device=q.device)[None, :]
            )
            hidden = age < 0
            if sliding_window is not None:
                hidden |= age >= sliding_window
            weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
            mixed = weights @ values
            out[tokens] = mixed.permute(2, 0, 1, 3).flatten(1, 2).to(q.dtype)
        return out

    def copy_blocks(self, kv: LayerKv, copies: Tensor) -> None:
        """See :class:`AttentionBackend`."""
        for source, destination, count in copies.tolist():
            kv.keys[destination, :, :count] = kv.keys[source, :, :count]
            kv.values[destination, :, :count] = kv.values[source, :, :count]
