"""Rows have the same bits whatever else is in the step, however a prompt is cut, on any threads.

The native op set promises it; the torch op set, the oracle of the other tests, does not.
"""

import os

import pytest
import torch
from demo_checkpoint import DEMO_CONFIG, DEMO_VOCAB
from headrace.distributed import ProcessGroup
from headrace.models import load_model
from headrace.ops.native import set_compute_threads
from headrace.ops.select import select_op_set
from paged_sequences import PagedSequences, random_ids
from tiny_checkpoints import gguf_document, random_model, save, tiny_config

LENGTH = 600


@pytest.fixture(scope="module")
def native():
    return select_op_set("cpu", torch.float32, "native")


@pytest.fixture(scope="module")
def model(demo_file, demo_model, ops, native):
    if ops.name == native.name:
        return demo_model
    document = gguf_document([demo_file], DEMO_CONFIG)
    return load_model(document, native, ProcessGroup(), lambda *_: None)


@pytest.fixture(scope="module")
def ids():
    return random_ids(LENGTH, vocab=DEMO_VOCAB)


def in_chunks(model, native, ids, size):
    chunks = [len(part) for part in ids.split(size)]
    sequences = PagedSequences(model, native, num_blocks=48)
    hidden = sequences.hidden_in_chunks("a", ids, chunks)
    return hidden, sequences


@pytest.fixture(scope="module")
def reference(model, native, ids):
    """Hidden states of the whole prompt in chunks of 64, and the logits of its last 64."""
    hidden, _ = in_chunks(model, native, ids, 64)
    return hidden, model.logits(hidden[-64:])


@pytest.mark.parametrize("size", [16, 17, 512])
def test_prefill_in_chunks(size, model, native, ids, reference):
    hidden, _ = in_chunks(model, native, ids, size)
    assert torch.equal(hidden, reference[0])


@pytest.fixture
def _default_threads():
    yield
    set_compute_threads(len(os.sched_getaffinity(0)))


@pytest.mark.usefixtures("_default_threads")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads(threads, model, native, ids, reference):
    set_compute_threads(threads)
    hidden, _ = in_chunks(model, native, ids[:200], 100)
    assert torch.equal(hidden, reference[0][:200])
    assert torch.equal(model.logits(reference[0][-64:]), reference[1])


@pytest.mark.parametrize("num_rows", [1, 2, 16, 17])
def test_logits_of_some_rows(num_rows, model, reference):
    hidden, logits = reference
    assert torch.equal(model.logits(hidden[-num_rows:]), logits[-num_rows:])


@pytest.mark.parametrize("num_rows", [1, 2, 16, 17, 64])
def test_decode_beside_others(num_rows, model, native, ids, reference):
    """One row decodes 3 tokens after a prompt of 40 while others decode and one prefills."""
    sequences = PagedSequences(model, native, num_blocks=512)
    others = {f"row {row}": ids.roll(7 * row) for row in range(1, num_rows)}
    sequences.step({"row 0": ids[:40]})
    for row, (name, tokens) in enumerate(others.items()):
        sequences.step({name: tokens[: 3 + row % 23]})
    for token in range(3):
        rows = {"row 0": ids[40 + token : 41 + token]}
        rows |= {name: tokens[token : token + 1] for name, tokens in others.items()}
        rows["prefill"] = ids[token * 5 : token * 5 + 5]
        hidden = sequences.step(rows)
        assert torch.equal(hidden[0], reference[0][40 + token])
        assert torch.equal(model.logits(hidden[:1]), model.logits(hidden)[:1])


def test_after_blocks_are_dropped_and_computed_again(model, native, ids, reference):
    """Preemption: other blocks, another cut, the same bits."""
    sequences = PagedSequences(model, native, num_blocks=48)
    sequences.hidden_in_chunks("a", ids[:130], [100, 30])
    sequences.drop("a")
    sequences.step({"b": ids[:20]})
    hidden = sequences.hidden_in_chunks("a", ids[:133], [77, 53, 1, 1, 1])
    assert torch.equal(hidden, reference[0][:133])


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "mistral", "sliding_window": 21},
        {"family": "qwen2", "num_key_value_heads": 1},
        {"head_dim": 24, "attention_bias": True, "mlp_bias": True},
    ],
)
def test_windows_and_biases(changes, native, tmp_path):
    document = save(random_model(tiny_config(**changes)), tmp_path)
    model = load_model(document, native, ProcessGroup(), lambda *_: None)
    ids = random_ids(90)
    whole, _ = in_chunks(model, native, ids, 90)
    logits = model.logits(whole)
    for size in (1, 7, 16):
        hidden, _ = in_chunks(model, native, ids, size)
        assert torch.equal(hidden, whole)
        assert torch.equal(model.logits(hidden[3:4]), logits[3:4])
