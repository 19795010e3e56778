"""Which ids each slot has seen, for the penalties.

Dense rows are allocated for the whole slot table the first time a sequence asks for a penalty (zero pages
until touched), and a slot's row is cleared when the next such sequence takes the slot.

Shapes: S = slots, V = vocabulary, R = rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    import numpy.typing as npt


class History:
    """Seen ids (prompt and output) and output counts of the slots that have penalties."""

    def __init__(self, max_sequences: int, vocab_size: int, device: torch.device) -> None:
        """An empty table for `max_sequences` slots."""
        self._shape = (max_sequences, vocab_size)
        self._device = device
        self._seen: torch.Tensor | None = None
        self._counts: torch.Tensor | None = None

    def admit(self, slot: int, ids: npt.NDArray[np.integer], prompt_length: int) -> None:
        """Starts a slot: `ids` are its prompt and whatever was generated before a preemption."""
        seen, counts = self.tables()
        seen[slot].zero_()
        counts[slot].zero_()
        all_ids = torch.from_numpy(ids.astype(np.int64)).to(self._device)
        seen[slot].index_fill_(0, all_ids, True)  # noqa: FBT003 - torch's own signature
        output, times = np.unique(ids[prompt_length:].astype(np.int64), return_counts=True)
        counts[slot].index_copy_(
            0,
            torch.from_numpy(output).to(self._device),
            torch.from_numpy(times.astype(np.int32)).to(self._device),
        )

    def append(self, slots: torch.Tensor, ids: torch.Tensor) -> None:
        """Adds one output id to each of the slots.

        Args:
            slots: [R] int64, each slot at most once.
            ids: [R] int64.
        """
        seen, counts = self.tables()
        seen[slots, ids] = True
        counts[slots, ids] += 1

    def tables(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Seen [S, V] bool and output counts [S, V] int32."""
        if self._seen is None or self._counts is None:
            self._seen = torch.zeros(self._shape, dtype=torch.bool, device=self._device)
            self._counts = torch.zeros(self._shape, dtype=torch.int32, device=self._device)
        return self._seen, self._counts
