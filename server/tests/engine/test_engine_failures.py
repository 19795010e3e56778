"""What a bad value, a non-finite state and a failed forward do, and what they leave alone."""

import pytest
import torch
from headrace.engine import (
    CALLED_OFF,
    Engine,
    GroupFailure,
    NoMasks,
    Outcome,
    PlacedMask,
    RowStatus,
    StreamEnded,
)
from headrace.sampling import TokenMask
from tiny_model import VOCAB, Driver, limits, sequence

PROMPT = [7, 30, 2, 55, 9]

BAD_SEQUENCES = {
    "id": (sequence(1, [1, VOCAB], range(4)), "outside the vocabulary"),
    "block": (sequence(1, PROMPT, [3, 64]), "outside the pool"),
    "too many blocks": (sequence(1, PROMPT, range(25)), "more than the longest"),
    "too long": (sequence(1, [1] * 97, range(24)), "max_total_tokens"),
    "no prompt": (sequence(1, PROMPT, range(4), prompt_length=0), "max_total_tokens 96"),
    "prompt past the ids": (sequence(1, PROMPT, range(4), prompt_length=6), "max_total_tokens 96"),
    "computed past the ids": (sequence(1, PROMPT, range(4), computed=6), "computed_length"),
    "computed past the blocks": (sequence(1, PROMPT, [0], computed=5), "computed_length"),
    "nan": (sequence(1, PROMPT, range(4), temperature=float("nan")), "temperature"),
    "adapter": (sequence(1, PROMPT, range(4), adapter="lora"), "adapters"),
}


@pytest.mark.parametrize("name", BAD_SEQUENCES)
def test_a_bad_sequence_fails_alone_and_until_it_is_finished(name):
    new, words = BAD_SEQUENCES[name]
    driver = Driver()
    outcome = driver.step([(0, 5, True), (1, 5, True)], [sequence(0, PROMPT, range(30, 40)), new])
    assert outcome.outcome is Outcome.OK
    assert outcome.statuses.tolist() == [RowStatus.OK, RowStatus.FAILED]
    assert words in outcome.errors[1]
    assert outcome.ids[0] == driver.model.greedy(PROMPT, 1)[0]
    again = driver.step([(1, 1, True)])
    assert again.errors[0] == outcome.errors[1]
    fresh = driver.step([(1, 5, True)], [sequence(1, PROMPT, range(10))], finished=[1])
    assert fresh.ids[0] == driver.model.greedy(PROMPT, 1)[0]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ((9, 1, True), "holds no sequence"),
        ((3, 1, True), "holds no sequence"),
        ((1, 0, True), "num_tokens is 0"),
        ((1, 6, True), "5 are left"),
        ((1, 3, True), "sampling at 3 of 5"),
    ],
)
def test_a_bad_row_fails_alone(row, words):
    driver = Driver()
    new = [sequence(0, PROMPT, range(30, 40)), sequence(1, PROMPT, range(10))]
    outcome = driver.step([(0, 5, True), row], new)
    assert outcome.statuses.tolist() == [RowStatus.OK, RowStatus.FAILED]
    assert words in outcome.errors[1]
    assert driver.decode([0], 5)[0] == driver.model.greedy(PROMPT, 6)[1:]


def test_a_short_table_and_a_full_sequence_fail_their_rows():
    driver = Driver()
    outcome = driver.step([(0, 5, True)], [sequence(0, PROMPT, [0])])
    assert "1 blocks do not hold 5 tokens" in outcome.errors[0]
    full = sequence(1, [1] * 96, range(24), computed=60)
    outcome = driver.step([(1, 36, True)], [full])
    assert "max_total_tokens" in outcome.errors[0]


