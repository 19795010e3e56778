"""Streams one chat answer with OpenAI's client: python examples/stream_chat.py "Why is the sky blue?"."""

from __future__ import annotations

import os
import sys

from openai import OpenAI


def main() -> int:
    """Prints the answer as it comes."""
    question = " ".join(sys.argv[1:]) or "What is the capital of France?"
    client = OpenAI(
        base_url=os.environ.get("HEADRACE_URL", "http://127.0.0.1:3000") + "/v1",
        api_key=os.environ.get("API_KEY", "-"),
    )
    stream = client.chat.completions.create(
        model="tgi",
        messages=[{"role": "user", "content": question}],
        max_tokens=200,
        temperature=0,
        stream=True,
    )
    for chunk in stream:
        for choice in chunk.choices:
            sys.stdout.write(choice.delta.content or "")
            sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
