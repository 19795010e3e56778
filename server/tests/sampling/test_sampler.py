"""Processors against transformers and arithmetic, logprobs against torch, rows against their batch."""

import numpy as np
import pytest
import torch
from headrace.ops.torch_ops import TorchOpSet
from headrace.sampling import ParameterError, Sampler, SamplingParameters, TokenMask, rank_logprobs
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)

V = 300
CPU = torch.device("cpu")


def new_sampler(slots=16, vocab_size=V):
    return Sampler(slots, vocab_size, CPU, TorchOpSet(CPU, torch.float32))


def bias(pairs):
    return {
        "bias_ids": np.array(list(pairs), np.int64),
        "bias_values": np.array(list(pairs.values()), np.float32),
    }


def run(sampler, logits, slots, indexes=None, masks=None):
    slots = np.array(slots, np.int64)
    indexes = np.zeros(slots.size, np.int64) if indexes is None else np.array(indexes, np.int64)
    return sampler.sample(logits, slots, indexes, masks or {})


def test_processors_equal_transformers_in_combination():
    generator = torch.Generator().manual_seed(1)
    prompt = [5, 9, 9, 20]
    for penalty, pairs, min_tokens in [
        (1.3, {}, 0),
        (0.7, {9: 2.5, 7: -1.0}, 0),
        (1.3, {5: 4.0}, 5),
        (None, {8: 3.0}, 3),
    ]:
        sampler = new_sampler()
        row = SamplingParameters(
            repetition_penalty=None if penalty is None else float(np.float32(penalty)),
            suppressed_ids=np.array([3, 11], np.int64),
            min_tokens=min_tokens,
            **bias(pairs),
        )
        sampler.admit(0, row, np.array(prompt), len(prompt))
        ids = list(prompt)
        for index in range(12):
            logits = torch.randn(1, V, generator=generator) * 2
            chain = LogitsProcessorList()
            if pairs:
                chain.append(SequenceBiasLogitsProcessor([[[k], v] for k, v in pairs.items()]))
            if penalty is not None:
                chain.append(RepetitionPenaltyLogitsProcessor(float(np.float32(penalty))))
            if min_tokens:
                chain.append(MinNewTokensLengthLogitsProcessor(len(prompt), min_tokens, [3, 11]))
            expected = chain(torch.tensor([ids]), logits.clone()).argmax(-1).item()
            result = run(sampler, logits, [0], [index])
            assert result.ids.tolist() == [expected]
            sampler.append(np.array([0]), result.ids)
            ids.append(expected)


def test_frequency_and_presence_by_arithmetic():
    # Output: 4 three times, 6 once; the prompt does not count.
    sampler = new_sampler()
    row = SamplingParameters(frequency_penalty=0.5, presence_penalty=0.25)
    sampler.admit(2, row, np.array([4, 4, 4, 4, 6, 4]), 2)
    sampler.append(np.array([2]), np.array([4]))
    logits = torch.full((1, V), -5.0)
    logits[0, 4] = 3.0  # 3.0 - 4 x 0.5 - 0.25 = 0.75
    logits[0, 6] = 1.5  # 1.5 - 0.5 - 0.25 = 0.75 as well: the lower id wins
    logits[0, 8] = 0.74
    assert run(sampler, logits, [2]).ids.tolist() == [4]
    logits[0, 8] = 0.76
    assert run(sampler, logits, [2]).ids.tolist() == [8]
    logits[0, 6] = 1.53
    assert run(sampler, logits, [2]).ids.tolist() == [6]


def test_repetition_comes_before_the_additive_penalties():
    sampler = new_sampler()
    row = SamplingParameters(repetition_penalty=2.0, frequency_penalty=1.0)
    sampler.admit(0, row, np.array([1, 4]), 1)
    logits = torch.full((1, V), -9.0)
    logits[0, 4] = 4.0  # 4 / 2 - 1 = 1; the other way round it would be 1.5
    logits[0, 5] = 1.25
    assert run(sampler, logits, [0]).ids.tolist() == [5]


def test_preemption_restores_the_history():
    row = SamplingParameters(repetition_penalty=1.5, frequency_penalty=0.7, presence_penalty=0.3)
    straight, resumed = new_sampler(), new_sampler()
    straight.admit(0, row, np.array([1, 2, 3]), 3)
    ids = [1, 2, 3]
    generator = torch.Generator().manual_seed(2)
    for index in range(20):
        logits = torch.randn(1, V, generator=generator)
        expected = run(straight, logits, [0], [index]).ids
        resumed.admit(5, row, np.array(ids), 3)
        assert run(resumed, logits, [5], [index]).ids.tolist() == expected.tolist()
        resumed.release(5)
        straight.append(np.array([0]), expected)
        ids.append(int(expected[0]))


