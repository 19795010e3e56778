"""Chats to ids with transformers: the right answers of `control_tokens.rs`.

Reads a JSON object `{folder, template, chats}` from standard input; `folder` holds `tokenizer.json` and
`tokenizer_config.json`, `template` stands in for a model's own where it has none, a chat is `{messages, guarded}`.
Writes a JSON list of ids.

`guarded` asks for added tokens in the content of the only message as text. The right ids are then those of three parts:
up to the last control token of the template before the content, from the first after it, and between them the text
with none of them parsed. (`sanitize_control_tokens` of transformers encodes what it guards apart from the text around it,
and so changes more ids than it must.)
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast


def encode(
    tokenizer: PreTrainedTokenizerFast, plain: Tokenizer, template: str, chat: dict[str, Any]
) -> list[int]:
    """The ids of one chat."""

    def render(messages: list[dict[str, str]]) -> str:
        rendered: str = tokenizer.apply_chat_template(
            messages,
            chat_template=tokenizer.chat_template or template,
            tokenize=False,
            add_generation_prompt=True,
        )
        return rendered

    text = render(chat["messages"])
    if not chat["guarded"]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids
    message = chat["messages"][0]
    start = render([message | {"content": "PLACE"}]).index("PLACE")
    # Some templates trim.
    content = message["content"]
    if not text.startswith(content, start):
        content = content.strip()
    assert text.startswith(content, start)
    tokens = (re.escape(token.content) for token in tokenizer.added_tokens_decoder.values())
    control = re.compile("|".join(sorted(tokens, key=len, reverse=True)))
    before = [match.end() for match in control.finditer(text[:start])]
    after = control.search(text, start + len(content))
    first = before[-1] if before else 0
    last = after.start() if after else len(text)
    return [
        *tokenizer.encode(text[:first], add_special_tokens=False),
        *plain.encode(text[first:last], add_special_tokens=False).ids,
        *tokenizer.encode(text[last:], add_special_tokens=False),
    ]


def main() -> None:
    """Answers the list."""
    asked = json.loads(sys.stdin.buffer.read())
    tokenizer = PreTrainedTokenizerFast.from_pretrained(asked["folder"], local_files_only=True)
    # The same without added tokens. (`split_special_tokens` leaves those that are not flagged special.)
    pipeline = json.loads((Path(asked["folder"]) / "tokenizer.json").read_text(encoding="utf-8"))
    plain = Tokenizer.from_str(json.dumps(pipeline | {"added_tokens": []}))
    answers = [encode(tokenizer, plain, asked["template"], chat) for chat in asked["chats"]]
    sys.stdout.buffer.write(json.dumps(answers).encode())


if __name__ == "__main__":
    main()
