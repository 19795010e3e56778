"""Which ids the filters keep, against transformers' warpers; and the draw against its definition."""

import itertools

import numpy as np
import pytest
import torch
from headrace.sampling import SamplingParameters
from headrace.sampling.filters import draw, kept
from headrace.sampling.ranking import best_scores
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

CHOICES = {
    "temperature": [None, 0.6, 1.7],
    "top_k": [None, 1, 40, 700],
    "top_p": [None, 0.3, 0.92],
    "min_p": [None, 0.05],
    "typical_p": [None, 0.4, 0.95],
}


def transformers_scores(scores, parameters):
    """The order of GenerationMixin._get_logits_processor."""
    chain = LogitsProcessorList()
    if parameters.temperature is not None:
        chain.append(TemperatureLogitsWarper(parameters.temperature))
    if parameters.top_k is not None:
        chain.append(TopKLogitsWarper(parameters.top_k))
    if parameters.top_p is not None:
        chain.append(TopPLogitsWarper(parameters.top_p))
    if parameters.min_p is not None:
        chain.append(MinPLogitsWarper(parameters.min_p))
    if parameters.typical_p is not None:
        chain.append(TypicalLogitsWarper(parameters.typical_p))
    return chain(None, scores.unsqueeze(0))[0]


def combinations():
    for values in itertools.product(*CHOICES.values()):
        yield SamplingParameters(do_sample=True, **dict(zip(CHOICES, values, strict=True)))


def near_ties_differ(ours, theirs, probabilities):
    """Ids kept by one side only; borderline ones carry next to no weight between the two sums."""
    difference = set(ours.tolist()) ^ set(theirs.tolist())
    return [i for i in difference if probabilities[i] > 2e-4]


@pytest.mark.parametrize("vocab_size", [97, 5000])
def test_kept_ids_equal_transformers(vocab_size):
    generator = torch.Generator().manual_seed(7)
    differing = 0
    for parameters in combinations():
        scores = torch.randn(vocab_size, generator=generator) * 3
        expected = torch.nonzero(transformers_scores(scores, parameters) > -torch.inf).flatten()
        ours = kept(scores, parameters, vocab_size)
        probabilities = torch.softmax(scores, -1)
        assert not near_ties_differ(ours, expected, probabilities), parameters
        differing += ours.tolist() != expected.tolist()
    # A border that falls within a float32 rounding error is rare.
    assert differing <= 4


def test_fewer_candidates_decide_the_same_or_say_so():
    generator = torch.Generator().manual_seed(8)
    decided = 0
    for scale, parameters in itertools.product([1.0, 6.0], list(combinations())[::3]):
        if parameters.top_k is None and parameters.top_p is None:
            continue
        scores = torch.randn(5000, generator=generator) * scale
        whole = kept(scores, parameters, 5000)
        for width in (64, 1024, 4096):
            if parameters.top_k is not None and parameters.top_k >= width:
                continue
            some = kept(scores, parameters, width)
            if some is not None:
                decided += 1
                assert some.tolist() == whole.tolist(), parameters
    assert decided > 30


def test_ties_with_the_kth_are_kept():
    scores = torch.zeros(3000)
    scores[7] = 1.0
    parameters = SamplingParameters(do_sample=True, top_k=3)
    # As transformers: everything that equals the third best stays.
    assert kept(scores, parameters, 64) is None
    assert kept(scores, parameters, 3000).numel() == 3000


def test_draw_is_the_inverse_of_the_cumulative_distribution_in_id_order():
    generator = torch.Generator().manual_seed(9)
    scores = torch.randn(1, 2000, generator=generator) * 2
    for parameters in combinations():
        allowed = kept(scores[0], parameters, 2000)
        temperature = parameters.temperature or 1.0
        weights = np.exp(scores[0].double().numpy()[allowed.numpy()] / temperature)
        cumulative = np.cumsum(weights) / weights.sum()
        for number in (0.0, 0.137, 0.5, 0.901, 1 - 2.0**-53):
            expected = allowed[min(np.searchsorted(cumulative, number, "right"), len(allowed) - 1)]
            near = np.abs(cumulative - number).min() < 1e-6
            drawn = draw(scores, [parameters], np.array([number]))[0]
            assert drawn in allowed
            assert near or drawn == expected, parameters