def test_drafts_two_rows_of_a_slot_and_an_occupied_slot():
    driver = Driver()
    new = [sequence(n, PROMPT, range(10 * n, 10 * n + 10)) for n in range(3)]
    outcome = driver.step(
        [(0, 5, True), (1, 2, False), (1, 3, True), (2, 5, True)], new, drafts=[0]
    )
    assert outcome.statuses.tolist() == [3, 3, 3, 1]
    assert "draft" in outcome.errors[0]
    assert "two rows" in outcome.errors[1]
    assert "two rows" in outcome.errors[2]
    outcome = driver.step([(2, 1, True)], [sequence(2, PROMPT, range(40, 50))])
    assert "occupied" in outcome.errors[0]


def test_block_appends_that_are_wrong_fail_their_slot():
    driver = Driver()
    driver.step(new=[sequence(0, PROMPT, [0, 1]), sequence(1, PROMPT, [2, 3])])
    outcome = driver.step([(0, 5, True), (1, 5, True)], appends=[(0, [64]), (1, range(23))])
    assert "outside the pool" in outcome.errors[0]
    assert "more than the longest" in outcome.errors[1]


def test_a_wrong_copy_fails_the_owner_or_the_step():
    driver = Driver()
    driver.step(new=[sequence(0, PROMPT, [0, 1]), sequence(1, PROMPT, [2, 3])])
    outcome = driver.step([(0, 5, True), (1, 5, True)], copies=[(99, 1, 2)])
    assert outcome.statuses.tolist() == [RowStatus.FAILED, RowStatus.OK]
    assert "block copy 99 -> 1" in outcome.errors[0]
    outcome = driver.step([(1, 1, True)], copies=[(0, 50, 5)])
    assert outcome.outcome is Outcome.FAILED
    assert "block copy" in outcome.error


def test_a_non_finite_state_ends_its_row_only():
    driver = Driver()
    driver.model.broken = {30}
    healthy = [1, 2, 3]
    new = [sequence(0, PROMPT, range(10)), sequence(1, healthy, range(10, 20))]
    # In the first row the broken token is the second of a chunk that samples nothing.
    outcome = driver.step([(0, 4, False), (1, 3, True)], new)
    assert outcome.statuses.tolist() == [RowStatus.NON_FINITE, RowStatus.OK]
    assert outcome.ids[1] == driver.model.greedy(healthy, 1)[0]
    outcome = driver.step([(0, 1, True), (1, 1, True)])
    assert outcome.statuses.tolist() == [RowStatus.FAILED, RowStatus.OK]
    assert "NaN" in outcome.errors[0]


def test_non_finite_logits_end_the_row():
    driver = Driver()
    driver.model.projection[17] = torch.inf
    outcome = driver.step([(0, 5, True)], [sequence(0, PROMPT, range(10))])
    assert outcome.statuses.tolist() == [RowStatus.NON_FINITE]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("first line\nsecond line"), Outcome.FAILED),
        (MemoryError(), Outcome.OUT_OF_MEMORY),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"
            ),
            Outcome.OUT_OF_MEMORY,
        ),
        (torch.OutOfMemoryError("CUDA out of memory"), Outcome.OUT_OF_MEMORY),
    ],
)
def test_a_failed_step_applies_changes_and_advances_nothing(error, outcome):
    driver = Driver()
    driver.step([(0, 5, True)], [sequence(0, PROMPT, range(10))])
    driver.model.fail_next = error
    new = sequence(1, [1, 2, 3], range(20, 30))
    failed = driver.step([(0, 1, True), (1, 3, True)], [new])
    assert failed.outcome is outcome
    assert failed.slots.size == 0
    assert "\n" not in failed.error
    assert type(error).__name__ in failed.error
    # Behind it, until the failure is named: changes count, nothing is computed.
    third = sequence(2, [4, 5], range(30, 40))
    forwards = driver.model.forwards
    skipped = driver.step([(0, 1, True)], [third])
    assert skipped.outcome is Outcome.SKIPPED
    assert driver.step([(0, 1, True)], acknowledged=99).outcome is Outcome.SKIPPED
    assert driver.model.forwards == forwards
    retried = driver.step([(0, 1, True), (1, 3, True), (2, 2, True)], acknowledged=2)
    assert retried.outcome is Outcome.OK
    assert retried.ids.tolist() == [
        driver.model.greedy(PROMPT, 2)[1],
        driver.model.greedy([1, 2, 3], 1)[0],
        driver.model.greedy([4, 5], 1)[0],
    ]


