"""The demo model's tokenizer as a directory that transformers reads, for tools that count tokens themselves.

It is built from the model's file by other code than the server's (`golden/make_greedy.py`).
"""

from __future__ import annotations

import sys
import tempfile
from functools import cache
from pathlib import Path

from transformers import PreTrainedTokenizerFast


def demo_tokenizer() -> PreTrainedTokenizerFast:
    """Without a chat template: the server applies its own."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "golden"))
    from make_greedy import build_tokenizer, demo_gguf

    return PreTrainedTokenizerFast(
        tokenizer_object=build_tokenizer(demo_gguf()),
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        model_max_length=8192,
    )


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Where it is saved; the folder goes when this process ends."""
    saved = tempfile.TemporaryDirectory()
    demo_tokenizer().save_pretrained(saved.name)
    return saved
