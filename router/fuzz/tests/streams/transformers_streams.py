"""Compares the texts of a file that `HEADRACE_STREAMS_DUMP` named with what transformers decodes.

python router/fuzz/tests/streams/transformers_streams.py FILE

The text is decode(last prompt id + ids) less decode(last prompt id), special tokens skipped, clean-up off.
"""

import json
import os
import sys
from pathlib import Path

from transformers import PreTrainedTokenizerFast

ROOT = Path(__file__).resolve().parents[4]
DATA = Path(os.environ.get("HEADRACE_TEST_DATA") or ROOT / "target/test-data") / "tokenizers"


def main() -> None:
    tokenizers = {}
    compared = differing = 0
    with Path(sys.argv[1]).open(encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            name = row["family"]
            if name not in tokenizers:
                tokenizers[name] = PreTrainedTokenizerFast.from_pretrained(DATA / name)
            tokenizer = tokenizers[name]
            # Ids beyond the vocabulary are padding of the model's output: no text.
            size = len(tokenizer)
            last = [] if row["last"] is None or row["last"] >= size else [row["last"]]
            ids = [number for number in row["ids"] if number < size]

            def decode(ids, tokenizer=tokenizer):
                return tokenizer.decode(
                    ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
                )

            before, whole = decode(last), decode(last + ids)
            compared += 1
            if before + row["text"] != whole:
                differing += 1
                print(
                    f"stream {row['number']}, {name}: {row['text']!r} for {whole[len(before) :]!r}"
                )
    print(f"{compared} texts, {differing} differ from transformers'")
    sys.exit(1 if differing or not compared else 0)


if __name__ == "__main__":
    main()
