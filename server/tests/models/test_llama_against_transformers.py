"""Tiny random checkpoints: logits through the paged cache equal transformers' within 1e-4."""

import pytest
import torch
from headrace.distributed import ProcessGroup
from headrace.models import load_model
from paged_sequences import PagedSequences, random_ids
from tiny_checkpoints import CONTEXT, oracle_logits, random_model, save, tiny_config
from transformers import AutoModelForCausalLM

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}

CASES = {
    "one group": {"num_key_value_heads": 1},
    "ratio 1": {"num_key_value_heads": 4},
    "ratio 2": {},
    "ratio 3": {"hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3},
    "ratio 7": {"hidden_size": 112, "num_attention_heads": 14, "num_key_value_heads": 2},
    "head_dim of its own": {"head_dim": 24},
    "tied": {"tie_word_embeddings": True},
    "attention biases": {"attention_bias": True},
    "mlp biases": {"mlp_bias": True, "attention_bias": True},
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}},
    "dynamic within the context": {
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1000.0, "factor": 4.0}
    },
    "llama3": {"rope_parameters": LLAMA3},
    "yarn": {"rope_parameters": YARN},
    "yarn with mscales": {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.7}},
    "yarn with a given factor": {"rope_parameters": YARN | {"attention_factor": 1.3}},
    "yarn untruncated": {
        "rope_parameters": YARN | {"truncate": False, "beta_fast": 24.0, "beta_slow": 2.0}
    },
    "mistral window": {"family": "mistral", "sliding_window": 21},
    "mistral without window": {"family": "mistral", "sliding_window": None},
    "qwen2 biases": {"family": "qwen2"},
    "qwen2 window in the upper layers": {
        "family": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 18,
        "max_window_layers": 1,
    },
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_logits_equal_transformers(changes, ops, tmp_path):
    oracle = random_model(tiny_config(**changes))
    model = load_model(save(oracle, tmp_path), ops, ProcessGroup(), lambda *_: None)
    ids = random_ids(90)
    expected = oracle_logits(oracle, ids)
    sequences = PagedSequences(model, ops)
    hidden = sequences.hidden_in_chunks("a", ids, [37, 16, 1, 31, 1, 1, 1, 1, 1])
    logits = model.logits(hidden)
    assert logits.dtype == torch.float32
    # Logits of this size tell a wrong model from rounding.
    assert expected.abs().max() > 1.0
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_mixed_rows_in_one_step(ops, tmp_path):
    """Two prompts and a decoding row share a step; none sees another's tokens."""
    oracle = random_model(tiny_config(family="mistral", sliding_window=21))
    model = load_model(save(oracle, tmp_path), ops, ProcessGroup(), lambda *_: None)
    ids = {name: random_ids(count, seed) for name, count, seed in (("a", 40, 3), ("b", 25, 4))}
    sequences = PagedSequences(model, ops)
    first = sequences.step({"a": ids["a"][:39]})
    mixed = sequences.step({"a": ids["a"][39:], "b": ids["b"][:20]})
    last = sequences.step({"b": ids["b"][20:]})
    hidden = {"a": torch.cat([first, mixed[:1]]), "b": torch.cat([mixed[1:], last])}
    for name, rows in hidden.items():
        expected = oracle_logits(oracle, ids[name])
        torch.testing.assert_close(model.logits(rows), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sharded_checkpoint_of_each_dtype(dtype, ops, tmp_path):
    document = save(random_model(tiny_config()).to(dtype), tmp_path, max_shard_size="60KB")
    assert len(document.weights.files) > 1
    # The same rounded weights, computed in float32.
    oracle = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    model = load_model(document, ops, ProcessGroup(), lambda *_: None)
    ids = random_ids(20)
    expected = oracle_logits(oracle, ids)
    logits = model.logits(PagedSequences(model, ops).step({"a": ids}))
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_progress_counts_bytes_to_the_end(ops, tmp_path):
    oracle = random_model(tiny_config(tie_word_embeddings=True))
    document = save(oracle, tmp_path)
    calls = []
    load_model(document, ops, ProcessGroup(), lambda *call: calls.append(call))
    assert calls[0][1] == 0
    done = [call[1] for call in calls]
    assert done == sorted(done)
    total = calls[-1][2]
    assert calls[-1] == ("weights", total, total, "bytes")
    assert total == sum(parameter.numel() * 4 for parameter in oracle.parameters())


def test_positions_are_as_many_as_asked_for(ops, tmp_path):
    document = save(random_model(tiny_config()), tmp_path)
    assert load_model(document, ops, ProcessGroup(), lambda *_: None).num_positions == CONTEXT
    short = load_model(document, ops, ProcessGroup(), lambda *_: None, max_total_tokens=40)
    assert short.num_positions == 40
