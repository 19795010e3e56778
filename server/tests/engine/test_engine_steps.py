"""Slots, chunks, preemption and per-row results of the engine, against a dense computation."""

import numpy as np
import pytest
import torch
from headrace.engine import Outcome, RowStatus
from tiny_model import VOCAB, Driver, sequence

PROMPT = [7, 30, 2, 55, 9, 9, 41, 3, 18]


def test_greedy_equals_the_dense_oracle():
    driver = Driver()
    first = driver.step([(0, 9, True)], [sequence(0, PROMPT, range(10))])
    ids = [int(first.ids[0]), *driver.decode([0], 20)[0]]
    assert first.outcome is Outcome.OK
    assert ids == driver.model.greedy(PROMPT, 21)


@pytest.mark.parametrize("chunk", [1, 2, 4, 5, 9])
def test_chunks_and_mixed_rows_change_nothing(chunk):
    driver = Driver()
    other = [11, 12, 13]
    driver.step([(5, 3, True)], [sequence(5, other, range(20, 30)), sequence(2, PROMPT, range(10))])
    ids = []
    for start in range(0, len(PROMPT), chunk):
        count = min(chunk, len(PROMPT) - start)
        is_last = start + count == len(PROMPT)
        outcome = driver.step([(5, 1, True), (2, count, is_last)])
        assert outcome.statuses.tolist() == [RowStatus.OK, RowStatus.OK]
        ids.append(int(outcome.ids[1]))
    assert all(token == -1 for token in ids[:-1])
    given = driver.decode([5, 2], 10)
    assert [ids[-1], *given[2]] == driver.model.greedy(PROMPT, 11)
    assert given[5] == driver.model.greedy(other, 1 + len(ids) + 10)[-10:]


def test_preemption_and_recompute_give_the_same_ids():
    driver = Driver()
    first = driver.step([(0, 9, True)], [sequence(0, PROMPT, range(10))])
    before = [int(first.ids[0]), *driver.decode([0], 4)[0]]
    # Gone, and back in another slot with other blocks; two of its old blocks are still right.
    known = PROMPT + before
    new = sequence(3, known, [0, 1, *range(40, 50)], computed=8, prompt_length=len(PROMPT))
    outcome = driver.step([(3, len(known) - 8, True)], [new], finished=[0])
    after = [int(outcome.ids[0]), *driver.decode([3], 6)[3]]
    assert before + after == driver.model.greedy(PROMPT, 12)


def test_seeded_sampling_survives_preemption():
    def run(interrupt):
        driver = Driver()
        how = {"do_sample": True, "temperature": 1.4, "seed": 99, "presence_penalty": 0.6}
        outcome = driver.step([(0, 9, True)], [sequence(0, PROMPT, range(10), **how)])
        ids = [int(outcome.ids[0])]
        for step in range(15):
            if step == interrupt:
                known = PROMPT + ids
                new = sequence(1, known, range(20, 40), prompt_length=len(PROMPT), **how)
                outcome = driver.step([(1, len(known), True)], [new], finished=[0])
            else:
                slot = 0 if step < interrupt else 1
                outcome = driver.step([(slot, 1, True)])
            ids.append(int(outcome.ids[0]))
        return ids

    assert run(100) == run(3) == run(9)
    assert len(set(run(100))) > 4


def test_block_appends_and_copies():
    driver = Driver()
    driver.step([(0, 9, True)], [sequence(0, PROMPT, [0, 1, 2])])
    # Shares two blocks and the first token of the third, copied into a block of its own.
    shared = sequence(1, PROMPT, [0, 1, 30], computed=8)
    outcome = driver.step([(1, 1, True)], [shared], copies=[(2, 30, 1)])
    assert outcome.ids[0] == driver.model.greedy(PROMPT, 1)[0]
    given = []
    for _ in range(8):
        outcome = driver.step([(1, 1, True)], appends=[(1, [31 + len(given)])])
        given.append(int(outcome.ids[0]))
    assert given == driver.model.greedy(PROMPT, 9)[1:]


