"""One rank's engine: applies a step, runs the forward, samples, and only then advances.

A step has three stages. What can fail for reasons of this rank alone (checks, building tensors) comes first,
and the ranks of a group vote on it before the first collective. A failure after that is a failed step on a
single rank and a `GroupFailure` on one of several. Lengths advance last, so a failed step leaves them as they
were.

Shapes: R = rows of the step, G = rows that are computed, T = tokens of the step, V = vocabulary.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from headrace.engine.batch import build_batch
from headrace.engine.failures import is_out_of_memory, one_line
from headrace.engine.mask_source import CALLED_OFF, StreamEnded
from headrace.engine.prompt_logprobs import prompt_logprobs, prompt_targets
from headrace.engine.slots import SlotTable
from headrace.engine.step import Outcome, RowStatus, StepOutcome
from headrace.sampling import Sampler

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.distributed import ProcessGroup
    from headrace.engine.limits import EngineLimits
    from headrace.engine.mask_source import MaskSource
    from headrace.engine.step import Step, StepRows
    from headrace.models.causal_model import CausalModel, StepBatch
    from headrace.ops.attention.backend import LayerKv
    from headrace.ops.op_set import OpSet
    from headrace.sampling import TokenMask

# What rank 0 tells the others about a row, where it is not an id.
_NOTHING = -1
_NON_FINITE = -2
_FAILED = -3

_NON_FINITE_WORDS = "the computation gave NaN or infinity"


class GroupFailure(Exception):  # noqa: N818 - it ends the group, and is named for that
    """A rank of several failed after collectives began; the group cannot go on."""


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A step that passed its checks.

    Attributes:
        good: [G] places of the rows to compute.
        faults: Words of the others, by place.
        batch: None if there is nothing to compute.
        row_starts: [G + 1].
    """

    good: npt.NDArray[np.int64]
    faults: dict[int, str]
    batch: StepBatch | None
    row_starts: npt.NDArray[np.int64]


