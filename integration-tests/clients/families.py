"""The client families: an environment each, made once under `.venv-clients`, and the run of their checks.

An environment is made from a requirement file that pins every package in it, so pip resolves nothing. A stamp inside
it holds the file's text: a changed pin makes the environment anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".venv-clients"
NODE = HERE / "node"


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
        install = [*pip, "install", "--quiet", "--no-deps", "-r", str(requirements)]
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


def run(family: Family, url: str) -> Result:
    """Runs the checks of a family against a server."""
    command = family.command(url)
    # A proxy or a key of the caller's own must not reach the clients.
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    env |= {"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=family.seconds, env=env, check=False
        )
        output, log, code = done.stdout, done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace")
        log, code = (late.stderr or b"").decode(errors="replace"), -1
    result = Result({}, [], {}, log)
    for line in output.splitlines():
        # Clients print as well.
        if not line.startswith('{"'):
            continue
        said = json.loads(line)
        result.versions |= said.get("versions", {})
        if said.get("error"):
            result.failed[said["check"]] = said["error"]
        elif "check" in said:
            result.passed.append(said["check"])
    if code != 0 or not (result.passed or result.failed):
        last = (log.strip().splitlines() or ["no output"])[-1]
        what = f"not done within {family.seconds:.0f} s" if code == -1 else f"exit {code}: {last}"
        result.failed["whole"] = what[:300]
    return result


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
