"""Writes infill.json: prompts with a gap as the models' own tools encode them.

    python integration-tests/fetch_tokenizers.py
    python router/text/tests/golden/infill_golden.py

needs transformers, sentencepiece and mistral-common. Qwen2.5-Coder's documentation gives the text
`<|fim_prefix|>` prefix `<|fim_suffix|>` suffix `<|fim_middle|>`, for transformers to encode (Qwen3 has the same
control tokens with the same ids); Mistral's models have `encode_fim`.
"""

import json
import os
from pathlib import Path

from mistral_common.protocol.fim.request import FIMRequest
from mistral_common.tokens.tokenizers.mistral import MistralTokenizer
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
DATA = Path(os.environ.get("HEADRACE_TEST_DATA") or ROOT / "target/test-data") / "tokenizers"

GAPS = [
    ("def add(a, b):\n    ", "\n    return total\n"),
    ("x = ", " + 1"),
    ("    if flag:\n        return", "\n\n\nprint('done')"),
    ('// grüße, 世界 😀\nlet s = "', '";\n'),
    ("a", "b"),
    ("trailing spaces   ", "   leading spaces"),
    ("\t\ttabs\n", "\t}\n}\n"),
    ("", "only a suffix"),
    ("only a prefix", ""),
    ("1234567890", "0987654321"),
]


def qwen(prefix, suffix):
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(DATA / "qwen3/tokenizer.json"))
    return tokenizer.encode(f"<|fim_prefix|>{prefix}<|fim_suffix|>{suffix}<|fim_middle|>")


def mistral(file):
    tokenizer = MistralTokenizer.from_file(str(DATA / file))
    return lambda prefix, suffix: (
        tokenizer.encode_fim(FIMRequest(prompt=prefix, suffix=suffix)).tokens
    )


def main():
    families = {
        "qwen3": qwen,
        "mistral_v3": mistral("mistral_v3/tokenizer.model.v3"),
        "tekken_240911": mistral("tekken_240911/tekken.json"),
    }
    document = {
        name: [
            {"prefix": prefix, "suffix": suffix, "ids": encode(prefix, suffix)}
            for prefix, suffix in GAPS
        ]
        for name, encode in families.items()
    }
    lines = json.dumps(document, ensure_ascii=False, indent=1)
    (HERE / "infill.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
