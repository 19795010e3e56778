"""Between the protocol's messages and the engine's columns.

Shapes: R = rows of the step, C = block copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.engine import (
    BlockAppend,
    EngineLimits,
    NewSequence,
    Outcome,
    RowStatus,
    Step,
    StepOutcome,
    StepRows,
)
from headrace.pb import worker_pb2 as pb
from headrace.sampling import SamplingParameters, TokenLogprobs, TokenMask

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

_OUTCOMES = {
    Outcome.OK: pb.StepReply.OUTCOME_OK,
    Outcome.FAILED: pb.StepReply.OUTCOME_FAILED,
    Outcome.OUT_OF_MEMORY: pb.StepReply.OUTCOME_OUT_OF_MEMORY,
    Outcome.SKIPPED: pb.StepReply.OUTCOME_SKIPPED,
}
_OK = int(RowStatus.OK)


def limits_of(request: pb.PrepareRequest) -> EngineLimits:
    """The sizes of a `PrepareRequest`."""
    return EngineLimits(
        block_size=request.block_size,
        max_batch_tokens=request.max_batch_tokens,
        max_sequences=request.max_sequences,
        max_total_tokens=request.max_total_tokens,
        kv_cache_bytes=request.kv_cache_bytes if request.HasField("kv_cache_bytes") else None,
        required_blocks=request.required_blocks if request.HasField("required_blocks") else None,
        poison_fresh_blocks=request.poison_fresh_blocks,
    )


def step_of(message: pb.Step) -> Step:
    """A step's columns; nothing is checked here but what a column cannot hold."""
    acknowledged = message.HasField("acknowledged_failure")
    return Step(
        step_id=message.step_id,
        finished_slots=list(message.finished_slots),
        new_sequences=[_new_sequence(new) for new in message.new_sequences],
        block_appends=[
            BlockAppend(append.slot, _integers(append.blocks)) for append in message.block_appends
        ],
        block_copies=np.array(
            [(c.source, c.destination, c.num_tokens) for c in message.block_copies], np.int64
        ).reshape(-1, 3),
        rows=_rows(message.rows),
        acknowledged_failure=message.acknowledged_failure if acknowledged else None,
    )


def _rows(rows: Iterable[pb.Row]) -> StepRows:
    """One pass over the rows: this runs for every token that is generated."""
    table = np.array(
        [
            (
                row.slot,
                row.num_tokens,
                row.sample,
                row.prompt_logprobs,
                row.masked,
                len(row.draft_token_ids),
            )
            for row in rows
        ],
        np.int64,
    ).reshape(-1, 6)
    columns = np.ascontiguousarray(table.T)
    flags = columns[2:] != 0
    return StepRows(columns[0], columns[1], flags[0], flags[1], flags[2], flags[3])


def _integers(values: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.array(list(values), np.int64)


def _new_sequence(new: pb.NewSequence) -> NewSequence:
    return NewSequence(
        slot=new.slot,
        token_ids=_integers(new.token_ids),
        prompt_length=new.prompt_length,
        computed_length=new.computed_length,
        blocks=_integers(new.blocks),
        sampling=sampling_of(new.sampling),
        adapter=new.adapter if new.HasField("adapter") else None,
    )


def sampling_of(message: pb.SamplingParams) -> SamplingParameters:
    """Sampling parameters; of several biases for one id the last counts."""

    def number(name: str) -> float | None:
        return getattr(message, name) if message.HasField(name) else None

    bias = {entry.token_id: entry.bias for entry in message.logit_bias}
    return SamplingParameters(
        do_sample=message.do_sample,
        temperature=number("temperature"),
        top_k=message.top_k if message.HasField("top_k") else None,
        top_p=number("top_p"),
        min_p=number("min_p"),
        typical_p=number("typical_p"),
        repetition_penalty=number("repetition_penalty"),
        frequency_penalty=number("frequency_penalty"),
        presence_penalty=number("presence_penalty"),
        seed=message.seed,
        top_n=message.top_n,
        logprobs=message.logprobs,
        bias_ids=_integers(bias.keys()),
        bias_values=np.array(list(bias.values()), np.float32),
        suppressed_ids=_integers(message.suppressed_token_ids),
        min_tokens=message.min_tokens,
        allowed_ids=_integers(message.allowed_token_ids),
        bad_words=tuple(_integers(word.ids) for word in message.bad_words),
        prompt_top_n=message.prompt_top_n,
    )


def mask_of(message: pb.Mask) -> TokenMask | int | str:
    """A mask, the id of one sent before, or words if the message has no kind."""
    kind = message.WhichOneof("kind")
    if kind == "bitset":
        return TokenMask.from_bitset(message.bitset)
    if kind == "allow":
        return TokenMask.from_ids("allow", _integers(message.allow.ids))
    if kind == "deny":
        return TokenMask.from_ids("deny", _integers(message.deny.ids))
    if kind == "same_as":
        return message.same_as
    return f"the mask of step {message.step_id}, slot {message.slot} has no kind"


def reply_of(outcome: StepOutcome, *, with_rows: bool) -> pb.StepReply:
    """The reply to a step.

    Args:
        outcome: What the engine gave.
        with_rows: Whether this rank reports rows (rank 0 does).
    """
    timings = outcome.timings
    reply = pb.StepReply(
        step_id=outcome.step_id,
        outcome=_OUTCOMES[outcome.outcome],
        error=outcome.error,
        timings=pb.Timings(
            wait_ns=timings.wait,
            apply_ns=timings.apply,
            forward_ns=timings.forward,
            sample_ns=timings.sample,
            total_ns=timings.total,
            hand_over_ns=timings.hand_over,
            decode_ns=timings.decode,
            encode_ns=timings.encode,
            mask_wait_ns=timings.mask_wait,
        ),
    )
    if not with_rows:
        return reply
    columns = zip(
        outcome.slots.tolist(), outcome.statuses.tolist(), outcome.ids.tolist(), strict=True
    )
    add = reply.rows.add
    for place, (slot, status, token) in enumerate(columns):
        row = add(slot=slot, status=status)
        if status != _OK:
            row.error = outcome.errors.get(place, "")
            continue
        if token >= 0:
            _fill_token(row.tokens.add(id=token), outcome.logprobs.get(place))
        for prompt_token, logprobs in outcome.prompt_logprobs.get(place, ()):
            _fill_token(row.prompt_logprobs.add(id=prompt_token), logprobs)
    return reply


def _fill_token(token: pb.SampledToken, logprobs: TokenLogprobs | None) -> None:
    if logprobs is None:
        return
    token.logprob = logprobs.logprob
    if logprobs.rank is not None:
        token.rank = logprobs.rank
    for top_id, value in zip(logprobs.top_ids, logprobs.top_logprobs, strict=True):
        token.top.add(id=top_id, logprob=value)
