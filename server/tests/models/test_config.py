"""Keys of old and new configurations, and the families' own rules."""

from headrace.models.config import read_config
from tiny_checkpoints import tiny_config


def keys_of(family="llama", **changes):
    architecture = {
        "llama": "LlamaForCausalLM",
        "mistral": "MistralForCausalLM",
        "qwen2": "Qwen2ForCausalLM",
    }[family]
    return tiny_config(family, **changes).to_dict() | {"architectures": [architecture]}


def test_old_and_new_rotary_keys_are_one():
    new = keys_of(
        rope_parameters={"rope_type": "linear", "rope_theta": 5000.0, "factor": 2.0},
    )
    old = {key: value for key, value in new.items() if key != "rope_parameters"}
    old |= {"rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    assert read_config(old) == read_config(new)
    assert read_config(old).rope.theta == 5000.0
    assert read_config(old | {"rope_scaling": None}).rope.kind == "default"


def test_original_length_beside_the_parameters_counts():
    parameters = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 7}
    config = keys_of(rope_parameters=dict(parameters)) | {"original_max_position_embeddings": 32}
    assert read_config(config).rope.original_max_position_embeddings == 32


def test_yarn_factor_follows_from_the_lengths():
    parameters = {"rope_type": "yarn", "original_max_position_embeddings": 64}
    config = keys_of() | {"rope_parameters": parameters}
    assert read_config(config).rope.factor == 256 / 64


def test_defaults_of_absent_keys():
    minimal = {
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 10,
        "hidden_size": 64,
        "intermediate_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
    }
    config = read_config(minimal)
    assert (config.num_kv_heads, config.head_dim, config.rms_norm_eps) == (16, 4, 1e-6)
    assert (config.max_position_embeddings, config.rope.theta) == (2048, 10_000.0)
    assert config.tie_word_embeddings is False
    mistral = read_config(minimal | {"architectures": ["MistralForCausalLM"]})
    assert (mistral.num_kv_heads, mistral.layer_windows) == (8, (4096,) * 3)
    nulls = {"num_key_value_heads": None, "sliding_window": None}
    mistral = read_config(minimal | {"architectures": ["MistralForCausalLM"]} | nulls)
    assert (mistral.num_kv_heads, mistral.layer_windows) == (16, (None,) * 3)


def test_windows_and_biases_of_each_family():
    window = {"sliding_window": 9}
    assert read_config(keys_of() | window).layer_windows == (None, None)
    qwen = keys_of("qwen2") | window
    assert read_config(qwen).layer_windows == (None, None)
    qwen |= {"use_sliding_window": True, "max_window_layers": 1, "layer_types": None}
    assert read_config(qwen).layer_windows == (None, 9)
    types = ["sliding_attention", "full_attention"]
    assert read_config(qwen | {"layer_types": types}).layer_windows == (9, None)
    config = read_config(qwen)
    assert (config.qkv_bias, config.attention_output_bias, config.mlp_bias) == (True, False, False)
    config = read_config(keys_of(attention_bias=True))
    assert (config.qkv_bias, config.attention_output_bias, config.mlp_bias) == (True, True, False)
