"""Renders chats with transformers: the right answers of `real_templates.rs` and `snippets.rs`.

Reads a JSON list of `{template or text, messages, options}` from standard input, where `template` is a file and
`options` are arguments of `render_jinja_template`, and writes a JSON list of `{text}` or `{error, raised}`; `raised`
says that the template itself refused, in its own words.

`apply_chat_template` drops every key whose value is None before it calls this function; that a template gets null or
an empty text is headrace's choice and no part of what is compared.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"}


@cache
def template(path: str) -> str:
    """The text of one file, as transformers reads it."""
    return Path(path).read_text(encoding="utf-8")


def render(case: dict[str, Any]) -> dict[str, Any]:
    """One chat."""
    text = case["text"] if "text" in case else template(case["template"])
    try:
        rendered, _ = render_jinja_template(
            [case["messages"]], chat_template=text, **(TOKENS | case["options"])
        )
    except jinja2.exceptions.TemplateError as error:
        return {"error": str(error), "raised": type(error) is jinja2.exceptions.TemplateError}
    except Exception as error:  # noqa: BLE001 (whatever a template does wrong is its answer)
        return {"error": f"{type(error).__name__}: {error}", "raised": False}
    return {"text": rendered[0]}


if __name__ == "__main__":
    answers = [render(case) for case in json.loads(sys.stdin.buffer.read())]
    sys.stdout.buffer.write(json.dumps(answers).encode())
