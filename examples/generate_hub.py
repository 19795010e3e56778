"""Streams text with huggingface_hub's client: python examples/generate_hub.py "The capital of France is"."""

from __future__ import annotations

import os
import sys

from huggingface_hub import InferenceClient


def main() -> int:
    """Prints the text as it comes, then why it ended."""
    prompt = " ".join(sys.argv[1:]) or "The capital of France is"
    client = InferenceClient(
        os.environ.get("HEADRACE_URL", "http://127.0.0.1:3000"), api_key=os.environ.get("API_KEY")
    )
    for piece in client.text_generation(prompt, max_new_tokens=60, stream=True, details=True):
        if not piece.token.special:
            sys.stdout.write(piece.token.text)
            sys.stdout.flush()
        if piece.details is not None:
            sys.stdout.write(f"\n[{piece.details.finish_reason}]\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
