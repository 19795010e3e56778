"""Loaded by schemathesis: made-up bodies ask for a few tokens where they would ask for a whole context."""

from typing import Any

import schemathesis

TOKENS = 4


def shorten(limits: dict[str, Any], key: str) -> None:
    """Bounds a length that is absent or a good one; what is wrong about it stays wrong."""
    asked = limits.get(key)
    if asked is None or (type(asked) is int and asked > TOKENS):
        limits[key] = TOKENS


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    body = case.body
    if not isinstance(body, dict):
        return
    if "messages" in body or "prompt" in body:
        shorten(body, "max_tokens")
        body.pop("max_completion_tokens", None)
    instances = body.get("instances")
    for part in [body, *(instances if isinstance(instances, list) else [])]:
        if isinstance(part, dict) and "inputs" in part:
            parameters = part.setdefault("parameters", {})
            if isinstance(parameters, dict):
                shorten(parameters, "max_new_tokens")
