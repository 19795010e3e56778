"""What the engine knows of a model: hidden states of a batch, and logits of some of them.

Shape legend: T tokens of the step, R rows that want logits, H hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from headrace.models.config import ModelConfig
    from headrace.ops.attention.backend import LayerKv
    from headrace.ops.attention.metadata import AttentionMetadata


@dataclass(frozen=True, eq=False)
class StepBatch:
    """The tokens of one step, prefill and decode rows one after the other.

    Attributes:
        token_ids: int64 [T], each below V.
        positions: int64 [T], absolute; the same as `metadata.positions`.
        metadata: Rows and block tables.
    """

    token_ids: Tensor
    positions: Tensor
    metadata: AttentionMetadata


class CausalModel(Protocol):
    """A decoder on one rank; every rank of the group calls in step."""

    @property
    def config(self) -> ModelConfig:
        """The whole model's configuration."""
        ...

    @property
    def kv_heads_on_rank(self) -> int:
        """Key-value heads that this rank keeps, of every layer."""
        ...

    @property
    def num_positions(self) -> int:
        """Positions are below this: the length of the rotary tables."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes of the parameters on this rank."""
        ...

    def forward(self, batch: StepBatch, kv: Sequence[LayerKv]) -> Tensor:
        """Runs the decoder and writes the tokens' keys and values.

        Args:
            batch: The step.
            kv: One per layer.

        Returns:
            [T, H], after the final norm, the same on every rank.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor | None:
        """Logits of some rows: [R, H] -> float32 [R, V] on rank 0, None on other ranks."""
        ...