def test_slot_reuse_forgets_the_past():
    sampler = new_sampler()
    row = SamplingParameters(presence_penalty=2.0)
    sampler.admit(0, row, np.array([1, 7]), 1)
    sampler.release(0)
    sampler.admit(0, row, np.array([1]), 1)
    logits = torch.zeros(1, V)
    logits[0, 7] = 1.0
    assert run(sampler, logits, [0]).ids.tolist() == [7]


def test_greedy_takes_the_lowest_of_equals():
    sampler = new_sampler()
    logits = torch.zeros(2, V)
    logits[0, [17, 99]] = 1.0
    sampler.admit(1, SamplingParameters(**bias({50: 1.0, 40: 1.0})), np.array([1]), 1)
    assert run(sampler, logits, [0, 1]).ids.tolist() == [17, 40]


def mixed_rows(count):
    return [
        SamplingParameters(
            do_sample=n % 3 != 0,
            temperature=0.7 + 0.1 * (n % 4),
            top_k=[None, 5, 80][n % 3],
            top_p=[None, 0.9][n % 2],
            min_p=[None, None, 0.02][n % 3],
            typical_p=[None, None, None, 0.9][n % 4],
            repetition_penalty=[None, 1.2][n % 2],
            frequency_penalty=[None, None, 0.4][n % 3],
            seed=n * 7919,
            logprobs=n % 2 == 0,
            top_n=n % 5,
            **bias({n: 0.5} if n % 4 == 1 else {}),
        )
        for n in range(count)
    ]


def test_a_row_alone_gives_the_bits_it_gives_in_sixteen():
    rows = mixed_rows(16)
    generator = torch.Generator().manual_seed(3)
    together = new_sampler(vocab_size=2000)
    alone = [new_sampler(vocab_size=2000) for _ in rows]
    for slot, row in enumerate(rows):
        together.admit(slot, row, np.array([slot, 3]), 2)
        alone[slot].admit(0, row, np.array([slot, 3]), 2)
    for index in range(10):
        logits = torch.randn(16, 2000, generator=generator) * 2
        result = run(together, logits, list(range(16)), [index] * 16)
        for slot in range(16):
            one = run(alone[slot], logits[slot : slot + 1].clone(), [0], [index])
            assert one.ids[0] == result.ids[slot]
            assert one.logprobs.get(0) == result.logprobs.get(slot)
            alone[slot].append(np.array([0]), one.ids)
        together.append(np.arange(16), result.ids)


def test_logprobs_are_the_log_softmax_of_the_models_logits():
    sampler = new_sampler()
    row = SamplingParameters(
        do_sample=True, temperature=3.0, top_k=4, seed=1, top_n=6, logprobs=True, **bias({1: 9.0})
    )
    sampler.admit(0, row, np.array([1]), 1)
    logits = torch.randn(1, V, generator=torch.Generator().manual_seed(4))
    result = run(sampler, logits, [0])
    expected = torch.log_softmax(logits[0], -1)
    reported = result.logprobs[0]
    assert reported.logprob == pytest.approx(expected[result.ids[0]].item(), abs=1e-6)
    values, ids = expected.topk(6)
    assert reported.top_ids == ids.tolist()
    assert reported.top_logprobs == pytest.approx(values.tolist(), abs=1e-6)


def test_top_n_is_exact_and_breaks_ties_by_the_lower_id():
    logits = torch.zeros(2, V)
    logits[0, 200] = 1.0
    logits[1, [9, 250, 30]] = 2.0
    ranked = rank_logprobs(logits, logits.logsumexp(-1), torch.tensor([0, 0]), np.array([4, 2]))
    assert ranked[0].top_ids == [200, 0, 1, 2]
    assert ranked[1].top_ids == [9, 30]
    assert len(ranked[0].top_logprobs) == 4


def test_ranks_are_places_in_the_order_of_the_list():
    generator = torch.Generator().manual_seed(3)
    # Many ties: 300 logits of nine values.
    logits = torch.randint(0, 9, (40, V), generator=generator).to(torch.float32)
    ids = torch.randint(0, V, (40,), generator=generator)
    every = rank_logprobs(logits, logits.logsumexp(-1), ids, np.full(40, V), with_ranks=True)
    few = rank_logprobs(logits, logits.logsumexp(-1), ids, np.full(40, 3), with_ranks=True)
    for row, token in enumerate(ids.tolist()):
        order = sorted(range(V), key=lambda i, row=row: (-logits[row, i].item(), i))
        assert every[row].top_ids == order
        assert every[row].rank == few[row].rank == 1 + order.index(token)


