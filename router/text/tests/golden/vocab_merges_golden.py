"""Writes vocab_merges.json: what transformers makes of folders with vocab.json and merges.txt.

Run with the project's Python: python vocab_merges_golden.py

The vocabulary is trained on strings.json (once: training breaks ties at random, so one that is there is taken as it
is). Every folder holds it with other files beside it; transformers' AutoTokenizer reads the folder.
"""

import json
import random
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

HERE = Path(__file__).parent
GOLDEN = HERE / "vocab_merges.json"
STRINGS: list[str] = json.loads((HERE / "strings.json").read_text(encoding="ascii"))
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def texts() -> list[str]:
    """The golden texts, texts with special tokens, and words of every kind put together."""
    found = STRINGS[::2]
    found += [
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
        "a<|endoftext|>b <|endoftext|> c",
        "<s>a</s> <mask> b<pad>",
        " <tool>x</tool> <tool> y",
        "cafe\u0301 e\u0301e\u0301 caf\u00e9",
        "\u0928\u093f \u0e01\u0e33 a\u0323\u0302b",
        "I'M it'S we'Ll don't 'tis",
        "a  b   c\n\n d\n  e \t f",
        "1234567 89 x1y22",
    ]
    picker = random.Random(11)
    words = [
        "the",
        " a",
        "  ",
        "\n",
        "\uc548\ub155",
        "e\u0301",
        "\U0001f600",
        "ab",
        "1",
        "23",
        "\t",
    ]
    words += ["\ufb01", "\u3000", "<tool>", "<|im_end|>", "'s", "\u0928\u093f", "!?", "\r\n"]
    found += ["".join(picker.choices(words, k=picker.randint(2, 10))) for _ in range(50)]
    return found


def trained() -> dict[str, Any]:
    """A vocabulary of 700 tokens without special ones, and its merges."""
    if GOLDEN.exists():
        before = json.loads(GOLDEN.read_text(encoding="ascii"))
        return {"vocab": before["vocab"], "merges": before["merges"]}
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts() * 4, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return {"vocab": model["vocab"], "merges": [" ".join(pair) for pair in model["merges"]]}


def flags(content: str, **given: bool) -> dict[str, Any]:
    """An added token as tokenizer_config.json has it."""
    no = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    return {"content": content, **no, **given}


def cases(size: int) -> dict[str, dict[str, Any]]:
    """By name: tokens that come after the trained ones in vocab.json, and the files beside."""
    end = "<|endoftext|>"
    listed = {
        str(size): flags(end, special=True),
        str(size + 1): flags("<|im_start|>", special=True),
        str(size + 2): flags("<|im_end|>", special=True),
        str(size + 3): flags("<tool>", special=False, normalized=True),
        str(size + 4): flags("</tool>", special=False, lstrip=True),
    }
    bounds = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    llama = {"model_type": "llama"}

    def case(more: list[str], model: dict[str, Any], **files: Any) -> dict[str, Any]:
        beside = {f"{name}.json": content for name, content in files.items()}
        return {"more": more, "files": {"config.json": model, **beside}}

    return {
        "gpt2": case([end], llama, tokenizer_config={"tokenizer_class": "GPT2Tokenizer"}),
        "gpt2_lacks_its_end": case(
            [], llama, tokenizer_config={"tokenizer_class": "GPT2TokenizerFast"}
        ),
        "gpt2_of_old": case(
            [end],
            {"model_type": "gpt2"},
            special_tokens_map={
                "bos_token": flags("<s>", normalized=True),
                "pad_token": "<|im_end|>",
                "additional_special_tokens": ["<|im_start|>"],
            },
            added_tokens={"<tool>": size + 2, "<|im_end|>": size + 1},
        ),
        "gpt2_opt": case(
            ["</s>", "<pad>"],
            {"model_type": "opt"},
            tokenizer_config={
                "tokenizer_class": "GPT2Tokenizer",
                "add_bos_token": True,
                "add_prefix_space": True,
                "bos_token": {"__type": "AddedToken", **flags("</s>", normalized=True)},
                "eos_token": {"__type": "AddedToken", **flags("</s>", normalized=True)},
                "unk_token": "</s>",
                "pad_token": "<pad>",
            },
        ),
        "codegen": case(
            [end],
            llama,
            tokenizer_config={
                "tokenizer_class": "CodeGenTokenizer",
                "pad_token": None,
                "additional_special_tokens": ["<tool>"],
            },
        ),
        "qwen2": case(
            [],
            {"model_type": "qwen2"},
            tokenizer_config={
                "tokenizer_class": "Qwen2Tokenizer",
                "add_prefix_space": False,
                "added_tokens_decoder": listed,
                "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
                "bos_token": None,
                "eos_token": "<|im_end|>",
                "pad_token": end,
                "unk_token": None,
            },
            special_tokens_map={"eos_token": "<ignored>"},
        ),
        "qwen2_by_its_model": case(
            [],
            {"model_type": "qwen2"},
            added_tokens={end: size, "<|im_start|>": size + 1, "<|im_end|>": size + 2},
        ),
        "qwen2_of_another_class": case(
            [],
            {"model_type": "qwen2"},
            tokenizer_config={"tokenizer_class": "GPT2Tokenizer", "added_tokens_decoder": listed},
        ),
        "roberta": case(
            bounds,
            {"model_type": "roberta"},
            tokenizer_config={"tokenizer_class": "RobertaTokenizer"},
        ),
        "bart": case(
            bounds,
            {"model_type": "bart"},
            tokenizer_config={
                "tokenizer_class": "BartTokenizer",
                "add_prefix_space": True,
                "trim_offsets": False,
                "add_bos_token": False,
                "mask_token": {"__type": "AddedToken", **flags("<mask>", lstrip=True)},
            },
        ),
    }


def read(folder: Path) -> dict[str, Any]:
    """What transformers says of the folder."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts()]
    ends = tokenizer("a")["input_ids"]
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    back = {
        str(index): tokenizer.decode(found, skip_special_tokens=True)
        for index, found in enumerate(ids)
        if tokenizer.decode(found, skip_special_tokens=True) != texts()[index]
    }
    added = {
        token.content: [number, token.special]
        for number, token in tokenizer.added_tokens_decoder.items()
    }
    named = {key: getattr(tokenizer, key) for key in NAMED}
    return {
        "class": type(tokenizer).__name__,
        "ids": ids,
        "around": [ends[: ends.index(plain[0])], ends[ends.index(plain[-1]) + 1 :]],
        "back": back,
        "added": added,
        "named": named,
    }


def main() -> None:
    """Writes the file."""
    base = trained()
    lines = [
        f'"texts": {json.dumps(texts())}',
        f'"vocab": {json.dumps(base["vocab"])}',
        f'"merges": {json.dumps(base["merges"])}',
    ]
    all_cases = {}
    for name, case in cases(len(base["vocab"])).items():
        more = {token: len(base["vocab"]) + place for place, token in enumerate(case["more"])}
        with tempfile.TemporaryDirectory() as path:
            folder = Path(path)
            (folder / "vocab.json").write_text(json.dumps(base["vocab"] | more), encoding="utf-8")
            merges = "#version: 0.2\n" + "\n".join(base["merges"]) + "\n"
            (folder / "merges.txt").write_text(merges, encoding="utf-8")
            for file, content in case["files"].items():
                (folder / file).write_text(json.dumps(content), encoding="utf-8")
            all_cases[name] = case | read(folder)
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in all_cases.items())
    lines.append(f'"cases": {{\n{rows}\n}}')
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="ascii")


if __name__ == "__main__":
    main()
