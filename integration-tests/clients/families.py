"""The client families: an environment each, made once under `.venv-clients`, and the run of their checks.

An environment is made from a requirement file that pins every package in it, so pip resolves nothing. A stamp inside
it holds the file's text: a changed pin makes the environment anew.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".venv-clients"
NODE = HERE / "node"


# What a result's `failed` has beside checks: the environment, and the run itself.
NOT_INSTALLED = "not installed"
WHOLE = "whole"
OF_THE_WHOLE = {NOT_INSTALLED, WHOLE}


class InstallError(Exception):
    """A family's packages cannot be installed; the message is one line."""


@dataclass(frozen=True)
class Family:
    """One environment and one script of checks."""

    name: str
    """Of the requirement file, the environment and, with `_checks`, the script."""
    seconds: float = 600
    """What its checks may take."""
    shares_runtime: bool = False
    """Also sees the packages of the Python that runs this one (torch, transformers)."""
    node: bool = False

    def python(self) -> Path:
        """The interpreter of its environment, which is made first where it is missing."""
        folder = ENVIRONMENTS / self.name
        requirements = HERE / f"{self.name}.txt"
        wanted = requirements.read_text(encoding="utf-8") + sys.version
        stamp = folder / "installed"
        python = folder / "bin" / "python"
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return python
        shutil.rmtree(folder, ignore_errors=True)
        # One pip for all: the one of this Python.
        must([sys.executable, "-m", "venv", "--without-pip", str(folder)], "venv")
        if self.shares_runtime:
            for packages in folder.glob("lib/python3*/site-packages"):
                runtime = Path(sys.prefix) / packages.relative_to(folder)
                (packages / "runtime.pth").write_text(f"{runtime}\n", encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
        # --no-deps: the file pins all there is to install.
        # --no-compile: much of a load tool is never imported.
        install = [*pip, "install", "--quiet", "--no-deps", "--no-compile", "-r", str(requirements)]
        must(install, f"pip install -r {requirements.name}")
        stamp.write_text(wanted, encoding="utf-8")
        return python

    def command(self, url: str) -> list[str]:
        """What runs the checks."""
        script = f"{self.name.replace('-', '_')}_checks"
        if self.node:
            return [node_program(), str(NODE / f"{script}.mjs"), url]
        return [str(self.python()), str(HERE / f"{script}.py"), url]


FAMILIES = {
    family.name: family
    for family in [
        Family("text-generation"),
        Family("langchain"),
        Family("litellm"),
        Family("llama-index"),
        Family("openai-node", node=True),
        Family("huggingface-node", node=True),
        Family("lm-eval", seconds=1800, shares_runtime=True),
        Family("aiperf", seconds=1800, shares_runtime=True),
        Family("vllm-bench", seconds=1800, shares_runtime=True),
        Family("schemathesis", seconds=900),
    ]
}


@dataclass
class Result:
    """What one run of a family's checks said."""

    versions: dict[str, str]
    passed: list[str]
    failed: dict[str, str]
    log: str = ""

    def sentence(self) -> str:
        """For people."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"{len(self.passed)} checks passed{failed}"


# Keys, addresses and module paths of the caller's own must not reach the clients.
KEPT_VARIABLES = {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH"}


def run(family: Family, url: str) -> Result:
    """Runs the checks of a family against a server."""
    command = family.command(url)
    env = {name: value for name, value in os.environ.items() if name in KEPT_VARIABLES}
    env |= {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as logged,
    ):
        # A session of its own, so that what a load tool leaves behind ends with it.
        process = subprocess.Popen(
            command, stdout=said, stderr=logged, env=env, start_new_session=True
        )
        try:
            code = process.wait(timeout=family.seconds)
            end = f"exit {code}" if code else ""
        except subprocess.TimeoutExpired:
            end = f"not done within {family.seconds:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        logged.seek(0)
        result = Result({}, [], {}, logged.read())
        for line in said:
            take(line, result)
    if end or not (result.passed or result.failed):
        last = (result.log.strip().splitlines() or ["it wrote nothing"])[-1]
        result.failed[WHOLE] = f"{end or 'no check ran'}: {last}"[:300]
    return result


def take(line: str, result: Result) -> None:
    """Notes a line that `checks.py` wrote; clients print as well, and theirs are passed over."""
    try:
        said = json.loads(line)
    except ValueError:
        return
    match said:
        case {"versions": dict(versions)}:
            result.versions |= versions
        case {"check": str(check), "error": None}:
            result.passed.append(check)
        case {"check": str(check), "error": str(error)}:
            result.failed[check] = error


def node_program() -> str:
    """Node, with the packages of the lock file beside the scripts."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise InstallError("node and npm (Node 20 or newer) are not installed")
    lock = (NODE / "package-lock.json").read_text(encoding="utf-8")
    stamp = NODE / "node_modules" / "installed"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != lock:
        must([npm, "ci", "--prefix", str(NODE), "--no-audit", "--no-fund"], "npm ci")
        stamp.write_text(lock, encoding="utf-8")
    return node


def must(command: list[str], what: str) -> None:
    """Runs an installer; of a failed one the last line that says something is the message."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in said if "error" in line.lower()]
        raise InstallError(f"{what}: {(errors or said or ['failed'])[-1].strip()[:300]}")
