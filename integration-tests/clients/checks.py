"""Runs the checks of one client family and writes a JSON line for each; needs the standard library alone.

    python FAMILY_checks.py URL

A family's script has functions `check_*`, each of which takes the server's URL and raises where the client does not
get what it should. The first line names the versions: {"versions": {"litellm": "1.110.2"}}; then
{"check": "chat stream", "error": null} for each.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
COUNT = "1, 2, 3, 4, 5, 6,"
"""A prompt, and how the model goes on with it."""
COUNTED = " 7, 8, 9"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


def report(line: dict) -> None:
    """Writes one line at once: what came before a crash is not lost."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def refusal(kind: type[BaseException], call: Callable[[], object], *words: str) -> BaseException:
    """The error of that kind which the call raises; each of the words is in its text."""
    try:
        call()
    except kind as error:
        text = str(error)
        missing = [word for word in words if word not in text]
        assert not missing, f"{missing} not in {text!r}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def run(names: dict[str, object], *packages: str) -> None:
    """Runs all `check_*` among the names, in the order of their definition."""
    url = sys.argv[1]
    report({"versions": {package: version(package) for package in packages}})
    for name, check in names.items():
        if not name.startswith("check_") or not callable(check):
            continue
        error = None
        try:
            if inspect.iscoroutinefunction(check):
                asyncio.run(check(url))
            else:
                check(url)
        except Exception as problem:  # noqa: BLE001 - whatever a client raises is the result
            traceback.print_exc()
            where = traceback.extract_tb(problem.__traceback__)
            line = next((f.lineno for f in reversed(where) if f.name == name), 0)
            error = f"{type(problem).__name__} (line {line}): {problem}"[:600]
        report({"check": name.removeprefix("check_").replace("_", " "), "error": error})