class Engine:
    """Model, KV cache, slots and sampling state of one rank. Used by one thread."""

    def __init__(
        self,
        model: CausalModel,
        ops: OpSet,
        group: ProcessGroup,
        limits: EngineLimits,
        num_blocks: int,
    ) -> None:
        """Allocates the KV cache.

        Args:
            model: Loaded.
            ops: The model's op set.
            group: The model's ranks.
            limits: Sizes.
            num_blocks: Blocks of this rank's pool.
        """
        self.model = model
        self.limits = limits
        self.num_blocks = num_blocks
        self.device = group.device
        self._ops = ops
        self._group = group
        self.kv = allocate_kv(model, ops, limits.block_size, num_blocks, poison=False)
        self._failed_step: int | None = None
        self._open_tables(num_blocks)

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the pool on this rank."""
        return sum(layer.num_bytes for layer in self.kv)

    def open(self, num_blocks: int) -> None:
        """Starts a stream: slots are empty, and so are the blocks.

        Args:
            num_blocks: The group's: at most this rank's.
        """
        if not 1 <= num_blocks <= self.num_blocks:
            raise ValueError(f"{num_blocks} blocks asked for, this rank has {self.num_blocks}")
        self._failed_step = None
        self._open_tables(num_blocks)
        if self.limits.poison_fresh_blocks:
            # The layout is the backend's own: only it can fill, and only when it allocates.
            self.kv = []
            self.kv = allocate_kv(
                self.model, self._ops, self.limits.block_size, self.num_blocks, poison=True
            )

    def _open_tables(self, num_blocks: int) -> None:
        vocab_size = self.model.config.vocab_size
        self.table = SlotTable(self.limits, num_blocks, vocab_size)
        self.sampler = Sampler(self.limits.max_sequences, vocab_size, self.device, self._ops)

    def run(self, step: Step, masks: MaskSource) -> StepOutcome:
        """Runs one step.

        Raises:
            GroupFailure: One of several ranks failed after its first collective.
            Exception: What `masks.wait` raises when the stream ends; nothing has advanced then.
        """
        started = time.monotonic_ns()
        if self._failed_step is not None and step.acknowledged_failure == self._failed_step:
            self._failed_step = None
        outcome = self._run(step, masks, started)
        outcome.timings.total = time.monotonic_ns() - started
        if outcome.outcome in (Outcome.FAILED, Outcome.OUT_OF_MEMORY):
            self._failed_step = step.step_id
            if outcome.outcome is Outcome.OUT_OF_MEMORY:
                self._free()
        return outcome

    def _free(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _run(self, step: Step, masks: MaskSource, started: int) -> StepOutcome:
        fault: Exception | None = None
        prepared: _Prepared | None = None
        try:
            words = self._apply(step)
            if self._failed_step is not None:
                # Every rank has seen the same failure, so no vote is missed.
                words_skipped = f"step {self._failed_step} failed and is not acknowledged"
                return StepOutcome(step.step_id, Outcome.SKIPPED, words_skipped)
            if words is not None:
                raise ValueError(words)
            prepared = self._prepare(step)
        except Exception as error:
            if self._failed_step is not None and self._group.world_size > 1:
                # The others skip this step without a vote.
                raise GroupFailure(one_line(error)) from error
            fault = error
        if not self._vote(ok=fault is None):
            return self._refused(step, fault)
        if prepared is None:
            raise GroupFailure("the vote passed a step that this rank could not prepare")
        applied = time.monotonic_ns()
        outcome = StepOutcome(step.step_id, Outcome.OK)
        outcome.timings.apply = applied - started
        try:
            with torch.inference_mode():
                self._compute(step, prepared, masks, outcome, applied)
        except (StreamEnded, GroupFailure):
            raise
        except Exception as error:
            if self._group.world_size > 1:
                raise GroupFailure(one_line(error)) from error
            kind = Outcome.OUT_OF_MEMORY if is_out_of_memory(error) else Outcome.FAILED
            return StepOutcome(step.step_id, kind, one_line(error), timings=outcome.timings)
        return outcome

    def _vote(self, *, ok: bool) -> bool:
        try:
            return self._group.vote(ok)
        except Exception as error:
            # The other rank is gone; there is nobody to agree with.
            raise GroupFailure(one_line(error)) from error

    def _refused(self, step: Step, fault: Exception | None) -> StepOutcome:
        """The step did not pass its vote: every rank gives the same outcome."""
        had_memory = self._vote(ok=fault is None or not is_out_of_memory(fault))
        kind = Outcome.FAILED if had_memory else Outcome.OUT_OF_MEMORY
        words = "another rank could not prepare the step" if fault is None else one_line(fault)
        return StepOutcome(step.step_id, kind, words)

    def _apply(self, step: Step) -> str | None:
        """Slot and table changes, in the protocol's order; words if one belongs to no sequence."""
        for slot in self.table.finish(step.finished_slots):
            self.sampler.release(slot)
        words = None
        for new in step.new_sequences:
            if self.table.add(new):
                self.sampler.admit(new.slot, new.sampling, new.token_ids, new.prompt_length)
            elif not 0 <= new.slot < self.limits.max_sequences:
                words = f"slot {new.slot} of a new sequence does not exist"
        for append in step.block_appends:
            self.table.append_blocks(append)
        if step.block_copies.size:
            copies, bad = self.table.check_copies(step.block_copies)
            words = bad or words
            if copies.size:
                tensor = torch.from_numpy(copies.astype(np.int32)).to(self.device)
                for layer in self.kv:
                    self._ops.attention.copy_blocks(layer, tensor)
        return words

    def _prepare(self, step: Step) -> _Prepared:
        rows = step.rows
        faults = self.table.check_rows(rows)
        every = np.arange(rows.count)
        good = every if not faults else np.delete(every, list(faults))
        num_tokens = rows.num_tokens[good]
        total = int(num_tokens.sum())
        if total > self.limits.max_batch_tokens:
            raise ValueError(f"{total} tokens, max_batch_tokens is {self.limits.max_batch_tokens}")
        if good.size == 0:
            return _Prepared(good, faults, None, np.zeros(1, np.int64))
        batch, row_starts = build_batch(
            self.table, rows.slots[good], num_tokens, self.limits.block_size, self.device
        )
        return _Prepared(good, faults, batch, row_starts)

    def _compute(
        self,
        step: Step,
        prepared: _Prepared,
        masks: MaskSource,
        outcome: StepOutcome,
        applied: int,
    ) -> None:
        """Forward, sampling, and the advance of lengths; fills `outcome`."""
        rows = step.rows
        # What is known of each row: an id, or one of the negative codes.
        codes = np.full(rows.count, _NOTHING, np.int64)
        codes[list(prepared.faults)] = _FAILED
        words = dict(prepared.faults)
        if prepared.batch is not None:
            hidden = self.model.forward(prepared.batch, self.kv)
            codes[self._non_finite_rows(hidden, prepared)] = _NON_FINITE
            self._report_prompt(rows, prepared, hidden, codes, outcome)
            outcome.timings.forward = time.monotonic_ns() - applied
            sampling = time.monotonic_ns()
            self._sample(step, prepared, hidden, masks, codes, words, outcome)
            outcome.timings.sample = time.monotonic_ns() - sampling
        self._finish(rows, codes, words, outcome)

    def _non_finite_rows(self, hidden: torch.Tensor, prepared: _Prepared) -> npt.NDArray[np.int64]:
        """Places of the rows with a computed token whose last hidden state is not finite."""
        flags = self._ops.non_finite(hidden).cpu().numpy()
        if not flags.any():
            return np.empty(0, np.int64)
        return prepared.good[np.logical_or.reduceat(flags, prepared.row_starts[:-1])]

    def _report_prompt(
        self,
        rows: StepRows,
        prepared: _Prepared,
        hidden: torch.Tensor,
        codes: npt.NDArray[np.int64],
        outcome: StepOutcome,
    ) -> None:
        if not rows.prompt_logprobs.any():
            return
        slots = rows.slots[prepared.good].tolist()
        top_n = np.array([self.sampler.parameters(slot).prompt_top_n for slot in slots], np.int64)
        targets = prompt_targets(self.table, rows, prepared.good, prepared.row_starts, top_n)
        if targets is None:
            return
        outcome.prompt_logprobs, broken = prompt_logprobs(self.model, self._ops, hidden, targets)
        codes[list(broken)] = _NON_FINITE

    def _sample(
        self,
        step: Step,
        prepared: _Prepared,
        hidden: torch.Tensor,
        masks: MaskSource,
        codes: npt.NDArray[np.int64],
        words: dict[int, str],
        outcome: StepOutcome,
    ) -> None:
        """Logits of the rows that sample, and one id each, on rank 0; the others are told."""
        rows = step.rows
        sampling = rows.sample[prepared.good]
        places = prepared.good[sampling]
        if places.size:
            last = prepared.row_starts[1:][sampling] - 1
            if last.size == hidden.shape[0]:
                logits = self.model.logits(hidden)
            else:
                logits = self.model.logits(hidden[torch.from_numpy(last).to(self.device)])
            if logits is not None:
                self._choose(step, places, logits, masks, codes, words, outcome)
        if self._group.world_size > 1:
            shared = torch.from_numpy(codes).to(self.device)
            codes[:] = self._group.broadcast_ids(shared).cpu().numpy()

    def _choose(
        self,
        step: Step,
        places: npt.NDArray[np.int64],
        logits: torch.Tensor,
        masks: MaskSource,
        codes: npt.NDArray[np.int64],
        words: dict[int, str],
        outcome: StepOutcome,
    ) -> None:
        rows = step.rows
        slots = rows.slots[places]
        indexes = self.table.length[slots] - self.table.prompt_length[slots]
        fitting: dict[int, TokenMask] = {}
        silent: set[int] = set()
        masked = np.flatnonzero(rows.masked[places]).tolist()
        if masked:
            idle = time.monotonic_ns()
            arrived = masks.wait(step.step_id, slots[masked].tolist())
            outcome.timings.mask_wait = time.monotonic_ns() - idle
            for n in masked:
                mask = arrived[int(slots[n])]
                if isinstance(mask, str):
                    silent.add(n)
                    if mask != CALLED_OFF:
                        words[int(places[n])] = mask
                elif mask.position != int(indexes[n]):
                    silent.add(n)
                    words[int(places[n])] = (
                        f"a mask for output {mask.position} came for output {int(indexes[n])}"
                    )
                else:
                    fitting[n] = mask.mask
        result = self.sampler.sample(logits, slots, indexes, fitting)
        for n, place in enumerate(places.tolist()):
            if n in result.errors and n not in silent:
                words[place] = result.errors[n]
            if codes[place] != _NOTHING:
                continue
            if result.non_finite[n]:
                codes[place] = _NON_FINITE
            elif place in words:
                codes[place] = _FAILED
            elif n not in silent:
                codes[place] = result.ids[n]
        outcome.logprobs = {
            int(places[n]): logprobs
            for n, logprobs in result.logprobs.items()
            if codes[places[n]] >= 0
        }

    def _finish(
        self,
        rows: StepRows,
        codes: npt.NDArray[np.int64],
        words: dict[int, str],
        outcome: StepOutcome,
    ) -> None:
        """Advances what counts, marks what failed, and fills the columns of the outcome."""
        statuses = np.full(rows.count, RowStatus.OK, np.int64)
        alive = codes >= _NOTHING
        slots = rows.slots
        if alive.all():
            sampled = codes >= 0
            self.table.advance(slots, rows.num_tokens, slots[sampled], codes[sampled])
            self.sampler.append(slots[sampled], codes[sampled])
        else:
            statuses[codes == _NON_FINITE] = RowStatus.NON_FINITE
            statuses[codes == _FAILED] = RowStatus.FAILED
            for place in np.flatnonzero(~alive).tolist():
                failed = codes[place] == _FAILED
                text = words.get(place, "rank 0 failed it") if failed else _NON_FINITE_WORDS
                outcome.errors[place] = text
                outcome.prompt_logprobs.pop(place, None)
                slot = int(slots[place])
                if 0 <= slot < self.limits.max_sequences and self.table.occupied[slot]:
                    self.table.fail(slot, text)
            sampled = codes >= 0
            self.table.advance(slots[alive], rows.num_tokens[alive], slots[sampled], codes[sampled])
            self.sampler.append(slots[sampled], codes[sampled])
        outcome.slots, outcome.statuses, outcome.ids = slots, statuses, codes


def allocate_kv(
    model: CausalModel, ops: OpSet, block_size: int, num_blocks: int, *, poison: bool
) -> list[LayerKv]:
    """One `LayerKv` a layer."""
    config = model.config
    return [
        ops.attention.allocate(
            num_blocks, model.kv_heads_on_rank, config.head_dim, block_size, poison
        )
        for _ in range(config.num_layers)
    ]
