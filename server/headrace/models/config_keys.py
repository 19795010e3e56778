"""Typed reading of a configuration's keys, with messages that name the key."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_COUNT = (1 << 31) - 1


class ConfigKeys:
    """A JSON object whose values are checked as they are read."""

    def __init__(self, config: Mapping[str, object], where: str = "config") -> None:
        """Reads from `config`; messages start with `where`."""
        self.config = config
        self._where = where

    def count(
        self,
        key: str,
        *,
        default: int | None = None,
        absent: int | None = None,
        minimum: int = 1,
        maximum: int = _MAX_COUNT,
    ) -> int:
        """An integer from `minimum` to `maximum`.

        Args:
            key: The key.
            default: Taken when the value is null, and when the key is absent and `absent` is not given.
            absent: Taken when the key is absent.
            minimum: Least value.
            maximum: Largest value.
        """
        value = self.optional_count(
            key, absent=default if absent is None else absent, minimum=minimum, maximum=maximum
        )
        value = default if value is None else value
        if value is None:
            raise ConfigError(f"{self._where}: `{key}` is missing")
        return value

    def optional_count(
        self,
        key: str,
        *,
        absent: int | None = None,
        minimum: int = 1,
        maximum: int = _MAX_COUNT,
    ) -> int | None:
        """An integer from `minimum` to `maximum`, or null."""
        value = self.config.get(key, absent)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"{self._where}: `{key}` is {value!r}, not an integer")
        if not minimum <= value <= maximum:
            raise ConfigError(
                f"{self._where}: `{key}` is {value}, allowed are {minimum} to {maximum}"
            )
        return value

    def number(self, key: str, *, default: float | None = None, minimum: float = 0.0) -> float:
        """A finite number of at least `minimum`; `default` when null or absent."""
        value = self.optional_number(key, minimum=minimum)
        value = default if value is None else value
        if value is None:
            raise ConfigError(f"{self._where}: `{key}` is missing")
        return value

    def optional_number(self, key: str, *, minimum: float = 0.0) -> float | None:
        """A finite number of at least `minimum`, or None when null or absent."""
        value = self.config.get(key)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ConfigError(f"{self._where}: `{key}` is {value!r}, not a number")
        if not math.isfinite(value) or value < minimum:
            raise ConfigError(
                f"{self._where}: `{key}` is {value}, a finite number >= {minimum} is needed"
            )
        return float(value)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """A boolean; `default` when null or absent."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ConfigError(f"{self._where}: `{key}` is {value!r}, not a boolean")
        return value
