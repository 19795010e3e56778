"""Which ids each slot has seen, for the penalties.

Kept sparse: a sequence has seen a few hundred different ids, a vocabulary has up to a quarter of a million.

Shapes: U = different ids that a slot has seen.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class SlotHistory:
    """Different ids of one sequence (prompt and output), and how often each is in its output."""

    def __init__(self, ids: npt.NDArray[np.integer], prompt_length: int) -> None:
        """Starts a sequence.

        Args:
            ids: Its prompt, and whatever was generated before a preemption.
            prompt_length: How many of `ids` are prompt.
        """
        different = np.unique(ids.astype(np.int64))
        self._size = different.size
        self._ids = np.zeros(max(64, 2 * self._size), np.int64)
        self._ids[: self._size] = different
        self._counts = np.zeros(self._ids.size, np.int64)
        self._places = {token: place for place, token in enumerate(different.tolist())}
        output = np.searchsorted(different, ids[prompt_length:].astype(np.int64))
        np.add.at(self._counts, output, 1)

    def append(self, token: int) -> None:
        """Adds an output id."""
        place = self._places.get(token)
        if place is None:
            place = self._places[token] = self._size
            if place == self._ids.size:
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[place] = token
            self._size += 1
        self._counts[place] += 1

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """[U] each id once, in no particular order."""
        return self._ids[: self._size]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """[U] times in the output, one for each of `ids`."""
        return self._counts[: self._size]
