"""schemathesis over the served OpenAPI document: no answer is a fault of the server, and each is as the document says.

    python schemathesis_checks.py URL

Control routes are left out (they drain the server), and so is every check that would ask for more than the document
promises.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checks import run

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


def schemathesis(url: str, *options: str) -> None:
    """Runs it; the tail of its report is the message of what it finds."""
    program = Path(sys.executable).with_name("schemathesis")
    document = f"{url.rstrip('/')}/openapi.json"
    fixed = ["--exclude-tag", "Control", "--checks", ",".join(CHECKS), "--seed", "1"]
    # Bodies with many alternatives are slow to make up, which is no fault.
    fixed += ["--suppress-health-check", "all", "--no-shrink", "--continue-on-failure"]
    fixed += ["--request-timeout", "120", "--warnings", "off", "--max-time", str(SECONDS)]
    command = [str(program), "run", document, *fixed, *options]
    here = str(Path(__file__).resolve().parent)
    env = os.environ | {"SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": here}
    # It keeps notes where it runs.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            command,
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


def check_document(url: str) -> None:
    phases = "examples,coverage,fuzzing"
    schemathesis(url, "--phases", phases, "--max-examples", str(EXAMPLES))


if __name__ == "__main__":
    run(globals(), "schemathesis")
