"""Which tensors a Llama-like checkpoint holds, and how this rank's layers are made of its slices.

Tensors are read, packed and dropped one by one, so that little more than the packed weights is ever in
memory.

Shape legend: H hidden size, I MLP width, V vocabulary, Hq / Hkv heads of the whole model, D head size.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from headrace.distributed.splits import split_dimension, split_heads
from headrace.layers.attention import PagedAttention
from headrace.layers.embedding import VocabParallelEmbedding, VocabParallelHead
from headrace.layers.linear import ColumnParallelLinear, RowParallelLinear
from headrace.layers.mlp import GatedMlp
from headrace.layers.norm import RmsNorm
from headrace.layers.rotary import RotaryEmbedding, build_tables
from headrace.models.config import ModelConfig, read_config
from headrace.models.llama.model import LlamaForCausalLm, LlamaLayer
from headrace.weights.gguf_names import FREQUENCY_FACTORS
from headrace.weights.source import WeightReader, check_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from headrace.models.loader import LoadContext
    from headrace.weights.source import WeightSource

_EMBEDDING = "model.embed_tokens.weight"
_HEAD = "lm_head.weight"
# Old checkpoints carry the rotary frequencies, which follow from the configuration.
_HARMLESS = re.compile(r"(model\.layers\.\d+\.self_attn|model)\.rotary_emb\.inv_freq")


def expected_tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the whole model's tensors; a linear layer's are [out, in]."""
    hidden, width = config.hidden_size, config.intermediate_size
    query_rows = config.num_query_heads * config.head_dim
    kv_rows = config.num_kv_heads * config.head_dim
    linears = {
        "self_attn.q_proj": (query_rows, hidden, config.qkv_bias),
        "self_attn.k_proj": (kv_rows, hidden, config.qkv_bias),
        "self_attn.v_proj": (kv_rows, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, query_rows, config.attention_output_bias),
        "mlp.gate_proj": (width, hidden, config.mlp_bias),
        "mlp.up_proj": (width, hidden, config.mlp_bias),
        "mlp.down_proj": (hidden, width, config.mlp_bias),
    }
    shapes: dict[str, tuple[int, ...]] = {
        _EMBEDDING: (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
        _HEAD: (config.vocab_size, hidden),
        FREQUENCY_FACTORS: (config.head_dim // 2,),
    }
    for layer in range(config.num_layers):
        prefix = f"model.layers.{layer}."
        shapes[f"{prefix}input_layernorm.weight"] = (hidden,)
        shapes[f"{prefix}post_attention_layernorm.weight"] = (hidden,)
        for name, (rows, columns, has_bias) in linears.items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
    return shapes


def load(
    config: Mapping[str, object], source: WeightSource, context: LoadContext
) -> LlamaForCausalLm:
    """Checks the files against the configuration, then loads this rank's slices.

    Raises:
        ConfigError: The configuration is not supported.
        ShardingError: It cannot be split over the ranks.
        WeightsError: The files do not hold this model.
    """
    model_config = read_config(config)
    plan = _RankPlan(model_config, context.group.rank, context.group.world_size)
    optional = [FREQUENCY_FACTORS]
    if model_config.tie_word_embeddings:
        optional.append(_HEAD)
    check_tensors(
        source,
        expected_tensors(model_config),
        optional,
        ignored=lambda name: _HARMLESS.fullmatch(name) is not None,
    )
    return _Loader(model_config, plan, source, context).model()


class _RankPlan:
    """The rows and columns that one rank holds."""

    def __init__(self, config: ModelConfig, rank: int, world_size: int) -> None:
        heads = split_heads(config.num_query_heads, config.num_kv_heads, world_size)[rank]
        self.num_query_heads = len(heads.query_heads)
        self.num_kv_heads = len(heads.kv_heads)
        self.query = _rows_of_heads(heads.query_heads, config.head_dim)
        self.kv = _rows_of_heads(heads.kv_heads, config.head_dim)
        self.width = split_dimension("intermediate_size", config.intermediate_size, world_size)[
            rank
        ]
        vocabulary = split_dimension("vocab_size", config.vocab_size, world_size)
        self.vocabulary = vocabulary[rank]
        self.vocabulary_sizes = tuple(len(part) for part in vocabulary)


def _rows_of_heads(heads: range, head_dim: int) -> range:
    return range(heads.start * head_dim, heads.stop * head_dim)


class _Loader:
    """Builds the layers, in the order in which files usually hold them."""

    def __init__(
        self, config: ModelConfig, plan: _RankPlan, source: WeightSource, context: LoadContext
    ) -> None:
        self._config = config
        self._plan = plan
        self._context = context
        self._is_tied = config.tie_word_embeddings and not (
            source.has_authoritative_output and _HEAD in source.tensors
        )
        self._bytes = 0
        self._reader = WeightReader(source, self._bytes_to_read(source), context.progress)

    def model(self) -> LlamaForCausalLm:
        """Everything."""
        config, plan, context = self._config, self._plan, self._context
        embedding = self._read(_EMBEDDING, rows=plan.vocabulary)
        rotary = self._rotary()
        layers = tuple(self._layer(index, rotary) for index in range(config.num_layers))
        norm = self._norm("model.norm")
        head = embedding if self._is_tied else self._read(_HEAD, rows=plan.vocabulary)
        packed_head = context.ops.pack_linear(head)
        self._bytes += packed_head.data.nbytes if packed_head.data is not embedding else 0
        self._bytes += embedding.nbytes
        self._reader.finish()
        return LlamaForCausalLm(
            config=config,
            embedding=VocabParallelEmbedding(context.group, embedding, plan.vocabulary),
            layers=layers,
            norm=norm,
            head=VocabParallelHead(context.ops, context.group, packed_head, plan.vocabulary_sizes),
            kv_heads_on_rank=plan.num_kv_heads,
            num_positions=context.num_positions,
            weight_bytes=self._bytes,
        )

    def _layer(self, index: int, rotary: RotaryEmbedding) -> LlamaLayer:
        config, plan, context = self._config, self._plan, self._context
        prefix = f"model.layers.{index}."
        attention = f"{prefix}self_attn."
        return LlamaLayer(
            attention_norm=self._norm(f"{prefix}input_layernorm"),
            attention=PagedAttention(
                ops=context.ops,
                qkv=self._columns(
                    [
                        (f"{attention}q_proj", plan.query),
                        (f"{attention}k_proj", plan.kv),
                        (f"{attention}v_proj", plan.kv),
                    ],
                    has_bias=config.qkv_bias,
                ),
                rotary=rotary,
                output=self._rows(
                    f"{attention}o_proj", plan.query, has_bias=config.attention_output_bias
                ),
                num_query_heads=plan.num_query_heads,
                num_kv_heads=plan.num_kv_heads,
                head_dim=config.head_dim,
                sliding_window=config.layer_windows[index],
            ),
            mlp_norm=self._norm(f"{prefix}post_attention_layernorm"),
            mlp=GatedMlp(
                ops=context.ops,
                gate_up=self._columns(
                    [(f"{prefix}mlp.gate_proj", plan.width), (f"{prefix}mlp.up_proj", plan.width)],
                    has_bias=config.mlp_bias,
                ),
                down=self._rows(f"{prefix}mlp.down_proj", plan.width, has_bias=config.mlp_bias),
            ),
        )

    def _columns(
        self, parts: Sequence[tuple[str, range]], *, has_bias: bool
    ) -> ColumnParallelLinear:
        """Several projections of one input as one packed weight."""
        weights = [self._read(f"{name}.weight", rows=rows) for name, rows in parts]
        packed = self._context.ops.pack_linear(torch.cat(weights))
        self._bytes += packed.data.nbytes
        bias = None
        if has_bias:
            bias = torch.cat([self._read(f"{name}.bias", rows=rows) for name, rows in parts])
            self._bytes += bias.nbytes
        return ColumnParallelLinear(self._context.ops, packed, bias)

    def _rows(self, name: str, columns: range, *, has_bias: bool) -> RowParallelLinear:
        """A projection whose inputs are split; its bias is whole on every rank."""
        context = self._context
        packed = context.ops.pack_linear(self._read(f"{name}.weight", columns=columns))
        self._bytes += packed.data.nbytes
        bias = None
        if has_bias:
            bias = self._read(f"{name}.bias")
            self._bytes += bias.nbytes
        return RowParallelLinear(context.ops, context.group, packed, bias)

    def _norm(self, name: str) -> RmsNorm:
        weight = self._read(f"{name}.weight")
        self._bytes += weight.nbytes
        return RmsNorm(self._context.ops, weight, self._config.rms_norm_eps)

    def _rotary(self) -> RotaryEmbedding:
        config, context = self._config, self._context
        factors = None
        # A configuration with a scaling describes the same thing as the tensor: once is enough.
        if FREQUENCY_FACTORS in self._reader and config.rope.kind == "default":
            factors = self._reader.read(FREQUENCY_FACTORS)
        cos, sin = build_tables(
            config.rope,
            config.head_dim,
            config.max_position_embeddings,
            context.num_positions,
            factors,
        )
        self._bytes += cos.nbytes + sin.nbytes
        return RotaryEmbedding(context.ops, cos.to(context.device), sin.to(context.device))

    def _read(self, name: str, rows: range | None = None, columns: range | None = None) -> Tensor:
        context = self._context
        return self._reader.read(name, rows, columns).to(context.device, context.dtype)

    def _bytes_to_read(self, source: WeightSource) -> int:
        """Of the files, on this rank: near enough for a progress line."""
        total = sum(
            info.num_bytes
            for name, info in source.tensors.items()
            if _HARMLESS.fullmatch(name) is None and not (name == _HEAD and self._is_tied)
        )
        return max(1, total // self._context.group.world_size)
