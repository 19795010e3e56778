"""Runs real clients against a server and writes the table of docs/compatibility.md: `make clients`.

    python integration-tests/run_clients.py [FAMILY ...] [--url URL]

Without names all families run. Each one's result is kept in `.venv-clients/results`, and the table is written from all
that are there: name the families that a broken-off run has not reached. Exit 1 when a check failed or a family
could not be installed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import conftest
from clients import families
from clients.families import FAMILIES, InstallError, Result

HERE = Path(__file__).resolve().parent
RESULTS = families.ENVIRONMENTS / "results"
PAGE = families.ROOT / "docs" / "compatibility.md"
BEGIN = "<!-- written by `make clients` -->"
END = "<!-- end of what `make clients` writes -->"

# Those that share the environment of the other tests, and their package.
IN_PYTEST = {"hub": "huggingface_hub", "openai": "openai"}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("family", nargs="*", help=f"of {', '.join([*IN_PYTEST, *FAMILIES])}")
    parser.add_argument(
        "--url", help="of a running server with the demo model; without it one is started"
    )
    asked = parser.parse_args()
    names = asked.family or [*IN_PYTEST, *FAMILIES]
    unknown = [name for name in names if name not in IN_PYTEST and name not in FAMILIES]
    if unknown:
        parser.error(f"no such family: {', '.join(unknown)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    # A result of before must not stand for one that is asked for now.
    for name in names:
        (RESULTS / f"{name}.json").unlink(missing_ok=True)
    fine = True
    server = None
    try:
        for name in names:
            if name in FAMILIES and asked.url is None and server is None:
                server = conftest.launch()
                say(f"server: {server.url}, its log: {server.log}")
                conftest.wait_ready(server)
            fine &= one(name, asked.url or (server.url if server else ""))
    except conftest.StartError as error:
        say(f"no family can run: {error}")
        fine = False
    finally:
        if server is not None:
            server.stop()
        write_table(PAGE)
        say(f"the table is in {PAGE.relative_to(families.ROOT)}")
    return 0 if fine else 1


def one(name: str, url: str) -> bool:
    """Runs one family, says so in one line and keeps the result."""
    began = time.monotonic()
    try:
        result = in_pytest(name) if name in IN_PYTEST else families.run(FAMILIES[name], url)
    except InstallError as error:
        result = Result({}, [], {families.NOT_INSTALLED: str(error)})
    kept = RESULTS / f"{name}.json"
    keep(result, kept)
    took = time.monotonic() - began
    say(f"{name} ({versions(result)}): {result.sentence()} in {took:.0f} s")
    for check, error in result.failed.items():
        say(f"  {check}: {error.splitlines()[0] if error else error}")
    if result.failed:
        say(f"  what it wrote: {kept.relative_to(families.ROOT)}")
    return not result.failed


def in_pytest(name: str) -> Result:
    """The checks of a client that the test suite has."""
    report = RESULTS / f"{name}.xml"
    command = [
        sys.executable, "-m", "pytest", "-q", str(HERE / f"test_{name}_client.py"), f"--junitxml={report}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not report.exists():
        raise InstallError((done.stdout + done.stderr).strip().splitlines()[-1])
    package = IN_PYTEST[name]
    result = Result({package: version(package)}, [], {}, done.stdout[-8000:])
    for case in ET.parse(report).iter("testcase"):
        title = case.attrib["name"].removeprefix("test_").replace("_", " ")
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        if bad is None:
            result.passed.append(title)
        else:
            result.failed[title] = bad.attrib.get("message", "failed").splitlines()[0][:300]
    report.unlink()
    return result


def keep(result: Result, file: Path) -> None:
    file.write_text(json.dumps(asdict(result), indent=1), encoding="utf-8")


def write_table(file: Path) -> None:
    """Rows of all results that are kept; of a family that never ran here the page keeps its row."""
    page = file.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    old, _, after = rest.partition(END)
    rows = dict(re.findall(r"^\| (\S+) \|(.*)$", old, re.MULTILINE))
    for name in [*IN_PYTEST, *FAMILIES]:
        kept = RESULTS / f"{name}.json"
        if kept.exists():
            rows[name] = row(Result(**json.loads(kept.read_text(encoding="utf-8"))))
    lines = [f"| {name} |{rows[name]}" for name in [*IN_PYTEST, *FAMILIES] if name in rows]
    table = "\n".join(
        ["| family | versions | exercised | result |", "| --- | --- | --- | --- |", *lines]
    )
    file.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", encoding="utf-8")


def row(result: Result) -> str:
    # What stands for the family as a whole (it was not installed, it ended) is no check.
    failed = [check for check in result.failed if check not in families.OF_THE_WHOLE]
    exercised = ", ".join([*result.passed, *failed]) or "-"
    said = "; ".join(f"{check}: {error}" for check, error in result.failed.items())
    said = " ".join(said.replace("|", "\\|").split())[:400]
    return f" {versions(result)} | {exercised} | {said or 'all pass'} |"


def versions(result: Result) -> str:
    return ", ".join(f"{package} {number}" for package, number in result.versions.items()) or "-"


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
