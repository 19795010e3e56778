"""The sampler: the slot table's sampling state, and one choice a row for a whole batch.

Shapes: S = slots, R = rows of the step that sample, V = vocabulary, N = rows that are not plain greedy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from headrace.sampling import filters, processors
from headrace.sampling.bad_words import BadWords
from headrace.sampling.history import SlotHistory
from headrace.sampling.masks import MaskError, TokenMask
from headrace.sampling.parameters import SamplingParameters
from headrace.sampling.philox import PURPOSE_SAMPLE, uniforms
from headrace.sampling.token_logprobs import TokenLogprobs, rank_logprobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

_GREEDY = SamplingParameters()


class LogitsOps(Protocol):
    """The ops that look at every logit (`headrace.ops.OpSet` has them)."""

    def non_finite(self, x: torch.Tensor) -> torch.Tensor:
        """[R, V] -> [R] bool: whether the row holds a NaN or an infinity."""
        ...

    def argmax_logsumexp(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[R, V] -> ([R] int64 place of the maximum, the lowest on ties; [R] logsumexp)."""
        ...


@dataclass(slots=True)
class SampledRows:
    """One result a row, in the order of the rows given.

    Attributes:
        ids: [R] int64; of no meaning where the row is non-finite or has an error.
        non_finite: [R] bool: the logits held NaN or infinity.
        errors: Words for the rows that could not sample.
        logprobs: For the rows that asked for them.
    """

    ids: npt.NDArray[np.int64]
    non_finite: npt.NDArray[np.bool_]
    errors: dict[int, str] = field(default_factory=dict)
    logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)


