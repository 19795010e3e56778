"""Allowed ids and bad words against transformers, across preemption, and together with masks."""

import numpy as np
import pytest
import torch
from headrace.ops.torch_ops import TorchOpSet
from headrace.sampling import ParameterError, Sampler, SamplingParameters, TokenMask
from transformers.generation.logits_process import (
    NoBadWordsLogitsProcessor,
    PrefixConstrainedLogitsProcessor,
)

# Few ids, so that words of several ids come up by themselves.
V = 12
CPU = torch.device("cpu")
WORDS = [[3], [4, 5], [5, 5], [1, 2, 1], [2, 1, 2, 6], [7, 7, 7]]
# An id that no word has: the rule looks at output ids alone, transformers' at the prompt's too.
PROMPT = [0, 11]


def new_sampler(slots=4):
    return Sampler(slots, V, CPU, TorchOpSet(CPU, torch.float32))


def words_of(listed):
    return tuple(np.array(word, np.int64) for word in listed)


def sample(sampler, logits, slot, index, masks=None):
    return sampler.sample(logits, np.array([slot]), np.array([index]), masks or {})


@pytest.mark.parametrize("seed", range(4))
def test_bad_words_equal_transformers_straight_and_after_every_preemption(seed):
    generator = torch.Generator().manual_seed(seed)
    parameters = SamplingParameters(bad_words=words_of(WORDS))
    parameters.check(V)
    oracle = NoBadWordsLogitsProcessor(WORDS)
    straight, resumed = new_sampler(), new_sampler()
    straight.admit(1, parameters, np.array(PROMPT), len(PROMPT))
    ids = list(PROMPT)
    forbidden = set()
    for index in range(500):
        logits = torch.randn(1, V, generator=generator)
        logits[0, [1, 2, 4, 5, 6, 7]] += 1.5
        expected = oracle(torch.tensor([ids]), logits.clone()).argmax(-1).item()
        best = logits.argmax(-1).item()
        if best != expected:
            forbidden.add(next(n for n, w in enumerate(WORDS) if [*ids, best][-len(w) :] == w))
        result = sample(straight, logits, 1, index)
        resumed.admit(2, parameters, np.array(ids), len(PROMPT))
        assert sample(resumed, logits, 2, index).ids.tolist() == result.ids.tolist() == [expected]
        resumed.release(2)
        straight.append(np.array([1]), result.ids)
        ids.append(expected)
    assert {0, 1, 2} < forbidden, "words of one, two and more ids would have come without the rule"


def test_prompt_ids_do_not_begin_a_bad_word():
    sampler = new_sampler()
    row = SamplingParameters(bad_words=words_of([[4, 5]]))
    sampler.admit(0, row, np.array([1, 4]), 2)
    logits = torch.zeros(1, V)
    logits[0, 5] = 1.0
    assert sample(sampler, logits, 0, 0).ids.tolist() == [5]
    sampler.append(np.array([0]), np.array([4]))
    assert sample(sampler, logits, 0, 1).ids.tolist() == [0]


@pytest.mark.parametrize("do_sample", [False, True])
def test_nothing_but_allowed_ids_is_sampled(do_sample):
    allowed = [2, 5, 9]
    row = SamplingParameters(
        do_sample=do_sample,
        temperature=2.0 if do_sample else None,
        repetition_penalty=1.7,
        seed=5,
        allowed_ids=np.array(allowed, np.int64),
        bias_ids=np.array([3], np.int64),
        bias_values=np.array([100.0], np.float32),
    )
    sampler = new_sampler()
    sampler.admit(0, row, np.array(PROMPT), len(PROMPT))
    oracle = PrefixConstrainedLogitsProcessor(lambda _batch, _ids: allowed, 1)
    generator = torch.Generator().manual_seed(1)
    seen = set()
    for index in range(60):
        logits = torch.randn(1, V, generator=generator)
        result = sample(sampler, logits, 0, index)
        possible = oracle(torch.tensor([PROMPT]), logits.clone()) > -torch.inf
        assert bool(possible[0, result.ids[0]])
        seen.add(int(result.ids[0]))
        sampler.append(np.array([0]), result.ids)
    assert seen == set(allowed)


def test_greedy_takes_the_best_of_the_allowed_ids():
    oracle = PrefixConstrainedLogitsProcessor(lambda _batch, _ids: [1, 8], 1)
    sampler = new_sampler()
    row = SamplingParameters(allowed_ids=np.array([8, 1], np.int64))
    sampler.admit(0, row, np.array([1]), 1)
    generator = torch.Generator().manual_seed(2)
    for index in range(20):
        logits = torch.randn(1, V, generator=generator)
        expected = oracle(torch.tensor([[1]]), logits.clone()).argmax(-1).item()
        assert sample(sampler, logits, 0, index).ids.tolist() == [expected]


def test_a_mask_bad_words_and_allowed_ids_all_count():
    sampler = new_sampler()
    row = SamplingParameters(allowed_ids=np.array([1, 2, 3], np.int64), bad_words=words_of([[1]]))
    sampler.admit(0, row, np.array([1]), 1)
    logits = torch.zeros(1, V)
    mask = {0: TokenMask.from_ids("deny", np.array([2], np.int64))}
    assert sample(sampler, logits, 0, 0, mask).ids.tolist() == [3]
    mask = {0: TokenMask.from_ids("deny", np.array([2, 3], np.int64))}
    assert "no id" in sample(sampler, logits, 0, 0, mask).errors[0]


def test_rows_beside_one_with_rules_are_left_alone():
    sampler = new_sampler()
    row = SamplingParameters(allowed_ids=np.array([1], np.int64), bad_words=words_of([[5]]))
    sampler.admit(2, row, np.array([1]), 1)
    logits = torch.zeros(3, V)
    logits[:, 5] = 1.0
    result = sampler.sample(logits, np.array([0, 2, 1]), np.zeros(3, np.int64), {})
    assert result.ids.tolist() == [5, 1, 5]
    assert bool((logits[:, 5] == 1.0).all()), "the model's logits stay as they are"
    sampler.release(2)
    sampler.admit(2, SamplingParameters(), np.array([1]), 1)
    assert sample(sampler, logits[:1], 2, 0).ids.tolist() == [5]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"allowed_ids": np.array([V], np.int64)}, "allowed_token_ids"),
        ({"bad_words": words_of([[1], [2, V]])}, "bad_words"),
        ({"bad_words": words_of([[]])}, "bad_words"),
    ],
)
def test_bad_rules_are_named(fields, words):
    with pytest.raises(ParameterError, match=words):
        SamplingParameters(**fields).check(V)
