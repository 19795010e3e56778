"""A model's configuration, converted once from Hugging Face's keys.

Defaults are those of the family's configuration class in transformers, for a key that `config.json`
leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigError
from headrace.models.config_keys import ConfigKeys
from headrace.models.registry import check_architecture
from headrace.models.rope_config import read_rope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.layers.rotary import RopeConfig

_MAX_LAYERS = 4096


@dataclass(frozen=True)
class ModelConfig:
    """What a decoder is made of. Sizes are the whole model's, not a rank's.

    Attributes:
        architecture: `LlamaForCausalLM` …
        vocab_size: Rows of the embedding and of the output projection.
        hidden_size: Width of the residual stream.
        intermediate_size: Width of the MLP.
        num_layers: Decoder layers.
        num_query_heads: Query heads of a layer.
        num_kv_heads: Key-value heads of a layer; divides `num_query_heads`.
        head_dim: Size of a head; even.
        rms_norm_eps: Added to the mean square.
        max_position_embeddings: The context length the model was made for, in tokens.
        rope: The rotary embedding.
        tie_word_embeddings: The output projection is the embedding.
        qkv_bias: The query, key and value projections have biases.
        attention_output_bias: So has the projection after attention.
        mlp_bias: So have the MLP's projections.
        layer_windows: Per layer how many tokens back, itself included, a token attends to;
            None: all.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_query_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    rope: RopeConfig
    tie_word_embeddings: bool
    qkv_bias: bool
    attention_output_bias: bool
    mlp_bias: bool
    layer_windows: tuple[int | None, ...]


def architecture_of(config: Mapping[str, object]) -> str:
    """The architecture that a configuration names first.

    Raises:
        ConfigError: It names none, or one that is not supported.
    """
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise ConfigError(f"config: `architectures` is {names!r}, expected a list of names")
    check_architecture(names[0])
    return names[0]


def read_config(config: Mapping[str, object]) -> ModelConfig:
    """Converts the configuration of a Llama-like decoder (Llama, Mistral, Qwen2).

    Raises:
        ConfigError: A key is missing, has a wrong type, or asks for what is not supported; the message
            names it.
    """
    architecture = architecture_of(config)
    keys = ConfigKeys(config)
    _refuse_unsupported(keys)
    num_layers = keys.count("num_hidden_layers", maximum=_MAX_LAYERS)
    num_query_heads = keys.count("num_attention_heads")
    num_kv_heads = keys.count(
        "num_key_value_heads",
        default=num_query_heads,
        absent=_absent_kv_heads(architecture, num_query_heads),
    )
    if num_query_heads % num_kv_heads:
        raise ConfigError(
            f"config: `num_attention_heads` {num_query_heads} is not a multiple of "
            f"`num_key_value_heads` {num_kv_heads}"
        )
    hidden_size = keys.count("hidden_size")
    head_dim = keys.count("head_dim", default=_even_share(hidden_size, num_query_heads))
    if head_dim % 2:
        raise ConfigError(f"config: `head_dim` is {head_dim}; rotary embeddings need it even")
    max_position_embeddings = keys.count("max_position_embeddings", default=2048)
    attention_bias = architecture == "LlamaForCausalLM" and keys.flag("attention_bias")
    return ModelConfig(
        architecture=architecture,
        vocab_size=keys.count("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=keys.count("intermediate_size"),
        num_layers=num_layers,
        num_query_heads=num_query_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        rms_norm_eps=keys.number("rms_norm_eps", default=1e-6, minimum=0.0),
        max_position_embeddings=max_position_embeddings,
        rope=read_rope(config, max_position_embeddings),
        tie_word_embeddings=keys.flag("tie_word_embeddings"),
        qkv_bias=attention_bias or architecture == "Qwen2ForCausalLM",
        attention_output_bias=attention_bias,
        mlp_bias=architecture == "LlamaForCausalLM" and keys.flag("mlp_bias"),
        layer_windows=_layer_windows(architecture, keys, num_layers),
    )


def _even_share(hidden_size: int, num_query_heads: int) -> int | None:
    """A head's size when `head_dim` is absent; None: that key is then missing."""
    size, rest = divmod(hidden_size, num_query_heads)
    return None if rest else size


def _absent_kv_heads(architecture: str, num_query_heads: int) -> int:
    # The defaults of the classes, which count when the key is absent; a null means as many as queries.
    return {"MistralForCausalLM": 8, "Qwen2ForCausalLM": 32}.get(architecture, num_query_heads)


def _refuse_unsupported(keys: ConfigKeys) -> None:
    hidden_act: Any = keys.config.get("hidden_act", "silu")
    if hidden_act not in ("silu", "swish"):
        raise ConfigError(f"config: `hidden_act` {hidden_act!r} is not supported, `silu` is")
    quantisation = keys.config.get("quantization_config")
    if quantisation is not None:
        method = quantisation.get("quant_method") if isinstance(quantisation, dict) else None
        raise ConfigError(f"config: `quantization_config` ({method}) is not supported")


def _layer_windows(architecture: str, keys: ConfigKeys, num_layers: int) -> tuple[int | None, ...]:
    """The window of each layer, by the family's own rule.

    Llama has none, whatever the key says. Mistral has one for all layers. Qwen2 has one only with
    `use_sliding_window`, in the layers that `layer_types` names or from `max_window_layers` on.
    """
    if architecture == "MistralForCausalLM":
        window = keys.optional_count("sliding_window", absent=4096)
        return (window,) * num_layers
    if architecture == "Qwen2ForCausalLM" and keys.flag("use_sliding_window"):
        window = keys.optional_count("sliding_window", absent=4096)
        types = _layer_types(keys, num_layers)
        if types is None:
            first = keys.count("max_window_layers", default=28, minimum=0)
            return tuple(window if layer >= first else None for layer in range(num_layers))
        return tuple(window if kind == "sliding_attention" else None for kind in types)
    return (None,) * num_layers


def _layer_types(keys: ConfigKeys, num_layers: int) -> list[str] | None:
    types = keys.config.get("layer_types")
    if types is None:
        return None
    known = ("full_attention", "sliding_attention")
    if (
        not isinstance(types, list)
        or len(types) != num_layers
        or any(kind not in known for kind in types)
    ):
        raise ConfigError(
            f"config: `layer_types` is not a list of {num_layers} of {' and '.join(known)}"
        )
    return types