def test_a_rank_agrees_with_the_list_where_rounding_makes_logprobs_equal():
    logits = torch.full((1, V), -1e4)
    # Two logits apart by less than a logprob near -1e4 can tell.
    logits[0, 7], logits[0, 90] = -1e4 + 1.0, torch.tensor(-1e4 + 1.0).nextafter(torch.tensor(0.0))
    logits[0, 3] = 1e4
    ranked = [
        rank_logprobs(
            logits, logits.logsumexp(-1), torch.tensor([token]), np.array([3]), with_ranks=True
        )[0]
        for token in (7, 90)
    ]
    for token, one in zip((7, 90), ranked, strict=True):
        assert one.top_ids[one.rank - 1] == token


def test_logprobs_stay_finite():
    logits = torch.zeros(1, V)
    logits[0, 0], logits[0, 1] = 3e38, -3e38
    ranked = rank_logprobs(logits, logits.logsumexp(-1), torch.tensor([1]), np.array([V]))[0]
    assert np.isfinite([ranked.logprob, *ranked.top_logprobs]).all()
    assert max(ranked.top_logprobs) <= 0


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_non_finite_logits_are_flagged_and_harm_no_other_row(value):
    sampler = new_sampler()
    rows = mixed_rows(4)
    for slot, row in enumerate(rows):
        sampler.admit(slot, row, np.array([1]), 1)
    logits = torch.randn(4, V, generator=torch.Generator().manual_seed(5))
    clean = run(sampler, logits, [0, 1, 2, 3])
    logits[1, 33] = value
    result = run(sampler, logits, [0, 1, 2, 3])
    assert result.non_finite.tolist() == [False, True, False, False]
    assert [result.ids[n] for n in (0, 2, 3)] == [clean.ids[n] for n in (0, 2, 3)]
    assert 1 not in result.logprobs


def test_masks_of_each_kind():
    sampler = new_sampler()
    logits = torch.arange(V, dtype=torch.float32).repeat(3, 1)
    bits = np.zeros(320, np.uint8)
    bits[[4, 77, 260]] = 1
    masks = {
        0: TokenMask.from_bitset(np.packbits(bits, bitorder="little").tobytes()),
        1: TokenMask.from_ids("allow", np.array([2, 150], np.int64)),
        2: TokenMask.from_ids("deny", np.array([V - 1, V - 2], np.int64)),
    }
    assert run(sampler, logits, [0, 1, 2], masks=masks).ids.tolist() == [260, 150, V - 3]


def test_a_mask_that_allows_nothing_or_names_a_strange_id_fails_its_row():
    sampler = new_sampler()
    logits = torch.zeros(3, V)
    masks = {
        0: TokenMask.from_bitset(b"\0\0\0\0"),
        1: TokenMask.from_ids("allow", np.array([V], np.int64)),
    }
    result = run(sampler, logits, [0, 1, 2], masks=masks)
    assert set(result.errors) == {0, 1}
    assert "no id" in result.errors[0]
    assert "outside the vocabulary" in result.errors[1]
    assert result.ids[2] == 0


def test_suppressed_until_min_tokens():
    sampler = new_sampler()
    row = SamplingParameters(suppressed_ids=np.array([0], np.int64), min_tokens=2)
    sampler.admit(0, row, np.array([1]), 1)
    logits = torch.zeros(1, V)
    logits[0, 0] = 5.0
    assert [run(sampler, logits, [0], [n]).ids[0] for n in range(4)] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": -0.1}, "min_p"),
        ({"typical_p": float("nan")}, "typical_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"frequency_penalty": 2.5}, "frequency_penalty"),
        ({"presence_penalty": float("-inf")}, "presence_penalty"),
        ({"top_n": V + 1}, "top_n"),
        ({"prompt_top_n": V + 1}, "prompt_top_n"),
        (bias({V: 1.0}), "logit_bias"),
        (bias({1: float("nan")}), "logit_bias"),
        ({"suppressed_ids": np.array([V], np.int64)}, "suppressed_token_ids"),
    ],
)
def test_bad_parameters_are_named(fields, words):
    with pytest.raises(ParameterError, match=words):
        SamplingParameters(**fields).check(V)


def test_an_overflowing_penalty_stays_finite():
    sampler = new_sampler()
    row = SamplingParameters(do_sample=True, repetition_penalty=1e-38, seed=3)
    row.check(V)
    sampler.admit(0, row, np.array([5]), 1)
    logits = torch.full((1, V), 9.0)
    result = run(sampler, logits, [0])
    assert not result.non_finite[0]
    assert result.ids.tolist() == [5]
