"""Logprobs of a prompt, its likeliest ids and the ranks of its own: the demo model against transformers."""

import numpy as np
import pytest
import torch
from demo_checkpoint import DEMO_VOCAB, PROMPT
from headrace.distributed import ProcessGroup
from headrace.engine import Engine, EngineLimits, NewSequence, NoMasks, Step, StepRows
from headrace.sampling import SamplingParameters
from paged_sequences import random_ids
from tiny_checkpoints import oracle_logits

TOLERANCE = 1e-3
"""As for the logits (`test_gguf_models.py`)."""

BLOCK = 16
TOP = 8


@pytest.fixture(scope="module")
def ids():
    """Text first, then noise: likely ids and ids of every rank."""
    return torch.cat([torch.tensor(PROMPT), random_ids(120, seed=3, vocab=DEMO_VOCAB)])


@pytest.fixture(scope="module")
def expected(demo_oracle, ids):
    """transformers' log-softmax at every place: [T, V]."""
    with torch.inference_mode():
        return torch.log_softmax(oracle_logits(demo_oracle, ids), -1)


def scored(model, ops, ids, chunks, top_n):
    """What the engine tells of the prompt, computed chunk by chunk."""
    limits = EngineLimits(
        block_size=BLOCK,
        max_batch_tokens=256,
        max_sequences=2,
        max_total_tokens=256,
        poison_fresh_blocks=True,
    )
    engine = Engine(model, ops, ProcessGroup(), limits, 20)
    engine.open(20)
    sequence = NewSequence(
        slot=0,
        token_ids=ids.numpy(),
        prompt_length=len(ids),
        computed_length=0,
        # Not in order, and none of them the first.
        blocks=np.arange(12, 12 - (len(ids) // BLOCK + 1), -1, dtype=np.int64),
        sampling=SamplingParameters(prompt_top_n=top_n, temperature=0.5, frequency_penalty=1.0),
        adapter=None,
    )
    told, done = [], 0
    for step_id, count in enumerate(chunks, 1):
        done += count
        rows = [[0], [count], [done == len(ids)], [True], [False], [False]]
        slots, tokens, *flags = (np.array(column) for column in rows)
        outcome = engine.run(
            Step(
                step_id=step_id,
                finished_slots=[],
                new_sequences=[sequence] if step_id == 1 else [],
                block_appends=[],
                block_copies=np.zeros((0, 3), np.int64),
                rows=StepRows(slots, tokens, *flags),
                acknowledged_failure=None,
            ),
            NoMasks(),
        )
        assert outcome.errors == {}
        told += outcome.prompt_logprobs.get(0, [])
    assert done == len(ids)
    return told


@pytest.mark.parametrize("chunks", [[125], [5, 48, 1, 1, 70], [64, 61]], ids=str)
def test_prompt_logprobs_equal_transformers(demo_model, ops, ids, expected, chunks):
    told = scored(demo_model, ops, ids, chunks, TOP)
    assert [token for token, _ in told] == ids[1:].tolist()
    ranks = []
    for place, (token, logprobs) in zip(expected, told, strict=False):
        own = place[token]
        # Raw: neither temperature nor penalties count.
        assert logprobs.logprob == pytest.approx(own.item(), abs=TOLERANCE)
        values, _ = place.topk(TOP)
        assert logprobs.top_logprobs == pytest.approx(values.tolist(), abs=TOLERANCE)
        # The ids at these values: another order is one of near ties only.
        assert len(set(logprobs.top_ids)) == TOP
        assert place[logprobs.top_ids].tolist() == pytest.approx(values.tolist(), abs=TOLERANCE)
        assert logprobs.top_logprobs == sorted(logprobs.top_logprobs, reverse=True)
        above = int((place > own + 2 * TOLERANCE).sum())
        near = int((place > own - 2 * TOLERANCE).sum())
        assert 1 + above <= logprobs.rank <= near
        ranks.append(logprobs.rank)
    # The text is likely, the noise is not: ranks of one figure and of thousands.
    assert min(ranks) == 1
    assert max(ranks) > 10_000


def test_without_likeliest_ids_the_logprob_and_rank_are_the_same(demo_model, ops, ids, expected):
    with_top = scored(demo_model, ops, ids, [125], TOP)
    without = scored(demo_model, ops, ids, [125], 0)
    for (_, first), (_, second) in zip(with_top, without, strict=True):
        assert (first.logprob, first.rank) == (second.logprob, second.rank)
        assert second.top_ids == []
