"""A step and its outcome, as columns: what the worker's protobuf code fills and reads.

Shapes: R = rows of the step, C = block copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.sampling import SamplingParameters, TokenLogprobs


@dataclass(frozen=True, slots=True)
class NewSequence:
    """A sequence that takes a slot.

    Attributes:
        slot: Which.
        token_ids: int64; prompt, then what was generated before a preemption or restart.
        prompt_length: Leading ids that are prompt.
        computed_length: Leading ids whose KV lies in `blocks` already.
        blocks: int64; table so far.
        sampling: How ids are chosen.
        adapter: Name of an adapter, or None.
    """

    slot: int
    token_ids: npt.NDArray[np.int64]
    prompt_length: int
    computed_length: int
    blocks: npt.NDArray[np.int64]
    sampling: SamplingParameters
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class BlockAppend:
    """Blocks (int64) that a slot's table grows by."""

    slot: int
    blocks: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of a step, a column each [R].

    Attributes:
        slots: int64.
        num_tokens: int64; tokens to compute.
        sample: bool; choose one id after the last computed token.
        prompt_logprobs: bool.
        masked: bool; a mask follows by name.
        has_drafts: bool; explicit draft ids came along.
    """

    slots: npt.NDArray[np.int64]
    num_tokens: npt.NDArray[np.int64]
    sample: npt.NDArray[np.bool_]
    prompt_logprobs: npt.NDArray[np.bool_]
    masked: npt.NDArray[np.bool_]
    has_drafts: npt.NDArray[np.bool_]

    @property
    def count(self) -> int:
        """R."""
        return self.slots.size


@dataclass(frozen=True, slots=True)
class Step:
    """`Step` of the protocol, in the order in which it is applied.

    Attributes:
        block_copies: [C, 3] int64: source, destination, number of tokens.
    """

    step_id: int
    finished_slots: list[int]
    new_sequences: list[NewSequence]
    block_appends: list[BlockAppend]
    block_copies: npt.NDArray[np.int64]
    rows: StepRows
    acknowledged_failure: int | None = None


class Outcome(Enum):
    """How a whole step went; the values are the protocol's."""

    OK = 1
    FAILED = 2
    OUT_OF_MEMORY = 3
    SKIPPED = 4


class RowStatus(IntEnum):
    """How one row went; the values are the protocol's."""

    OK = 1
    NON_FINITE = 2
    FAILED = 3


@dataclass(slots=True)
class Timings:
    """Nanoseconds, as in the protocol; `wait`, `hand_over`, `decode` and `encode` are not the engine's.

    Attributes:
        wait: Idle before the step.
        apply: Slots, tables, copies.
        forward: The model.
        sample: Logits and ids, `mask_wait` included.
        total: From the step's start to its outcome.
        hand_over: From the outcome of the step before to the wait.
        decode: The step's message into columns.
        encode: The outcome of an earlier step into its reply.
        mask_wait: Idle while sampling: a mask had not come.
    """

    wait: int = 0
    apply: int = 0
    forward: int = 0
    sample: int = 0
    total: int = 0
    hand_over: int = 0
    decode: int = 0
    encode: int = 0
    mask_wait: int = 0


@dataclass(slots=True)
class StepOutcome:
    """What a step gave.

    Attributes:
        slots: [R] int64, the rows in the step's order; empty unless the outcome is OK.
        statuses: [R] int64 of `RowStatus`.
        errors: Words of failed rows, by place.
        ids: [R] int64, the sampled id; below 0: none was sampled.
        logprobs: Of sampled ids, by place, where asked for.
        prompt_logprobs: By place: prompt ids with their logprobs, where asked for.
    """

    step_id: int
    outcome: Outcome
    error: str = ""
    slots: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    statuses: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    errors: dict[int, str] = field(default_factory=dict)
    ids: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    logprobs: dict[int, TokenLogprobs] = field(default_factory=dict)
    prompt_logprobs: dict[int, list[tuple[int, TokenLogprobs]]] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)
