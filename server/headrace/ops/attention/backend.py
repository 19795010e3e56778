"""The interface of paged attention: what every backend, on CPU or GPU, implements.

Shape legend: T tokens of the step, Hq query heads, Hkv key/value heads (Hq is a multiple), D head
dimension, C copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.ops.attention.metadata import AttentionMetadata


@dataclass(frozen=True, eq=False)
class LayerKv:
    """Keys and values of one layer, in the layout of the backend that allocated them.

    Attributes:
        keys: the keys; only the backend named by ``layout`` knows the order of the dimensions.
        values: the values, likewise.
        num_blocks: blocks in the pool.
        num_kv_heads: heads kept on this rank.
        head_dim: D.
        block_size: tokens of a block.
        layout: name of the backend's layout.
    """

    keys: Tensor
    values: Tensor
    num_blocks: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    layout: str

    @property
    def num_bytes(self) -> int:
        """Bytes of both tensors."""
        return self.keys.nbytes + self.values.nbytes


class AttentionBackend(Protocol):
    """Paged attention over one layer's KV.

    No method reads what lies beyond a row's context length: fresh blocks may hold NaN.
    """

    @property
    def name(self) -> str:
        """Name for the log."""
        ...

    def allocate(
        self,
        num_blocks: int,
        num_kv_heads: int,
        head_dim: int,
        block_size: int,
        poison: bool = False,  # noqa: FBT001, FBT002 - a flag of the interface, last by intent
    ) -> LayerKv:
        """Allocates one layer's KV; ``poison`` fills it with NaN (tests), else it is left as it is.

        Raises:
            ValueError: for a shape this backend does not serve, by name.
        """
        ...

    def write(self, kv: LayerKv, k: Tensor, v: Tensor, metadata: AttentionMetadata) -> None:
        """Writes the step's keys and values ([T, Hkv, D] each) at their rows' positions."""
        ...

    def attend(
        self,
        q: Tensor,
        kv: LayerKv,
        metadata: AttentionMetadata,
        scale: float,
        sliding_window: int | None,
    ) -> Tensor:
        """Causal attention of every token over its row's context, after ``write``.

        Args:
            q: [T, Hq, D], rotary embedding already applied.
            kv: the layer's KV.
            metadata: rows of the step.
            scale: factor of the scores.
            sliding_window: a token at position p sees positions p - sliding_window + 1 to p;
                None for all.

        Returns:
            [T, Hq, D], contiguous.
        """
        ...

    def copy_blocks(self, kv: LayerKv, copies: Tensor) -> None:
        """Copies the first tokens of blocks, in order.

        Args:
            kv: the layer's KV.
            copies: int32 [C, 3]: source block, destination block, number of tokens.
        """
        ...
