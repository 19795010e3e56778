"""The slot table: ids, lengths and block tables of the running sequences, and the checks of a step.

Bad values fail the sequence they belong to and nothing else. Columns are numpy arrays, so a decode step is
checked and gathered without a loop over its rows.

Shapes: S = slots, L = longest sequence, B = blocks of the longest sequence, R = rows of a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.sampling import ParameterError

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.engine.limits import EngineLimits
    from headrace.engine.step import BlockAppend, NewSequence, StepRows


class SlotTable:
    """Sequences by slot.

    Attributes:
        ids: [S, L] int32, prompt and output; only the first `length` of a row mean anything.
        length: [S] ids known.
        prompt_length: [S] leading ids that are prompt.
        computed: [S] leading ids that have their KV.
        tables: [S, B] int32, blocks; only the first `table_length` of a row mean anything.
        table_length: [S] blocks.
        occupied: [S] holds a sequence.
        usable: [S] holds a sequence that has not failed.
        failures: Words of the sequences that have, by slot.
    """

    def __init__(self, limits: EngineLimits, num_blocks: int, vocab_size: int) -> None:
        """An empty table over a pool of `num_blocks`."""
        slots = limits.max_sequences
        self._limits = limits
        self._num_blocks = num_blocks
        self._vocab_size = vocab_size
        self.ids = np.zeros((slots, limits.max_total_tokens), np.int32)
        self.length = np.zeros(slots, np.int64)
        self.prompt_length = np.zeros(slots, np.int64)
        self.computed = np.zeros(slots, np.int64)
        self.tables = np.zeros((slots, limits.blocks_of_longest), np.int32)
        self.table_length = np.zeros(slots, np.int64)
        self.usable = np.zeros(slots, np.bool_)
        self.occupied = np.zeros(slots, np.bool_)
        self.failures: dict[int, str] = {}
        self._mark = np.zeros(slots, np.int64)

    def finish(self, slots: list[int]) -> list[int]:
        """Frees slots; returns those that exist (others are ignored: nothing can depend on them)."""
        known = [slot for slot in slots if 0 <= slot < self._limits.max_sequences]
        for slot in known:
            self.occupied[slot] = False
            self.usable[slot] = False
            self.failures.pop(slot, None)
        return known

    def fail(self, slot: int, words: str) -> None:
        """Marks a slot: it answers with these words until it is finished."""
        self.usable[slot] = False
        self.failures.setdefault(slot, words)

    def add(self, new: NewSequence) -> bool:
        """Fills a slot; returns whether the sequence is sound. A slot out of range is left alone."""
        slot = new.slot
        if not 0 <= slot < self._limits.max_sequences:
            return False
        if self.occupied[slot]:
            self.fail(slot, f"slot {slot} was given to a new sequence while occupied")
            return False
        self.occupied[slot] = True
        words = self._fault(new)
        if words is not None:
            self.length[slot] = self.computed[slot] = self.table_length[slot] = 0
            self.fail(slot, words)
            return False
        self.usable[slot] = True
        count, blocks = new.token_ids.size, new.blocks.size
        self.ids[slot, :count] = new.token_ids
        self.length[slot] = count
        self.prompt_length[slot] = new.prompt_length
        self.computed[slot] = new.computed_length
        self.tables[slot, :blocks] = new.blocks
        self.table_length[slot] = blocks
        return True

    def _fault(self, new: NewSequence) -> str | None:
        count, limits = new.token_ids.size, self._limits
        if new.adapter is not None:
            return f"adapters are not supported: {new.adapter!r}"
        if not 1 <= new.prompt_length <= count <= limits.max_total_tokens:
            return (
                f"{count} ids, {new.prompt_length} of them prompt, do not fit "
                f"max_total_tokens {limits.max_total_tokens}"
            )
        if int(new.token_ids.min()) < 0 or int(new.token_ids.max()) >= self._vocab_size:
            return f"a token id is outside the vocabulary of {self._vocab_size}"
        if not 0 <= new.computed_length <= min(count, new.blocks.size * limits.block_size):
            return (
                f"computed_length {new.computed_length} does not fit {count} ids "
                f"in {new.blocks.size} blocks"
            )
        if new.blocks.size > limits.blocks_of_longest:
            return f"{new.blocks.size} blocks are more than the longest sequence has"
        if not self._known_blocks(new.blocks):
            return f"a block is outside the pool of {self._num_blocks}"
        try:
            new.sampling.check(self._vocab_size)
        except ParameterError as error:
            return str(error)
        return None

    def _known_blocks(self, blocks: npt.NDArray[np.int64]) -> bool:
        return blocks.size == 0 or 0 <= int(blocks.min()) <= int(blocks.max()) < self._num_blocks

    def append_blocks(self, append: BlockAppend) -> None:
        """Extends a slot's table, or fails the slot."""
        slot, blocks = append.slot, append.blocks
        if not 0 <= slot < self._limits.max_sequences or not self.usable[slot]:
            return
        start = int(self.table_length[slot])
        end = start + blocks.size
        if end > self._limits.blocks_of_longest:
            self.fail(slot, f"{end} blocks are more than the longest sequence has")
        elif not self._known_blocks(blocks):
            self.fail(slot, f"a block is outside the pool of {self._num_blocks}")
        else:
            self.tables[slot, start:end] = blocks
            self.table_length[slot] = end

    def check_copies(
        self, copies: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], str | None]:
        """Splits off bad block copies.

        Args:
            copies: [C, 3].

        Returns:
            The good ones, and words if a bad one belongs to no sequence (the step fails then). A bad copy
            whose destination is in a slot's table fails that slot.
        """
        blocks = copies[:, :2]
        good = (
            (blocks >= 0).all(1)
            & (blocks < self._num_blocks).all(1)
            & (copies[:, 2] >= 0)
            & (copies[:, 2] <= self._limits.block_size)
        )
        if good.all():
            return copies, None
        words = None
        for source, destination, count in copies[~good].tolist():
            text = f"block copy {source} -> {destination} of {count} tokens is out of range"
            owners = [
                slot
                for slot in np.flatnonzero(self.usable).tolist()
                if destination in self.tables[slot, : self.table_length[slot]]
            ]
            for slot in owners:
                self.fail(slot, text)
            if not owners:
                words = text
        return copies[good], words

    def check_rows(self, rows: StepRows) -> dict[int, str]:
        """Words for the rows that cannot be computed, by place; their slots fail."""
        slots, limits = rows.slots, self._limits
        if rows.count == 0:
            return {}
        in_range = (slots >= 0) & (slots < limits.max_sequences)
        safe = slots if in_range.all() else np.where(in_range, slots, 0)
        ends = self.computed[safe] + rows.num_tokens
        length = self.length[safe]
        order = np.arange(rows.count)
        self._mark[slots[in_range]] = order[in_range]
        good = (
            in_range
            & self.usable[safe]
            & (self._mark[safe] == order)
            & (rows.num_tokens >= 1)
            & (ends <= length)
            & (ends <= self.table_length[safe] * limits.block_size)
            & ~(rows.sample & ((ends != length) | (length >= limits.max_total_tokens)))
            & ~rows.has_drafts
        )
        if good.all():
            return {}
        faults = {place: self._row_fault(rows, place) for place in np.flatnonzero(~good).tolist()}
        # The last of several rows of one slot looks good by itself.
        for place in np.flatnonzero(good).tolist():
            if int(slots[place]) in self.failures:
                faults[place] = self.failures[int(slots[place])]
        return faults

    def _row_fault(self, rows: StepRows, place: int) -> str:
        """Finds the words for one bad row and fails its slot."""
        slot, count = int(rows.slots[place]), int(rows.num_tokens[place])
        if not 0 <= slot < self._limits.max_sequences or not self.occupied[slot]:
            return f"slot {slot} holds no sequence"
        if slot in self.failures:
            return self.failures[slot]
        end = int(self.computed[slot]) + count
        length = int(self.length[slot])
        if (rows.slots == slot).sum() > 1:
            words = f"slot {slot} has two rows in one step"
        elif rows.has_drafts[place]:
            words = "draft tokens are not supported"
        elif count < 1:
            words = f"num_tokens is {count}"
        elif end > length:
            words = f"{count} tokens asked for, {length - int(self.computed[slot])} are left"
        elif end > int(self.table_length[slot]) * self._limits.block_size:
            words = f"{int(self.table_length[slot])} blocks do not hold {end} tokens"
        elif length >= self._limits.max_total_tokens:
            words = f"the sequence has {length} tokens already, max_total_tokens"
        else:
            words = f"sampling at {end} of {length} known tokens"
        self.fail(slot, words)
        return words

    def advance(
        self,
        slots: npt.NDArray[np.int64],
        num_tokens: npt.NDArray[np.int64],
        sampled_slots: npt.NDArray[np.int64],
        sampled_ids: npt.NDArray[np.int64],
    ) -> None:
        """Lengths and ids after a step that counts."""
        self.computed[slots] += num_tokens
        self.ids[sampled_slots, self.length[sampled_slots]] = sampled_ids
        self.length[sampled_slots] += 1