class Sampler:
    """Sampling state of every slot, and the choice itself."""

    def __init__(
        self, max_sequences: int, vocab_size: int, device: torch.device, ops: LogitsOps
    ) -> None:
        """An empty table of `max_sequences` slots."""
        self._vocab_size = vocab_size
        self._device = device
        self._ops = ops
        self._parameters = [_GREEDY] * max_sequences
        # Flags of each slot as arrays: a batch of plain greedy rows is recognised in one look.
        self._needs_more = np.zeros(max_sequences, np.bool_)
        self._histories: dict[int, SlotHistory] = {}
        self._bad_words: dict[int, BadWords] = {}

    def admit(
        self,
        slot: int,
        parameters: SamplingParameters,
        ids: npt.NDArray[np.integer],
        prompt_length: int,
    ) -> None:
        """Starts a sequence.

        Args:
            slot: Its slot.
            parameters: Checked by the caller (`SamplingParameters.check`).
            ids: Prompt, then output from before a preemption or restart.
            prompt_length: How many of `ids` are prompt.
        """
        self._parameters[slot] = parameters
        self._needs_more[slot] = (
            parameters.do_sample or parameters.changes_scores or parameters.wants_logprobs
        )
        self._histories.pop(slot, None)
        if parameters.has_penalties:
            self._histories[slot] = SlotHistory(ids, prompt_length)
        self._bad_words.pop(slot, None)
        if parameters.bad_words:
            self._bad_words[slot] = BadWords(parameters.bad_words, ids[prompt_length:])

    def release(self, slot: int) -> None:
        """Forgets a sequence."""
        self._parameters[slot] = _GREEDY
        self._needs_more[slot] = False
        self._histories.pop(slot, None)
        self._bad_words.pop(slot, None)

    def parameters(self, slot: int) -> SamplingParameters:
        """What the slot was admitted with."""
        return self._parameters[slot]

    def append(self, slots: npt.NDArray[np.int64], ids: npt.NDArray[np.int64]) -> None:
        """Records one output id for each slot, once the step is sure to count."""
        if not self._histories and not self._bad_words:
            return
        for slot, token in zip(slots.tolist(), ids.tolist(), strict=True):
            history = self._histories.get(slot)
            if history is not None:
                history.append(token)
            words = self._bad_words.get(slot)
            if words is not None:
                words.append(token)

    def sample(
        self,
        logits: torch.Tensor,
        slots: npt.NDArray[np.int64],
        output_indexes: npt.NDArray[np.int64],
        masks: Mapping[int, TokenMask],
    ) -> SampledRows:
        """Chooses one id a row.

        Args:
            logits: [R, V] float32, the model's; not changed.
            slots: [R], each at most once.
            output_indexes: [R] how many output ids each sequence has so far.
            masks: By place in `slots`.

        Returns:
            One result a row. State is not changed: call `append` once the step counts.
        """
        best, logsumexp = self._ops.argmax_logsumexp(logits)
        result = SampledRows(
            ids=best.cpu().numpy(), non_finite=self._ops.non_finite(logits).cpu().numpy()
        )
        more = self._needs_more[slots]
        if not masks and not more.any():
            return result
        wanted = more & ~result.non_finite
        choosing = [
            row
            for row in range(slots.size)
            if not result.non_finite[row]
            and (row in masks or (wanted[row] and self._chooses(int(slots[row]))))
        ]
        if choosing:
            self._choose(logits, slots, output_indexes, masks, choosing, result)
        self._report_logprobs(logits, logsumexp, slots, result)
        return result

    def _chooses(self, slot: int) -> bool:
        parameters = self._parameters[slot]
        return parameters.do_sample or parameters.changes_scores

    def _choose(
        self,
        logits: torch.Tensor,
        slots: npt.NDArray[np.int64],
        output_indexes: npt.NDArray[np.int64],
        masks: Mapping[int, TokenMask],
        choosing: list[int],
        result: SampledRows,
    ) -> None:
        """Everything but the plain argmax, for the rows `choosing`; fills `result`."""
        rows = [self._parameters[slot] for slot in slots[choosing]]
        scores = logits.to(torch.float32)
        if len(choosing) < slots.size:
            scores = scores[torch.tensor(choosing, device=self._device)]
        elif any(p.changes_scores for p in rows) or masks:
            scores = scores.clone()
        processors.add_bias(scores, rows)
        histories = [self._histories.get(slot) for slot in slots[choosing].tolist()]
        processors.apply_penalties(scores, rows, histories)
        processors.suppress(scores, rows, output_indexes[choosing].tolist())
        processors.allow(scores, rows)
        words = [self._bad_words.get(slot) for slot in slots[choosing].tolist()]
        processors.forbid_words(scores, words)
        self._mask(scores, choosing, masks, result)
        possible = (scores.amax(-1) > -torch.inf).cpu().numpy()
        for place, row in enumerate(choosing):
            if not possible[place]:
                result.errors.setdefault(row, "no id of the vocabulary may be sampled")
        greedy = [n for n, p in enumerate(rows) if possible[n] and not p.do_sample]
        drawing = [n for n, p in enumerate(rows) if possible[n] and p.do_sample]
        places = np.asarray(choosing)
        if greedy:
            best, _ = self._ops.argmax_logsumexp(scores[torch.tensor(greedy, device=self._device)])
            result.ids[places[greedy]] = best.cpu().numpy()
        if drawing:
            drawn_rows = [rows[n] for n in drawing]
            seeds = np.array([p.seed for p in drawn_rows], np.uint64)
            numbers = uniforms(seeds, output_indexes[places[drawing]], PURPOSE_SAMPLE)
            everyone = len(drawing) == len(choosing)
            part = scores if everyone else scores[torch.tensor(drawing, device=self._device)]
            drawn = filters.draw(part, drawn_rows, numbers)
            result.ids[places[drawing]] = drawn.cpu().numpy()

    def _mask(
        self,
        scores: torch.Tensor,
        choosing: list[int],
        masks: Mapping[int, TokenMask],
        result: SampledRows,
    ) -> None:
        for place, row in enumerate(choosing):
            mask = masks.get(row)
            if mask is None:
                continue
            try:
                allowed = mask.allowed(self._vocab_size).to(self._device)
            except MaskError as error:
                result.errors[row] = str(error)
                continue
            scores[place].masked_fill_(~allowed, -torch.inf)

    def _report_logprobs(
        self,
        logits: torch.Tensor,
        logsumexp: torch.Tensor,
        slots: npt.NDArray[np.int64],
        result: SampledRows,
    ) -> None:
        """Logprobs for the rows that ask for them and have an id."""
        asking = [
            row
            for row, slot in enumerate(slots.tolist())
            if self._parameters[slot].wants_logprobs
            and not result.non_finite[row]
            and row not in result.errors
        ]
        if not asking:
            return
        top_n = np.array([self._parameters[slot].top_n for slot in slots[asking]], np.int64)
        index = torch.tensor(asking, device=self._device)
        everyone = len(asking) == slots.size
        part = logits if everyone else logits[index]
        ids = torch.from_numpy(result.ids[asking]).to(self._device)
        ranked = rank_logprobs(part, logsumexp[index], ids, top_n)
        result.logprobs = dict(zip(asking, ranked, strict=True))
