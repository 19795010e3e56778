"""Writes vocabularies.json: what SentencePiece, mistral-common and tiktoken make of the golden texts.

    python integration-tests/fetch_tokenizers.py
    python router/text/tests/golden/vocabularies_golden.py

needs sentencepiece, mistral-common, tiktoken and protobuf. Special tokens in a text are cut out first and
what is between them is encoded by itself, as mistral-common does.
"""

import base64
import io
import json
import os
import random
import re
import unicodedata
from pathlib import Path

import sentencepiece
import tiktoken
import tiktoken.load
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from sentencepiece import sentencepiece_model_pb2

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
DATA = Path(os.environ.get("HEADRACE_TEST_DATA") or ROOT / "target/test-data") / "tokenizers"
QWEN_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


KIMI_WORDS = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


# Letters that the rules change, with marks and in clusters.
RULED = [
    "\uff34\uff45\uff58\uff54\u3000\uff11\uff12",
    "\uff76\uff9e\uff77\uff9e \u30cf\u309a",
    "\uff21\u0301\u0327 \uff1e\u0326 \u00bd\u0303",
    "e\u0301 \u0041\u030a \u1112\u1161\u11ab \u0d4a",
    "\u2460\u2122\u00b2\ufb03\u01c4 \u3392\u33a1",
    "a\u200bb\u00adc\u2060d\ufeffe\u0007f",
    "\u00a0\u2003x\u3000\u2028y\t\tz",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f",
    "\u0344 \u0340a \u2126 \u212b",
    "\u00b4\u0301 \u2026\u2026 \u2025",
]


def ruled():
    """Those, and letters and marks of every kind put together."""
    picker = random.Random(7)
    blocks = [(0x20, 0x250), (0x300, 0x370), (0x300, 0x370), (0x1100, 0x1200), (0x3040, 0x3100)]
    blocks += [
        (0xFF00, 0xFFF0),
        (0x900, 0x980),
        (0x2000, 0x2070),
        (0x2100, 0x2150),
        (0x3099, 0x309B),
    ]
    pool = [chr(code) for first, end in blocks for code in range(first, end)]
    return RULED + ["".join(picker.choices(pool, k=picker.randint(1, 7))) for _ in range(200)]


def texts():
    """The golden texts, runs, and words of every kind put together."""
    found = json.loads((HERE / "strings.json").read_text())
    found += [
        "<s>[INST] Hi there [/INST]",
        "[INST]a[/INST] b</s>[INST]  c [/INST]",
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
        " <unk> x",
        "<s>",
        "</s> ",
        "[control_8] and [AVAILABLE_TOOLS]",
    ]
    found += [" " * count for count in (2, 3, 5, 7, 17, 33)]
    found += ["a" + " " * count + "b" for count in (2, 3, 5, 7, 17, 33)]
    found += ["x" * 19, "aba" * 11, "ababa" * 7, "\n" * 9]
    picker = random.Random(5)
    words = [
        "the",
        " a",
        "  ",
        "\n",
        "안녕",
        "é",
        "😀",
        "ab",
        "aba",
        "1",
        "23",
        "\t",
        "ß",
        "ﬁ",
        "\u3000",
        "“",
        "\uff21",
    ]
    found += ["".join(picker.choices(words, k=picker.randint(2, 12))) for _ in range(60)]
    return found


def cut(text, special, encode):
    """Ids of special tokens, and of what stands between them."""
    if not special:
        return encode(text)
    pattern = "|".join(re.escape(token) for token in sorted(special, key=len, reverse=True))
    ids = []
    for part in re.split(f"({pattern})", text):
        if part in special:
            ids.append(special[part])
        elif part:
            ids += encode(part)
    return ids


def rows(special, encode, decode, more=()):
    """Ids of every text, and what comes back where it is another text."""
    all_texts = [*texts(), *more]
    ids = [cut(text, special, encode) for text in all_texts]
    control = set(special.values())
    back = {}
    for index, (text, found) in enumerate(zip(all_texts, ids, strict=True)):
        if not control.intersection(found) and decode(found) != text:
            back[str(index)] = decode(found)
    return {"ids": ids, "back": back, "more": list(more)}


def sentence_piece(model, more=()):
    """Rows of a SentencePiece model, as bytes."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    special = {
        piece.piece: number for number, piece in enumerate(proto.pieces) if piece.type in (2, 3, 4)
    }
    return rows(special, processor.encode, processor.decode, more)


def trained(more=(), *, keeps_rules=True, **options):
    """A tiny model of our own, and its rows; without its rules for letters if they are the package's."""
    lines = [text for text in json.loads((HERE / "strings.json").read_text()) if text.strip()] * 3
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
        **options,
    )
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    # Where the files were is no part of the golden.
    proto.trainer_spec.ClearField("input")
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    data = proto.SerializeToString()
    found = sentence_piece(data, more)
    if not keeps_rules:
        proto.normalizer_spec.ClearField("precompiled_charsmap")
        data = proto.SerializeToString()
    return {"model": base64.b64encode(data).decode(), **found}


def tekken(path):
    """Rows of a tekken file."""
    tokenizer = Tekkenizer.from_file(path)
    special = {token["token_str"]: token["rank"] for token in tokenizer._all_special_tokens}
    return rows(
        special, lambda text: tokenizer.encode(text, bos=False, eos=False), tokenizer.decode
    )


