"""The rotary embedding's part of a configuration, in the old keys and the new.

Old: `rope_theta` beside `rope_scaling: {rope_type or type, factor …}`. New (transformers 5):
`rope_parameters: {rope_theta, rope_type, factor …}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from headrace.errors import ConfigError
from headrace.layers.rotary import RopeConfig, RopeKind
from headrace.models.config_keys import ConfigKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")
_DEFAULT_THETA = 10_000.0


def read_rope(config: Mapping[str, object], max_position_embeddings: int) -> RopeConfig:
    """Reads the rotary embedding's keys.

    Raises:
        ConfigError: An unknown kind or a wrong value, by name.
    """
    parameters = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(parameters, dict):
        raise ConfigError("config: `rope_scaling` is not an object")
    top = ConfigKeys(config)
    keys = ConfigKeys(parameters, "config: rope parameters")
    _refuse_partial(top, keys)
    theta = keys.optional_number("rope_theta", minimum=1.0)
    if theta is None:
        theta = top.number("rope_theta", default=_DEFAULT_THETA, minimum=1.0)
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind not in _KINDS:
        raise ConfigError(
            f"config: rope type {kind!r} is not supported, supported are {', '.join(_KINDS)}"
        )
    if kind == "default":
        return RopeConfig("default", theta)
    # Some checkpoints keep the original length beside the parameters: that one counts.
    original = top.optional_count("original_max_position_embeddings") or keys.count(
        "original_max_position_embeddings", default=max_position_embeddings
    )
    stretch = max_position_embeddings / original if kind == "yarn" else None
    factor = keys.number("factor", default=stretch, minimum=1.0)
    if kind == "llama3":
        low = keys.number("low_freq_factor", minimum=1e-6)
        high = keys.number("high_freq_factor", minimum=1e-6)
        if high <= low:
            raise ConfigError(
                f"config: rope parameters: `high_freq_factor` {high} is not above "
                f"`low_freq_factor` {low}"
            )
        return RopeConfig("llama3", theta, factor, original, low, high)
    if kind == "yarn":
        return RopeConfig(
            "yarn",
            theta,
            factor,
            original,
            attention_factor=keys.optional_number("attention_factor"),
            # A zero means the default here, as it does in transformers.
            beta_fast=keys.number("beta_fast", default=32.0) or 32.0,
            beta_slow=keys.number("beta_slow", default=1.0) or 1.0,
            mscale=keys.optional_number("mscale"),
            mscale_all_dim=keys.optional_number("mscale_all_dim"),
            truncate=keys.flag("truncate", default=True),
        )
    return RopeConfig(cast("RopeKind", kind), theta, factor, original)


def _refuse_partial(top: ConfigKeys, keys: ConfigKeys) -> None:
    """None of the supported families turns only a part of a head."""
    for source in (top, keys):
        part = source.number("partial_rotary_factor", default=1.0)
        if part != 1.0:
            raise ConfigError(f"config: `partial_rotary_factor` {part} is not supported, 1 is")
