"""Rotary position embedding: frequencies of each scaling, and the tables made of them at load.

Shape legend: D head size, P positions, T tokens, Hq / Hkv query / key-value heads.

Sources: RoPE, arXiv 2104.09864; position interpolation ("linear"), arXiv 2306.15595; YaRN, which also
describes the NTK-aware base that "dynamic" uses, arXiv 2309.00071; "llama3" is Llama 3.1's. Formulas
are computed in float32 in the order in which transformers computes them, so that tables have its bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.ops.op_set import OpSet


RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn"]


@dataclass(frozen=True)
class RopeConfig:
    """Which rotary frequencies a model uses.

    Attributes:
        kind: Which formula.
        theta: The base of the geometric series of wavelengths.
        factor: How far the context is stretched; 1 for `default`.
        original_max_position_embeddings: The context before stretching, in tokens.
        low_freq_factor: `llama3`: waves longer than the original context over this are stretched.
        high_freq_factor: `llama3`: waves shorter than the original context over this are kept.
        attention_factor: `yarn`: scales cosines and sines; None: derived from factor and mscales.
        beta_fast: `yarn`: rotations over the original context from which a wave is kept.
        beta_slow: `yarn`: rotations up to which a wave is stretched.
        mscale: `yarn`: weight of the logarithm in the attention factor's numerator.
        mscale_all_dim: `yarn`: the same in its denominator.
        truncate: `yarn`: whether the ramp's bounds are rounded to whole dimensions.
    """

    kind: RopeKind
    theta: float
    factor: float = 1.0
    original_max_position_embeddings: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    attention_factor: float | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    truncate: bool = True


@dataclass(frozen=True, eq=False)
class RotaryEmbedding:
    """Turns pairs of values of a head by an angle that grows with the position.

    Attributes:
        ops: The op set.
        cos: float32 [P, D / 2].
        sin: float32 [P, D / 2].
    """

    ops: OpSet
    cos: Tensor
    sin: Tensor

    def __call__(self, q: Tensor, k: Tensor, positions: Tensor) -> None:
        """Turns q [T, Hq, D] and k [T, Hkv, D] in place; positions int64 [T], each below P."""
        self.ops.rotary(q, k, self.cos, self.sin, positions)


def build_tables(
    rope: RopeConfig,
    head_dim: int,
    max_position_embeddings: int,
    num_positions: int,
    frequency_factors: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position that a sequence can reach.

    Args:
        rope: Which frequencies.
        head_dim: D.
        max_position_embeddings: The context length the model was made for.
        num_positions: P: the longest sequence that will be served.
        frequency_factors: float32 [D / 2] out of the weight file: the frequencies are divided by
            them. GGUF files of Llama 3.1 and later carry their scaling so.

    Returns:
        cos and sin, float32 [P, D / 2] each, with YaRN's attention factor in them.
    """
    frequencies, attention_factor = inverse_frequencies(
        rope, head_dim, max_position_embeddings, num_positions
    )
    if frequency_factors is not None:
        frequencies = frequencies / frequency_factors
    positions = torch.arange(num_positions, dtype=torch.float32)
    angles = positions[:, None] * frequencies[None, :]
    return angles.cos() * attention_factor, angles.sin() * attention_factor


def inverse_frequencies(
    rope: RopeConfig, head_dim: int, max_position_embeddings: int, num_positions: int
) -> tuple[Tensor, float]:
    """Radians a position for each pair, and the factor on cosines and sines.

    Args:
        rope: Which frequencies.
        head_dim: D.
        max_position_embeddings: The context length the model was made for.
        num_positions: The longest sequence that will be served; only `dynamic` depends on it.

    Returns:
        float32 [D / 2], and 1 but for YaRN.
    """
    if rope.kind == "linear":
        return _unscaled(rope.theta, head_dim) / rope.factor, 1.0
    if rope.kind == "dynamic":
        return _dynamic(rope, head_dim, max_position_embeddings, num_positions), 1.0
    if rope.kind == "llama3":
        return _llama3(rope, head_dim), 1.0
    if rope.kind == "yarn":
        return _yarn(rope, head_dim), yarn_attention_factor(rope)
    return _unscaled(rope.theta, head_dim), 1.0


def _unscaled(theta: float, head_dim: int) -> Tensor:
    """theta ^ (-2 i / D) for pair i."""
    return 1.0 / (theta ** _exponents(head_dim))


def _exponents(head_dim: int) -> Tensor:
    return torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim


def _dynamic(
    rope: RopeConfig, head_dim: int, max_position_embeddings: int, num_positions: int
) -> Tensor:
    """NTK-aware base, fixed at load for the longest sequence that will be served.

    The original recipe grows the base with the sequence, so the keys of early tokens were turned by
    other angles than those of late ones, and an answer depends on how its prompt was cut into chunks.
    With one base for all, an answer depends on the request alone. Up to the model's own context length
    the base is the plain one.
    """
    length = max(num_positions, max_position_embeddings)
    stretch = rope.factor * length / max_position_embeddings - (rope.factor - 1)
    return _unscaled(rope.theta * stretch ** (head_dim / (head_dim - 2)), head_dim)


def _llama3(rope: RopeConfig, head_dim: int) -> Tensor:
    """Long waves are stretched by the factor, short ones kept, those between blended."""
    plain = _unscaled(rope.theta, head_dim)
    original = rope.original_max_position_embeddings
    low, high = rope.low_freq_factor, rope.high_freq_factor
    wavelength = 2 * math.pi / plain
    stretched = torch.where(wavelength > original / low, plain / rope.factor, plain)
    blend = (original / wavelength - low) / (high - low)
    blended = (1 - blend) * stretched / rope.factor + blend * stretched
    is_between = ~(wavelength < original / high) * ~(wavelength > original / low)
    return torch.where(is_between, blended, stretched)


def _yarn(rope: RopeConfig, head_dim: int) -> Tensor:
    """Waves that turn often within the original context are kept, those that do not are stretched.

    Between the two a linear ramp over the pairs blends.
    """
    powers = rope.theta ** _exponents(head_dim)
    kept, stretched = 1.0 / powers, 1.0 / (rope.factor * powers)
    low = _yarn_dimension(rope, head_dim, rope.beta_fast)
    high = _yarn_dimension(rope, head_dim, rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # a step instead of a ramp
    pairs = torch.arange(head_dim // 2, dtype=torch.float32)
    keep = 1 - ((pairs - low) / (high - low)).clamp(0, 1)
    return stretched * (1 - keep) + kept * keep


def _yarn_dimension(rope: RopeConfig, head_dim: int, rotations: float) -> float:
    """The pair whose wave turns so many times within the original context, as a real number."""
    waves = rope.original_max_position_embeddings / (rotations * 2 * math.pi)
    return (head_dim * math.log(waves)) / (2 * math.log(rope.theta))


def yarn_attention_factor(rope: RopeConfig) -> float:
    """What cosines and sines are scaled by under YaRN, so that longer contexts stay as sharp."""
    if rope.attention_factor is not None:
        return rope.attention_factor

    def magnitude(weight: float) -> float:
        return 1.0 if rope.factor <= 1 else 0.1 * weight * math.log(rope.factor) + 1.0

    if rope.mscale and rope.mscale_all_dim:
        return magnitude(rope.mscale) / magnitude(rope.mscale_all_dim)
    return magnitude(1.0)