def qwen(path):
    """Rows of Qwen's first tokenizer."""
    ranks = tiktoken.load.load_tiktoken_bpe(str(path))
    names = [
        "<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        *(f"<|extra_{number}|>" for number in range(205)),
    ]
    special = {name: len(ranks) + place for place, name in enumerate(names)}
    encoding = tiktoken.Encoding(
        "qwen", pat_str=QWEN_WORDS, mergeable_ranks=ranks, special_tokens={}
    )
    return rows(
        special,
        lambda text: encoding.encode(unicodedata.normalize("NFC", text), disallowed_special=()),
        encoding.decode,
    )


def kimi(path):
    """Kimi's words and special tokens over the ranks of another list, for its own is in no package."""
    ranks = tiktoken.load.load_tiktoken_bpe(str(path))
    names = {0: "[BOS]", 1: "[EOS]", 2: "<|im_end|>", 3: "<|im_user|>", 17: "<|im_middle|>"}
    names |= {11: "<|tool_calls_section_begin|>", 254: "[UNK]", 255: "[PAD]"}
    special = {
        names.get(place, f"<|reserved_token_{len(ranks) + place}|>"): len(ranks) + place
        for place in range(256)
    }
    encoding = tiktoken.Encoding(
        "kimi", pat_str=KIMI_WORDS, mergeable_ranks=ranks, special_tokens={}
    )
    more = [
        "\u4e2d\u6587English\u6df7\u5408",
        "\u4ed6\u8bf4'It'S fine'\u7136\u540eGPT4\u53d1\u5e03\u4e8e2023\u5e743\u670814\u65e5",
        "camelCase HTTPServer parseJSON iPhone McDonald'S x'LL",
        "\u6f22\u5b57\u3068\u304b\u306aKanji\u3001\u30ab\u30bf\u30ab\u30ca",
        "\u3007\u3005\u4e00 \u0301a \u01c5 \u02b0x",
        "<|im_user|>user<|im_middle|>\u4f60\u597d<|im_end|>[EOS]",
        f"<|reserved_token_{len(ranks) + 4}|> <|reserved_token_{len(ranks)}|>",
    ]
    return rows(
        special,
        lambda text: encoding.encode(text, disallowed_special=()),
        encoding.decode,
        more,
    )


def not_legacy(path):
    """Ids where `legacy: false` puts the space before the first word of a text only, if it has none.

    transformers' own `LlamaTokenizer` does that too, but ranks this file's runs of spaces by their ids: its ids of two
    spaces and a word are not SentencePiece's.
    """
    model = path.read_bytes()
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    special = {
        piece.piece: number for number, piece in enumerate(proto.pieces) if piece.type in (2, 3, 4)
    }
    proto.normalizer_spec.add_dummy_prefix = False
    encode = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString()).encode
    pattern = "|".join(re.escape(token) for token in special)
    ids = []
    for text in texts():
        starts_with_word = not re.match(f"{pattern}|[ \u2581]", text)
        ids.append(cut(f" {text}" if starts_with_word else text, special, encode))
    return {"ids": ids}


def main():
    """Writes the file."""
    narrow = str(HERE / "tiny_rules.tsv")
    goldens = {
        "mistral_v1": sentence_piece((DATA / "mistral_v1/tokenizer.model").read_bytes()),
        "mistral_v3": sentence_piece((DATA / "mistral_v3/tokenizer.model.v3").read_bytes()),
        "mistral_v7": sentence_piece((DATA / "mistral_v7/tokenizer.model.v7").read_bytes()),
        "mistral_v2_not_legacy": not_legacy(DATA / "mistral_v2/tokenizer.model"),
        "tekken_240718": tekken(DATA / "tekken_240718/tekken.json"),
        "tekken_240911": tekken(DATA / "tekken_240911/tekken.json"),
        "qwen_tiktoken": qwen(DATA / "qwen_tiktoken/qwen.tiktoken"),
        "kimi_over_qwen": kimi(DATA / "qwen_tiktoken/qwen.tiktoken"),
        # T5's rules for letters, which the package has in a file of its own.
        "tiny_nmt_nfkc": trained(
            more=ruled(),
            keeps_rules=False,
            model_type="unigram",
            vocab_size=400,
            normalization_rule_name="nmt_nfkc",
        ),
        # Small ones for every switch: rules, spaces kept or not, a space before the text or not, bytes or not.
        "tiny_unigram": trained(
            model_type="unigram",
            vocab_size=300,
            normalization_rule_tsv=narrow,
            character_coverage=0.98,
        ),
        "tiny_unigram_bytes": trained(
            model_type="unigram",
            vocab_size=600,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            byte_fallback=True,
        ),
        "tiny_bpe": trained(
            model_type="bpe", vocab_size=400, normalization_rule_tsv=narrow, add_dummy_prefix=False
        ),
        "tiny_bpe_bytes": trained(
            model_type="bpe",
            vocab_size=700,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            byte_fallback=True,
            user_defined_symbols=["<think>", "</think>"],
            control_symbols=["<|im_start|>", "<|im_end|>"],
        ),
    }
    lines = [
        f"{json.dumps(name)}: {json.dumps(golden, ensure_ascii=True)}"
        for name, golden in goldens.items()
    ]
    lines.insert(0, f'"texts": {json.dumps(texts())}')
    (HERE / "vocabularies.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
