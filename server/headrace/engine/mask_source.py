"""Where the engine gets late masks from: it asks just before sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.sampling import TokenMask

CALLED_OFF: Final = "called off"


class StreamEnded(Exception):  # noqa: N818 - nothing went wrong in the engine
    """The stream of steps ended while a step waited for a mask."""


@dataclass(frozen=True, slots=True)
class PlacedMask:
    """A mask with the output index it was made for."""

    mask: TokenMask
    position: int


class MaskSource(Protocol):
    """Masks by (step, slot)."""

    def wait(self, step_id: int, slots: Sequence[int]) -> Mapping[int, PlacedMask | str]:
        """Blocks until each slot's mask for the step, or its cancellation, is there.

        Returns:
            By slot: the mask; `CALLED_OFF`: the row samples nothing; any other text: why there is no
            mask, and the row fails.

        Raises:
            StreamEnded: No mask will come any more.
        """
        ...


class NoMasks:
    """For steps without masked rows."""

    def wait(self, step_id: int, slots: Sequence[int]) -> Mapping[int, PlacedMask | str]:
        """Fails every row that announces a mask."""
        return dict.fromkeys(slots, f"no mask can come for step {step_id}")