def test_too_many_tokens_fail_the_step():
    driver = Driver(max_batch_tokens=8)
    outcome = driver.step([(0, 9, True)], [sequence(0, [1] * 9, range(10))])
    assert outcome.outcome is Outcome.FAILED
    assert "max_batch_tokens is 8" in outcome.error


class Masks:
    def __init__(self, items):
        self.items = items

    def wait(self, step_id, slots):
        return {slot: self.items[slot] for slot in slots}


def test_masks_constrain_call_off_and_fail():
    driver = Driver()
    new = [sequence(n, PROMPT, range(10 * n, 10 * n + 10)) for n in range(5)]
    items = {
        0: PlacedMask(TokenMask.from_ids("allow", torch.tensor([44]).numpy()), 0),
        1: CALLED_OFF,
        2: "mask 5 is not known (any more)",
        3: PlacedMask(TokenMask.from_ids("allow", torch.tensor([44]).numpy()), 7),
    }
    rows = [(n, 5, True, False, n != 4) for n in range(5)]
    outcome = driver.step(rows, new, masks=Masks(items))
    expected = driver.model.greedy(PROMPT, 1)[0]
    assert outcome.statuses.tolist() == [1, 1, 3, 3, 1]
    assert outcome.ids[[0, 1, 4]].tolist() == [44, -1, expected]
    assert "not known" in outcome.errors[2]
    assert "output 7" in outcome.errors[3]
    # The row that was called off has computed its tokens and sampled none: nothing is left to do.
    assert "0 are left" in driver.step([(1, 1, True)]).errors[0]


def test_a_mask_that_never_comes_fails_its_row_without_a_source():
    driver = Driver()
    new = sequence(0, PROMPT, range(10))
    outcome = driver.step([(0, 5, True, False, True)], [new], masks=NoMasks())
    assert outcome.statuses.tolist() == [RowStatus.FAILED]


def test_a_stream_that_ends_while_waiting_advances_nothing():
    class Gone:
        def wait(self, step_id, slots):
            raise StreamEnded

    driver = Driver()
    with pytest.raises(StreamEnded):
        driver.step([(0, 5, True, False, True)], [sequence(0, PROMPT, range(10))], masks=Gone())
    assert driver.engine.table.computed[0] == 0


class TwoRanks:
    """Rank 0 of two, with the other rank's ballots scripted."""

    rank, world_size, device = 0, 2, torch.device("cpu")

    def __init__(self, ballots):
        self.ballots = ballots

    def vote(self, ok):
        return ok and (self.ballots.pop(0) if self.ballots else True)

    def broadcast_ids(self, ids):
        return ids


def test_ranks_vote_before_the_first_collective():
    driver = Driver(group=TwoRanks([False, True, False, False]))
    new = [sequence(0, PROMPT, range(10))]
    first = driver.step([(0, 5, True)], new)
    assert first.outcome is Outcome.FAILED
    assert "another rank" in first.error
    assert driver.model.forwards == 0
    second = driver.step([(0, 5, True)], acknowledged=1)
    assert second.outcome is Outcome.OUT_OF_MEMORY
    assert driver.step([(0, 5, True)], acknowledged=2).outcome is Outcome.OK


def test_a_later_failure_on_one_of_several_ranks_is_the_groups():
    driver = Driver(group=TwoRanks([]))
    driver.model.fail_next = ValueError("broken")
    with pytest.raises(GroupFailure, match="broken"):
        driver.step([(0, 5, True)], [sequence(0, PROMPT, range(10))])


def test_an_engine_has_the_blocks_it_was_told():
    driver = Driver()
    assert isinstance(driver.engine, Engine)
    assert driver.engine.kv_cache_bytes == 64 * limits().block_size * 16 * 2 * 4
