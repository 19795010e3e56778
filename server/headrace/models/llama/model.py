"""The Llama decoder (arXiv 2302.13971, 2307.09288): pre-norm attention and gated MLP.

Shape legend: T tokens of the step, R rows that want logits, H hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from headrace.layers.attention import PagedAttention
    from headrace.layers.embedding import VocabParallelEmbedding, VocabParallelHead
    from headrace.layers.mlp import GatedMlp
    from headrace.layers.norm import RmsNorm
    from headrace.models.causal_model import StepBatch
    from headrace.models.config import ModelConfig
    from headrace.ops.attention.backend import LayerKv
    from headrace.ops.attention.metadata import AttentionMetadata


@dataclass(frozen=True, eq=False)
class LlamaLayer:
    """Attention and MLP, each after a norm and added to the residual stream."""

    attention_norm: RmsNorm
    attention: PagedAttention
    mlp_norm: RmsNorm
    mlp: GatedMlp

    def __call__(
        self, x: Tensor, residual: Tensor | None, kv: LayerKv, metadata: AttentionMetadata
    ) -> tuple[Tensor, Tensor]:
        """One layer, with each addition left to the norm that follows it.

        Args:
            x: [T, H], what the last layer's MLP adds, or the embedding.
            residual: [T, H], the stream before that; None in the first layer.
            kv: This layer's cache.
            metadata: Rows and block tables.

        Returns:
            What this layer's MLP adds, and the stream before that.
        """
        if residual is None:
            x, residual = self.attention_norm(x), x
        else:
            x, residual = self.attention_norm.add(x, residual)
        x = self.attention(x, kv, metadata)
        x, residual = self.mlp_norm.add(x, residual)
        return self.mlp(x), residual


@dataclass(frozen=True, eq=False)
class LlamaForCausalLm:
    """Embedding, layers, norm, output projection."""

    config: ModelConfig
    embedding: VocabParallelEmbedding
    layers: tuple[LlamaLayer, ...]
    norm: RmsNorm
    head: VocabParallelHead
    kv_heads_on_rank: int
    num_positions: int
    weight_bytes: int

    def forward(self, batch: StepBatch, kv: Sequence[LayerKv]) -> Tensor:
        """See `CausalModel.forward`."""
        x = self.embedding(batch.token_ids)
        residual: Tensor | None = None
        for layer, layer_kv in zip(self.layers, kv, strict=True):
            x, residual = layer(x, residual, layer_kv, batch.metadata)
        if residual is None:
            return self.norm(x)
        return self.norm.add(x, residual)[0]

    def logits(self, hidden: Tensor) -> Tensor | None:
        """See `CausalModel.logits`."""
        return self.head(hidden)
