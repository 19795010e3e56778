"""What can go wrong with a model before it serves, each as one line that names the culprit."""

from __future__ import annotations


class HeadraceError(Exception):
    """Base of every error whose message is fit to be shown to the person who started headrace."""


class DocumentError(HeadraceError):
    """The model document that the launcher wrote is not what this worker reads."""


class ConfigError(HeadraceError):
    """The model's configuration asks for something that is not supported, or contradicts itself."""


class WeightsError(HeadraceError):
    """A weight file is broken, or its tensors are not those of the model."""


class ShardingError(HeadraceError):
    """The model cannot be split over as many ranks as were asked for."""
