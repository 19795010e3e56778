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
    instances = body.get("instances")
    for part in [body, *(instances if isinstance(instances, list) else [])]:
        if not isinstance(part, dict):
            continue
        if "messages" in part or "prompt" in part:
            shorten(part, "max_tokens")
            part.pop("max_completion_tokens", None)
        if "inputs" in part:
            # `null` is the same as absent.
            parameters = {} if part.get("parameters") is None else part["parameters"]
            part["parameters"] = parameters
            if isinstance(parameters, dict):
                shorten(parameters, "max_new_tokens")
