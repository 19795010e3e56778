"""Bad words: id sequences that one row's output must not contain.

The rule is by ids, as in vLLM: the last id of a sequence is forbidden where the output ids right before it are the
sequence's others. Prompt ids do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


class BadWords:
    """The bad words of one slot, and as much of its output's end as they look at."""

    def __init__(
        self, words: Sequence[npt.NDArray[np.integer]], output: npt.NDArray[np.integer]
    ) -> None:
        """Starts a sequence.

        Args:
            words: The ids of each, at least one.
            output: Its output ids from before a preemption.
        """
        listed = [word.tolist() for word in words]
        self._always = sorted({word[0] for word in listed if len(word) == 1})
        self._after = [(tuple(word[:-1]), word[-1]) for word in listed if len(word) > 1]
        # Ids before the next one that any word looks at.
        self._reach = max((len(before) for before, _ in self._after), default=0)
        self._tail: tuple[int, ...] = tuple(output[max(0, output.size - self._reach) :].tolist())

    def append(self, token: int) -> None:
        """Adds an output id."""
        if self._reach:
            self._tail = (*self._tail, token)[-self._reach :]

    def next_forbidden(self) -> npt.NDArray[np.int64]:
        """The ids that must not come next, each at least once."""
        tail = self._tail
        completing = [last for before, last in self._after if tail[-len(before) :] == before]
        return np.array(self._always + completing, np.int64)