def test_drawn_frequencies_follow_the_distribution():
    scores = torch.tensor([[2.0, 1.0, 0.0, -1.0, -torch.inf]]).repeat(4096, 1)
    parameters = [SamplingParameters(do_sample=True, temperature=0.8)] * 4096
    numbers = (np.arange(4096) + 0.5) / 4096
    counts = np.bincount(draw(scores, parameters, numbers).numpy(), minlength=5) / 4096
    expected = torch.softmax(scores[0] / 0.8, -1).numpy()
    assert np.abs(counts - expected).max() < 1e-3
    assert counts[4] == 0


def test_a_tiny_temperature_is_greedy_and_finite():
    scores = torch.tensor([[1.0, 3.0, 2.999]])
    row = SamplingParameters(do_sample=True, temperature=1e-30)
    assert draw(scores, [row], np.array([0.999])).tolist() == [1]


def test_rows_do_not_depend_on_the_batch():
    generator = torch.Generator().manual_seed(10)
    rows = list(combinations())[::5]
    scores = torch.randn(len(rows), 5000, generator=generator) * 2
    numbers = np.random.default_rng(3).random(len(rows))
    together = draw(scores, rows, numbers).tolist()
    alone = [
        draw(scores[n : n + 1].clone(), rows[n : n + 1], numbers[n : n + 1]).item()
        for n in range(len(rows))
    ]
    order = torch.randperm(len(rows), generator=generator).tolist()
    shuffled = draw(scores[order], [rows[n] for n in order], numbers[order]).tolist()
    assert together == alone
    assert [together[n] for n in order] == shuffled


@pytest.mark.parametrize("vocab_size", [1000, 5003, 49152])
def test_the_torch_operations_used_treat_each_row_alone(vocab_size):
    """The bits of a row must not depend on the rows beside it; a new torch may change that."""
    scores = torch.randn(17, vocab_size, generator=torch.Generator().manual_seed(11)) * 4
    operations = {
        "softmax": lambda x: torch.softmax(x, -1),
        "softmax in float64": lambda x: torch.softmax(x.double(), -1),
        "log_softmax in float64": lambda x: torch.log_softmax(x.double(), -1),
        "cumsum": lambda x: torch.softmax(x, -1).cumsum(-1, dtype=torch.float64),
        "sort": lambda x: torch.sort(x, dim=-1, descending=True, stable=True).values,
        "topk": lambda x: torch.topk(x, 64, -1).values,
        "sum of blocks": lambda x: torch.softmax(
            x[:, : x.shape[1] // 256 * 256].unflatten(1, (-1, 256)), -1
        ).sum(-1, dtype=torch.float64),
        "best scores": lambda x: best_scores(x, 300)[0],
    }
    for name, operation in operations.items():
        together = operation(scores)
        for row in (0, 3, 16):
            alone = operation(scores[row : row + 1].clone())[0]
            assert torch.equal(together[row], alone), name


@pytest.mark.parametrize("count", [1, 10, 64, 500, 700])
def test_best_scores_are_in_a_total_order(count):
    scores = torch.randint(-9, 3, (5, 500), generator=torch.Generator().manual_seed(12)).float()
    scores[2, ::3] = -torch.inf
    scores[3] = -0.25
    values, ids = best_scores(scores, count)
    expected, places = torch.sort(scores, dim=-1, descending=True, stable=True)
    assert torch.equal(values, expected[:, :count])
    assert torch.equal(ids, places[:, :count])
