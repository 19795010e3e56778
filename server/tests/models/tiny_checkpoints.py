"""Tiny random checkpoints, saved by transformers, and the documents that a launcher would make of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from headrace.document import ModelDocument, TokenizerSource, WeightFiles
from paged_sequences import VOCAB
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

if TYPE_CHECKING:
    from pathlib import Path

CONTEXT = 256

FAMILIES = {"llama": LlamaConfig, "mistral": MistralConfig, "qwen2": Qwen2Config}


def tiny_config(family="llama", **changes):
    """A configuration of two layers; `changes` are its keys."""
    keys = {
        "vocab_size": VOCAB,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return FAMILIES[family](**(keys | changes))


def random_model(config, seed=0):
    """A model whose every parameter matters: norms and biases are random too."""
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name:
            parameter.data = 1.0 + 0.2 * noise
        elif "embed_tokens" in name:
            parameter.data = noise
        else:
            parameter.data = 0.1 * noise
    return model.eval()


def save(model, folder: Path, **options) -> ModelDocument:
    """Saves a model and makes its document."""
    model.save_pretrained(folder, **options)
    return document_of(folder)


def document_of(folder: Path, **config_changes) -> ModelDocument:
    """The document of a folder of safetensors."""
    config = json.loads((folder / "config.json").read_text()) | config_changes
    return ModelDocument.from_mapping(
        {
            "model_id": str(folder),
            "weights": {
                "format": "safetensors",
                "files": sorted(str(path) for path in folder.glob("*.safetensors")),
            },
            "config": config,
            "tokenizer": {"kind": "tokenizer_json", "path": str(folder / "tokenizer.json")},
            "dtype": "float32",
            "max_position_embeddings": config["max_position_embeddings"],
            "vocab_size": config["vocab_size"] or VOCAB,
        }
    )


def gguf_document(files, config) -> ModelDocument:
    """The document of GGUF files with a configuration in Hugging Face's keys."""
    return ModelDocument(
        model_id="gguf",
        revision=None,
        pipeline_tag=None,
        weights=WeightFiles("gguf", tuple(files)),
        config=config,
        tokenizer=TokenizerSource("gguf", files[0]),
        tokenizer_config=None,
        chat_template=None,
        generation_config=None,
        dtype="float32",
        max_position_embeddings=config["max_position_embeddings"],
        vocab_size=config["vocab_size"],
    )


@torch.no_grad()
def oracle_logits(model, ids):
    """transformers' logits of one sequence in one forward: [T, V]."""
    return model(ids[None]).logits[0]
