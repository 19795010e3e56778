"""Names of GGUF tensors and their Hugging Face names."""

from __future__ import annotations

import re

FREQUENCY_FACTORS = "model.rotary_emb.frequency_factors"
"""Divisors of the rotary frequencies, which llama files carry as a tensor and Hugging Face's do not."""

HEAD_INTERLEAVED = frozenset({"llama"})
"""Values of `general.architecture` whose query and key rows are kept in pairs (see `gguf.py`)."""

_WHOLE = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d{1,6})\.(\w+)\.(weight|bias)")
_WHOLE_NAME = re.compile(r"(\w+)\.(weight|bias)")


def huggingface_name(name: str) -> str:
    """The Hugging Face name of a GGUF tensor; a name that has none stays as it is."""
    if name == "rope_freqs.weight":
        return FREQUENCY_FACTORS
    if match := _LAYER_NAME.fullmatch(name):
        layer, part, kind = match.groups()
        if part in _LAYER:
            return f"model.layers.{int(layer)}.{_LAYER[part]}.{kind}"
    if match := _WHOLE_NAME.fullmatch(name):
        part, kind = match.groups()
        if part in _WHOLE:
            return f"{_WHOLE[part]}.{kind}"
    return name
