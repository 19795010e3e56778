"""Rotary frequencies have transformers' bits; the dynamic base follows its formula."""

import math

import pytest
import torch
from headrace.layers.rotary import RopeConfig, build_tables, inverse_frequencies
from headrace.models.rope_config import read_rope
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

PARAMETERS = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
    {
        "rope_type": "yarn",
        "factor": 0.0 + 16,
        "original_max_position_embeddings": 2048,
        "mscale": 1.0,
        "mscale_all_dim": 0.8,
    },
    {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 4096,
        "truncate": False,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "attention_factor": 0.9,
    },
]


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("theta", [10_000.0, 500_000.0])
@pytest.mark.parametrize("parameters", PARAMETERS, ids=lambda p: p["rope_type"])
def test_frequencies_have_transformers_bits(parameters, theta, head_dim):
    config = LlamaConfig(
        head_dim=head_dim,
        max_position_embeddings=32_768,
        rope_parameters=parameters | {"rope_theta": theta},
    )
    expected, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config)
    rope = read_rope(config.to_dict(), config.max_position_embeddings)
    frequencies, attention_factor = inverse_frequencies(rope, head_dim, 32_768, 32_768)
    assert torch.equal(frequencies, expected)
    assert attention_factor == factor


def test_dynamic_base_is_fixed_for_the_longest_sequence():
    """base = theta (factor P / L - factor + 1) ^ (D / (D - 2)), checked in double precision."""
    head_dim, theta, factor, trained, served = 64, 10_000.0, 2.0, 2048, 6000
    rope = RopeConfig("dynamic", theta, factor, trained)
    frequencies, _ = inverse_frequencies(rope, head_dim, trained, served)
    base = theta * (factor * served / trained - (factor - 1)) ** (head_dim / (head_dim - 2))
    for pair, frequency in enumerate(frequencies.tolist()):
        assert frequency == pytest.approx(base ** (-2 * pair / head_dim), rel=2e-6)
    plain, _ = inverse_frequencies(RopeConfig("default", theta), head_dim, trained, trained)
    for shorter in (1, 100, trained):
        assert torch.equal(inverse_frequencies(rope, head_dim, trained, shorter)[0], plain)
    config = LlamaConfig(
        head_dim=head_dim,
        max_position_embeddings=trained,
        rope_parameters={"rope_type": "dynamic", "rope_theta": theta, "factor": factor},
    )
    assert torch.equal(frequencies, ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=served)[0])


def test_tables_hold_every_position_and_yarn_scales_them():
    rope = RopeConfig("yarn", 10_000.0, 4.0, 64)
    cos, sin = build_tables(rope, 16, 256, 256)
    assert cos.shape == sin.shape == (256, 8)
    # The fastest pair is kept by YaRN: one radian a position.
    scale = 0.1 * math.log(4.0) + 1.0
    for position in (0, 1, 100, 255):
        assert cos[position, 0].item() == pytest.approx(scale * math.cos(position), abs=1e-5)
        assert sin[position, 0].item() == pytest.approx(scale * math.sin(position), abs=1e-5)


def test_frequency_factors_of_a_file_divide():
    rope = RopeConfig("default", 10_000.0)
    factors = torch.tensor([1.0, 2.0, 4.0, 8.0])
    cos, _ = build_tables(rope, 8, 64, 64, factors)
    for pair in range(4):
        angle = 63 * 10_000.0 ** (-2 * pair / 8) / factors[pair].item()
        assert cos[63, pair].item() == pytest.approx(math.cos(angle), abs=1e-5)
