"""Writes grammar.json: transformers' greedy ids within small languages, the oracle of constrained output.

    python integration-tests/golden/make_grammar.py

A step may take a token if some text of the language starts with what is there plus the token's bytes, and the end id if
what is there is a text of the language. Each language is listed text by text, so nothing but comparing prefixes is
needed to say so; among the allowed ids the one with the highest logit is taken. Model and tokenizer are those of
make_greedy.py.

Each entry: `prompt`, `regex` (the language, for the server), `output_ids`, `gaps` (best allowed logit minus the second,
99 where only one id is allowed) and `text`.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import sys
from pathlib import Path

import torch
from make_greedy import CHAT, build_tokenizer, demo_gguf
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
COLOURS = ["red", "green", "blue", "light blue", "grey"]
LANGUAGES = [
    (
        CHAT.format(question="Which colours does the sky have by day and at dusk?"),
        r"(red|green|blue|light blue|grey)( and (red|green|blue|light blue|grey))?",
        COLOURS + [f"{a} and {b}" for a, b in itertools.product(COLOURS, COLOURS)],
    ),
    (
        "1, 1, 2, 3, 5, 8, 13, ",
        "[0-9]{2}, [0-9]{2}",
        [f"{n:02}, {m:02}" for n in range(100) for m in range(100)],
    ),
    (
        CHAT.format(question="Is Paris the capital of France?"),
        r'\{"answer": ?"(yes|no|perhaps)"\}',
        [f'{{"answer":{s}"{a}"}}' for s in ("", " ") for a in ("yes", "no", "perhaps")],
    ),
]


def token_bytes(tokenizer: Tokenizer) -> list[bytes]:
    """Each id's bytes; empty for special tokens."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    byte_of = {chr(byte): byte for byte in printable}
    byte_of.update({chr(256 + n): byte for n, byte in enumerate(others)})
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    tokens = [tokenizer.id_to_token(n) for n in range(tokenizer.get_vocab_size())]
    return [b"" if t in special else bytes(byte_of[c] for c in t) for t in tokens]


@torch.inference_mode()
def constrained(
    model, ids: list[int], pieces: list[bytes], language: list[str], end_id: int
) -> tuple[list[int], list[float]]:
    """Output ids with the end, and the gaps."""
    texts = sorted({text.encode() for text in language})
    prefixes = {text[:length] for text in texts for length in range(len(text) + 1)}
    outputs: list[int] = []
    gaps: list[float] = []
    done = b""
    past = None
    inputs = torch.tensor([ids])
    while not outputs or outputs[-1] != end_id:
        result = model(input_ids=inputs, past_key_values=past, use_cache=True)
        past = result.past_key_values
        allowed = [n for n, piece in enumerate(pieces) if piece and done + piece in prefixes]
        if done in texts:
            allowed.append(end_id)
        scores = result.logits[0, -1][allowed]
        best = torch.topk(scores, min(2, len(allowed)))
        outputs.append(allowed[int(best.indices[0])])
        only = len(allowed) == 1
        gaps.append(99.0 if only else round(float(best.values[0] - best.values[1]), 6))
        done += b"" if outputs[-1] == end_id else pieces[outputs[-1]]
        inputs = torch.tensor([[outputs[-1]]])
    return outputs, gaps


def main() -> int:
    """Writes the file."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    path = demo_gguf()
    tokenizer = build_tokenizer(path)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    end_id = tokenizer.token_to_id("<|im_end|>")
    pieces = token_bytes(tokenizer)
    entries = []
    for prompt, regex, language in LANGUAGES:
        if any(re.fullmatch(regex, text) is None for text in language):
            raise SystemExit(f"the list of {regex} is wrong")
        ids = tokenizer.encode(prompt).ids
        outputs, gaps = constrained(model, ids, pieces, language, end_id)
        text = b"".join(pieces[n] for n in outputs[:-1]).decode()
        logging.info("%s: %r, smallest gap %.4f", regex, text, min(gaps))
        entries.append(
            {"prompt": prompt, "regex": regex, "output_ids": outputs, "gaps": gaps, "text": text}
        )
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    (HERE / "grammar.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
