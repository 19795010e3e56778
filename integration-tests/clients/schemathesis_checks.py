"""schemathesis over the served OpenAPI document: no answer is a fault of the server, and each is as the document says.

    python schemathesis_checks.py URL

Good requests of every operation come first, then made-up ones. Control routes are left out (they drain the server),
and so is every check that would ask for more than the document promises.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import jsonschema_rs
import schemathesis
from checks import run
from schemathesis_requests import BODIES, EVENTS, NAMES

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
]
EXAMPLES = 100
"""An operation, at most: the time ends before most have had so many."""
SECONDS = 420
"""For all phases together."""


def command(url: str, *options: str) -> None:
    """Runs it; the tail of its report is the message of what it finds."""
    program = Path(sys.executable).with_name("schemathesis")
    document = f"{url.rstrip('/')}/openapi.json"
    fixed = ["--exclude-tag", "Control", "--checks", ",".join(CHECKS), "--seed", "1"]
    # Bodies with many alternatives are slow to make up, which is no fault.
    fixed += ["--suppress-health-check", "all", "--no-shrink", "--continue-on-failure"]
    fixed += ["--request-timeout", "120", "--warnings", "off", "--max-time", str(SECONDS)]
    arguments = [str(program), "run", document, *fixed, *options]
    here = str(Path(__file__).resolve().parent)
    env = os.environ | {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": here}
    # It keeps notes where it runs.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            timeout=SECONDS + 150,
            check=False,
            env=env,
            cwd=folder,
        )
    sys.stderr.write(done.stdout + done.stderr)
    found = done.stdout.partition("FAILURES ==")[2] or done.stdout[-1500:]
    assert done.returncode == 0, " ".join(found.split())


def validate_events(answer: schemathesis.Response, shapes: dict, body: object) -> None:
    """The document has a stream's events as text; what the text is, is said in words alone."""
    if "text/event-stream" not in answer.headers.get("content-type", [""])[0]:
        return
    name = next(shape for key, shape in EVENTS.items() if key in body)
    schema = {"$ref": f"#/components/schemas/{name}", "components": shapes}
    validator = jsonschema_rs.Draft202012Validator(schema)
    events = [line.removeprefix("data:") for line in answer.text.split("\n\n") if line]
    if name != "StreamResponse":
        assert events.pop().strip() == "[DONE]", answer.text[-200:]
    assert events
    for event in events:
        validator.validate(json.loads(event))


def check_good_answers_match_the_document(url: str) -> None:
    document = schemathesis.openapi.from_url(f"{url.rstrip('/')}/openapi.json")
    shapes = document.raw_schema["components"]
    wrong = []
    for found in document.exclude(tag="Control").get_all_operations():
        operation = found.ok()
        names = {name: NAMES[name] for name in re.findall(r"{(\w+)}", operation.path)}
        # An operation with a body that the list does not have is a KeyError with its name.
        bodies = BODIES[operation.label] if operation.body else [None]
        for body in bodies:
            more = {} if body is None else {"body": body, "media_type": "application/json"}
            case = operation.Case(path_parameters=names, **more)
            answer = case.call(timeout=120)
            try:
                assert answer.status_code == 200, f"{answer.status_code}: {answer.text}"
                case.validate_response(answer)
                validate_events(answer, shapes, body)
            except Exception as problem:  # noqa: BLE001 - all are told at once
                wrong.append(f"{operation.label} {body}: {problem!r}"[:400])
    assert not wrong, "; ".join(wrong)


def check_made_up_requests_are_no_fault(url: str) -> None:
    phases = "examples,coverage,fuzzing"
    command(url, "--phases", phases, "--max-examples", str(EXAMPLES))


if __name__ == "__main__":
    run(globals(), "schemathesis")
