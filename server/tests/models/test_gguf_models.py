"""GGUF checkpoints: llama's row order, and the demo model against transformers."""

import gguf
import pytest
import torch
from demo_checkpoint import DEMO_VOCAB, PARIS, PROMPT
from headrace.distributed import ProcessGroup
from headrace.errors import WeightsError
from headrace.models import load_model
from paged_sequences import PagedSequences, random_ids
from tiny_checkpoints import gguf_document, oracle_logits, random_model, tiny_config

PARTS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def interleave(weight, num_heads):
    """The row order of llama files: the two halves of a head's rows alternate."""
    halves = weight.reshape(num_heads, 2, -1, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)


def write_gguf(model, path, architecture, extra=()):
    """Writes a model in float32 as a converter does."""
    config = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    tensors = dict(model.named_parameters()) | dict(extra)
    for name, parameter in tensors.items():
        weight = parameter.detach()
        if name.startswith("model.layers."):
            layer, rest = name.removeprefix("model.layers.").split(".", 1)
            part, kind = rest.rsplit(".", 1)
            target = f"blk.{layer}.{PARTS[part]}.{kind}"
        else:
            part, kind = name.rsplit(".", 1)
            target = f"{PARTS.get(part, part)}.{kind}"
        if architecture == "llama" and "q_proj" in name:
            weight = interleave(weight, config.num_attention_heads)
        if architecture == "llama" and "k_proj" in name:
            weight = interleave(weight, config.num_key_value_heads)
        writer.add_tensor(target, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def config_keys(model):
    return model.config.to_dict() | {"architectures": [type(model).__name__]}


@pytest.mark.parametrize(
    ("architecture", "changes"),
    [
        ("llama", {"attention_bias": True, "num_attention_heads": 8, "head_dim": 16}),
        ("llama", {"tie_word_embeddings": True}),
        ("qwen2", {"family": "qwen2"}),
    ],
)
def test_row_order_of_each_architecture(architecture, changes, ops, tmp_path):
    oracle = random_model(tiny_config(**changes))
    path = tmp_path / "m.gguf"
    write_gguf(oracle, path, architecture)
    document = gguf_document([path], config_keys(oracle))
    model = load_model(document, ops, ProcessGroup(), lambda *_: None)
    ids = random_ids(30)
    logits = model.logits(PagedSequences(model, ops).step({"a": ids}))
    torch.testing.assert_close(logits, oracle_logits(oracle, ids), atol=1e-4, rtol=0)


def test_an_output_of_its_own_counts_even_when_the_keys_tie(ops, tmp_path):
    oracle = random_model(tiny_config())
    path = tmp_path / "m.gguf"
    write_gguf(oracle, path, "llama")
    document = gguf_document([path], config_keys(oracle) | {"tie_word_embeddings": True})
    model = load_model(document, ops, ProcessGroup(), lambda *_: None)
    ids = random_ids(10)
    logits = model.logits(PagedSequences(model, ops).step({"a": ids}))
    torch.testing.assert_close(logits, oracle_logits(oracle, ids), atol=1e-4, rtol=0)


def test_frequency_factors_scale_the_rotation(ops, tmp_path):
    """Divisors of 4 for every frequency are what `linear` with factor 4 is, and are taken once."""
    linear = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}
    oracle = random_model(tiny_config(rope_parameters=linear))
    path = tmp_path / "m.gguf"
    write_gguf(oracle, path, "llama", {"rope_freqs.weight": torch.full((8,), 4.0)})
    plain = config_keys(oracle) | {"rope_parameters": {"rope_theta": 10_000.0}}
    ids = random_ids(30)
    for keys in (plain, config_keys(oracle)):
        model = load_model(gguf_document([path], keys), ops, ProcessGroup(), lambda *_: None)
        logits = model.logits(PagedSequences(model, ops).step({"a": ids}))
        torch.testing.assert_close(logits, oracle_logits(oracle, ids), atol=1e-4, rtol=0)


def test_missing_and_truncated_tensors(ops, tmp_path):
    oracle = random_model(tiny_config())
    path = tmp_path / "m.gguf"
    write_gguf(oracle, path, "llama")
    keys = config_keys(oracle)
    with pytest.raises(WeightsError, match=r"`model\.layers\.2\..*missing from m\.gguf"):
        load_model(
            gguf_document([path], keys | {"num_hidden_layers": 3}),
            ops,
            ProcessGroup(),
            lambda *_: None,
        )
    path.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(WeightsError, match=r"m\.gguf: tensor .* truncated"):
        load_model(gguf_document([path], keys), ops, ProcessGroup(), lambda *_: None)


def test_demo_model_equals_transformers(demo_model, demo_oracle, ops):
    ids = torch.cat([torch.tensor(PROMPT), random_ids(75, vocab=DEMO_VOCAB)])
    expected = oracle_logits(demo_oracle, ids)
    sequences = PagedSequences(demo_model, ops)
    hidden = sequences.hidden_in_chunks("a", ids, [5, 48, 1, 1, 25])
    logits = demo_model.logits(hidden)
    torch.testing.assert_close(logits, expected, atol=1e-3, rtol=0)
    assert int(logits[len(PROMPT) - 1].argmax()) == PARIS
