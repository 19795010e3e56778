"""Configurations and files that cannot be served end in one line that names the culprit."""

import json
from dataclasses import replace

import pytest
import torch
from headrace.distributed import ProcessGroup
from headrace.document import ModelDocument
from headrace.errors import ConfigError, DocumentError, ShardingError, WeightsError
from headrace.models import load_model
from safetensors.torch import load_file, save_file
from tiny_checkpoints import document_of, random_model, save, tiny_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    save(random_model(tiny_config()), path)
    return path


def load(document, ops, group=None):
    return load_model(document, ops, group or ProcessGroup(), lambda *_: None)


def refusal(error, document, ops, group=None):
    with pytest.raises(error) as caught:
        load(document, ops, group)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["MambaForCausalLM"]}, ["MambaForCausalLM", "LlamaForCausalLM"]),
        ({"architectures": None}, ["architectures"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "gelu", "silu"]),
        ({"quantization_config": {"quant_method": "gptq"}}, ["quantization_config", "gptq"]),
        ({"rope_parameters": {"rope_type": "longrope"}}, ["longrope", "yarn"]),
        ({"rope_scaling": {"type": "mrope"}}, ["mrope"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
        ({"num_attention_heads": 5}, ["num_attention_heads", "num_key_value_heads"]),
        ({"num_hidden_layers": 1 << 40}, ["num_hidden_layers"]),
        ({"num_hidden_layers": "two"}, ["num_hidden_layers", "two"]),
        ({"vocab_size": None}, ["vocab_size", "missing"]),
        ({"head_dim": 15}, ["head_dim", "15"]),
        ({"rms_norm_eps": -1.0}, ["rms_norm_eps"]),
        ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings", "yes"]),
        (
            {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}},
            ["high_freq_factor", "missing"],
        ),
    ],
)
def test_unsupported_configurations(changes, words, folder, ops):
    message = refusal(ConfigError, document_of(folder, **changes), ops)
    for word in words:
        assert word in message


def test_missing_tensor(folder, ops, tmp_path):
    document = rewritten(folder, tmp_path, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
    message = refusal(WeightsError, document, ops)
    assert "`model.layers.1.mlp.up_proj.weight` is missing" in message
    assert "model.safetensors" in message


def test_missing_tensor_of_several_files(folder, ops, tmp_path):
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    half = len(tensors) // 2
    items = list(tensors.items())
    save_file(dict(items[:half]), tmp_path / "a.safetensors")
    save_file(dict(items[half:]), tmp_path / "b.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    message = refusal(WeightsError, document_of(tmp_path), ops)
    assert message == "tensor `lm_head.weight` is missing from a.safetensors and 1 more"


def test_no_tensors_at_all(folder, ops, tmp_path):
    document = rewritten(folder, tmp_path, lambda tensors: tensors.clear())
    assert "hold no tensors" in refusal(WeightsError, document, ops)


def test_mis_shaped_tensor(folder, ops, tmp_path):
    def cut(tensors):
        tensors["model.norm.weight"] = tensors["model.norm.weight"][:60].clone()

    message = refusal(WeightsError, rewritten(folder, tmp_path, cut), ops)
    assert "`model.norm.weight` in model.safetensors has shape [60]" in message
    assert "[64]" in message


def test_unexpected_tensor(folder, ops, tmp_path):
    def add(tensors):
        tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(64)

    message = refusal(WeightsError, rewritten(folder, tmp_path, add), ops)
    assert "`model.layers.0.self_attn.q_proj.bias` in model.safetensors" in message


def test_quantised_dtype(folder, ops, tmp_path):
    def quantise(tensors):
        weight = tensors["model.layers.0.mlp.up_proj.weight"]
        tensors["model.layers.0.mlp.up_proj.weight"] = weight.to(torch.float8_e4m3fn)

    message = refusal(WeightsError, rewritten(folder, tmp_path, quantise), ops)
    assert "F8_E4M3" in message
    assert "up_proj" in message


def test_tensor_in_two_files(folder, ops, tmp_path):
    document = rewritten(folder, tmp_path, lambda _: None)
    save_file({"model.norm.weight": torch.ones(64)}, tmp_path / "more.safetensors")
    files = (*document.weights.files, tmp_path / "more.safetensors")
    document = replace(document, weights=replace(document.weights, files=files))
    message = refusal(WeightsError, document, ops)
    assert "`model.norm.weight` is in both model.safetensors and more.safetensors" in message


def test_old_rotary_buffers_are_harmless(folder, ops, tmp_path):
    def add(tensors):
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(8)

    load(rewritten(folder, tmp_path, add), ops)


@pytest.mark.parametrize("keep", [0, 7, 100, 5000])
def test_truncated_safetensors(keep, folder, ops, tmp_path):
    document = rewritten(folder, tmp_path, lambda _: None)
    path = document.weights.files[0]
    path.write_bytes(path.read_bytes()[:keep])
    message = refusal(WeightsError, document, ops)
    assert str(path) in message


def test_missing_file(folder, ops, tmp_path):
    document = document_of(folder)
    gone = replace(document.weights, files=(tmp_path / "gone.safetensors",))
    assert "gone.safetensors" in refusal(WeightsError, replace(document, weights=gone), ops)


def test_more_ranks_than_heads(folder, ops):
    message = refusal(ShardingError, document_of(folder), ops, ProcessGroup(0, 5))
    assert "--num-shard 5" in message
    assert "4 attention heads" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_id", None),
        ("weights", {"format": "pickle", "files": ["x.bin"]}),
        ("weights", {"format": "gguf", "files": []}),
        ("tokenizer", "tokenizer.json"),
        ("config", []),
        ("dtype", "int3"),
        ("vocab_size", True),
        ("max_position_embeddings", 0),
        ("chat_template", 3),
    ],
)
def test_wrong_documents(key, value):
    fields = {
        "model_id": "m",
        "weights": {"format": "gguf", "files": ["m.gguf"]},
        "config": {},
        "tokenizer": {"kind": "gguf", "path": "m.gguf"},
        "dtype": "float32",
        "max_position_embeddings": 8,
        "vocab_size": 8,
    }
    assert ModelDocument.from_mapping(fields).model_id == "m"
    with pytest.raises(DocumentError):
        ModelDocument.from_mapping(fields | {key: value})


def test_document_file(tmp_path):
    path = tmp_path / "model.json"
    with pytest.raises(DocumentError, match=r"model\.json"):
        ModelDocument.from_file(path)
    path.write_text("[1")
    with pytest.raises(DocumentError, match=r"model\.json"):
        ModelDocument.from_file(path)
    path.write_text("[]")
    with pytest.raises(DocumentError, match="not a JSON object"):
        ModelDocument.from_file(path)


def rewritten(folder, target, change):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, target / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config))
    return document_of(target)
