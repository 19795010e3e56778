"""Where masks wait for their step. Filled by the reader thread, emptied by the compute thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from headrace.engine import CALLED_OFF, PlacedMask, StreamEnded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.sampling import TokenMask

MAX_REMEMBERED = 4096
"""Masks that `same_as` may name: the latest ones with an id."""


class MaskRoom:
    """Masks by (step, slot), for one stream."""

    def __init__(self) -> None:
        """An empty room."""
        self._changed = threading.Condition()
        self._waiting: dict[tuple[int, int], PlacedMask | str] = {}
        self._remembered: OrderedDict[int, TokenMask] = OrderedDict()
        self._done_step = 0
        self._is_closed = False

    def put(
        self, step_id: int, slot: int, position: int, mask: TokenMask | int | str, mask_id: int
    ) -> None:
        """Leaves a mask for a row.

        Args:
            step_id: The step.
            slot: The row's slot.
            position: Output index that it constrains.
            mask: The mask, the id of one sent before, or why there is none.
            mask_id: Its own id; 0: none, it cannot be named again.
        """
        with self._changed:
            if isinstance(mask, int):
                known = self._remembered.get(mask)
                if known is None:
                    self._leave(step_id, slot, f"mask {mask} is not known (any more)")
                    return
                self._remembered.move_to_end(mask)
                mask = known
            if isinstance(mask, str):
                self._leave(step_id, slot, mask)
                return
            if mask_id:
                self._remembered[mask_id] = mask
                self._remembered.move_to_end(mask_id)
                if len(self._remembered) > MAX_REMEMBERED:
                    self._remembered.popitem(last=False)
            self._leave(step_id, slot, PlacedMask(mask, position))

    def call_off(self, step_id: int, slot: int) -> None:
        """The row samples nothing."""
        with self._changed:
            self._leave(step_id, slot, CALLED_OFF)

    def _leave(self, step_id: int, slot: int, item: PlacedMask | str) -> None:
        if step_id > self._done_step:
            self._waiting[step_id, slot] = item
            self._changed.notify_all()

    def wait(self, step_id: int, slots: Sequence[int]) -> dict[int, PlacedMask | str]:
        """See `MaskSource`."""
        keys = [(step_id, slot) for slot in slots]
        with self._changed:
            while not self._is_closed:
                if all(key in self._waiting for key in keys):
                    return {slot: self._waiting.pop((step_id, slot)) for slot in slots}
                self._changed.wait()
        raise StreamEnded

    def finish_step(self, step_id: int) -> None:
        """Drops what was sent for this step or an earlier one and not asked for."""
        with self._changed:
            self._done_step = step_id
            for key in [key for key in self._waiting if key[0] <= step_id]:
                del self._waiting[key]

    def close(self) -> None:
        """The stream has ended: whoever waits is told."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
