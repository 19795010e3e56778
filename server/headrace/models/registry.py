"""Which architectures are served, and by which module. Modules are imported when they are needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.models.causal_model import CausalModel
    from headrace.models.loader import LoadContext
    from headrace.weights.source import WeightSource

_LLAMA = "headrace.models.llama.weights"

ARCHITECTURES: dict[str, str] = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "Qwen2ForCausalLM": _LLAMA,
}
"""Architecture, as `config.json` names it, to the module whose `load` builds it."""


class FamilyLoader(Protocol):
    """`load` of a family's `weights` module."""

    def __call__(
        self, config: Mapping[str, object], source: WeightSource, context: LoadContext
    ) -> CausalModel:
        """Checks the files against the configuration, then loads this rank's slices."""
        ...


def check_architecture(architecture: str) -> None:
    """Refuses what is not served.

    Raises:
        ConfigError: It is not supported; names it and those that are.
    """
    if architecture not in ARCHITECTURES:
        supported = ", ".join(sorted(ARCHITECTURES))
        raise ConfigError(
            f"architecture {architecture!r} is not supported, supported are {supported}"
        )


def family_loader(architecture: str) -> FamilyLoader:
    """The loader of an architecture.

    Raises:
        ConfigError: See `check_architecture`.
    """
    check_architecture(architecture)
    return cast("FamilyLoader", import_module(ARCHITECTURES[architecture]).load)
