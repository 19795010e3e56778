"""Grouped-query attention over the paged KV cache, on this rank's heads.

Shape legend: T tokens, H hidden size, Hq / Hkv this rank's query / key-value heads, D head size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.layers.linear import ColumnParallelLinear, RowParallelLinear
    from headrace.layers.rotary import RotaryEmbedding
    from headrace.ops.attention.backend import LayerKv
    from headrace.ops.attention.metadata import AttentionMetadata
    from headrace.ops.op_set import OpSet


@dataclass(frozen=True, eq=False)
class PagedAttention:
    """Query, key and value as one packed product [(Hq + 2 Hkv) D, H]; attention; output projection."""

    ops: OpSet
    qkv: ColumnParallelLinear
    rotary: RotaryEmbedding
    output: RowParallelLinear
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    sliding_window: int | None

    def __call__(self, x: Tensor, kv: LayerKv, metadata: AttentionMetadata) -> Tensor:
        """[T, H] -> [T, H]; writes the tokens' keys and values first, so they see themselves."""
        heads = self.qkv(x).view(x.shape[0], -1, self.head_dim)
        q = heads[:, : self.num_query_heads]
        k = heads[:, self.num_query_heads : self.num_query_heads + self.num_kv_heads]
        v = heads[:, self.num_query_heads + self.num_kv_heads :]
        self.rotary(q, k, metadata.positions)
        backend = self.ops.attention
        backend.write(kv, k, v, metadata)
        scale = self.head_dim**-0.5
        mixed = backend.attend(q, kv, metadata, scale, self.sliding_window)
        return self.output(mixed.view(x.shape[0], -1))