def test_sixteen_at_once_equal_alone():
    driver = Driver(num_blocks=400, max_sequences=16, max_batch_tokens=256)
    prompts = [[(3 * n + k) % VOCAB for k in range(1 + n % 7)] for n in range(16)]
    driver.step(
        [(n, len(p), True) for n, p in enumerate(prompts)],
        [sequence(n, p, range(20 * n, 20 * n + 20)) for n, p in enumerate(prompts)],
    )
    given = driver.decode(list(range(16)), 12)
    for n, prompt in enumerate(prompts):
        assert given[n] == driver.model.greedy(prompt, 13)[1:]


@pytest.mark.parametrize("chunks", [[40], [7, 33], [39, 1]])
def test_prompt_logprobs_in_chunks(chunks):
    driver = Driver()
    prompt = [(7 * k + 1) % VOCAB for k in range(40)]
    new = [sequence(0, prompt, range(12), top_n=1, prompt_top_n=3, logprobs=True)]
    reported = []
    done = 0
    for count in chunks:
        done += count
        outcome = driver.step([(0, count, done == 40, True)], new)
        new = []
        reported += outcome.prompt_logprobs.get(0, [])
    expected = torch.log_softmax(driver.model.dense_logits(torch.tensor(prompt)), -1)
    assert [token for token, _ in reported] == prompt[1:]
    for position, (token, logprobs) in enumerate(reported):
        assert logprobs.logprob == pytest.approx(expected[position, token].item(), abs=2e-5)
        values, ids = expected[position].topk(3)
        assert logprobs.top_ids == ids.tolist()
        assert logprobs.top_logprobs == pytest.approx(values.tolist(), abs=2e-5)
        assert logprobs.rank == 1 + int((expected[position] > expected[position, token]).sum())
    # Never the logits of the whole prompt.
    assert driver.model.most_logits <= 32
    final = outcome.logprobs[0]
    assert len(final.top_ids) == 1
    assert final.rank is None
    assert final.logprob == pytest.approx(expected[39, outcome.ids[0]].item(), abs=2e-5)


def test_prompt_logprobs_stop_at_the_prompt():
    driver = Driver()
    ids = [*PROMPT, 1, 2, 3]
    new = sequence(0, ids, range(10), prompt_length=len(PROMPT))
    outcome = driver.step([(0, len(ids), True, True)], [new])
    assert [token for token, _ in outcome.prompt_logprobs[0]] == PROMPT[1:]


def test_open_empties_slots_and_poisons_blocks():
    driver = Driver()
    driver.step([(0, 9, True)], [sequence(0, PROMPT, range(10))])
    driver.engine.open(8)
    assert torch.isnan(driver.engine.kv[0].keys).all()
    outcome = driver.step([(0, 1, True)])
    assert outcome.errors == {0: "slot 0 holds no sequence"}
    outcome = driver.step([(0, 9, True)], [sequence(0, PROMPT, range(3))])
    assert outcome.ids[0] == driver.model.greedy(PROMPT, 1)[0]
    outcome = driver.step([(1, 9, True)], [sequence(1, PROMPT, [3, 4, 8])])
    assert "outside the pool of 8" in outcome.errors[0]
    with pytest.raises(ValueError, match="65 blocks"):
        driver.engine.open(65)


def test_an_empty_step_is_fine():
    outcome = Driver().step()
    assert outcome.outcome is Outcome.OK
    assert outcome.slots.size == 0


def test_columns_are_in_the_steps_order():
    driver = Driver()
    driver.step(
        [(6, 2, True), (1, 3, True)],
        [sequence(1, [4, 5, 6], range(5)), sequence(6, [8, 9], range(5, 10))],
    )
    outcome = driver.step([(6, 1, True), (1, 1, True)])
    assert outcome.slots.tolist() == [6, 1]
    assert outcome.ids.tolist() == [
        driver.model.greedy([8, 9], 2)[1],
        driver.model.greedy([4, 5, 6], 2)[1],
    ]
    assert np.all(outcome.statuses == RowStatus.OK)
