"""What `make clients` makes of a family's output, without a client."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import run_clients
from clients.families import Family, InstallError, Result, must, run
from conftest import command_line


@dataclass(frozen=True)
class Script(Family):
    """A family whose checks are a few lines of Python."""

    code: str = ""

    def command(self, url: str) -> list[str]:
        return [sys.executable, "-c", self.code, url]


def outcome(code: str, seconds: float = 60) -> Result:
    return run(Script("made-up", seconds=seconds, code=code), "http://127.0.0.1:1")


def test_lines_of_the_checks_count_and_those_of_a_client_do_not() -> None:
    result = outcome(
        """if True:
        import json
        print(json.dumps({"versions": {"client": "1.0"}}))
        print('{"a client prints": "this"}')
        print('{"or this')
        print(json.dumps({"check": "chat", "error": None}))
        print(json.dumps({"check": "errors", "error": "no such error"}))
        """
    )
    assert result.versions == {"client": "1.0"}
    assert (result.passed, result.failed) == (["chat"], {"errors": "no such error"})


def test_a_crash_between_checks_is_a_failure_of_the_whole() -> None:
    result = outcome('print(\'{"check": "chat", "error": null}\'); raise SystemExit(\'lost\')')
    assert (result.passed, result.failed) == (["chat"], {"whole": "exit 1: lost"})
    assert outcome("").failed == {"whole": "no check ran: it wrote nothing"}


def test_what_a_client_leaves_behind_ends_with_it() -> None:
    result = outcome(
        """if True:
        import json, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(json.dumps({"versions": {"child": str(child.pid)}}))
        print(json.dumps({"check": "load", "error": None}))
        """
    )
    assert result.failed == {}
    deadline = time.monotonic() + 30
    while command_line(int(result.versions["child"])):
        assert time.monotonic() < deadline, "the child still runs"
        time.sleep(0.05)


def test_checks_that_take_too_long_are_a_failure_of_the_whole() -> None:
    result = outcome("import time; time.sleep(600)", seconds=1)
    assert result.failed == {"whole": "not done within 1 s: it wrote nothing"}


def test_keys_and_proxies_of_the_caller_do_not_reach_a_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "https_proxy", "OPENAI_BASE_URL", "PYTHONPATH"):
        monkeypatch.setenv(name, "mine")
    code = 'import json, os; print(json.dumps({"versions": dict(os.environ)}))'
    seen = outcome(code).versions
    assert "mine" not in seen.values()
    assert seen["PATH"] == os.environ["PATH"]


def test_a_family_that_cannot_be_installed_is_one_line() -> None:
    script = (
        "import sys; print('a long story', file=sys.stderr); sys.exit('ERROR: no such version')"
    )
    with pytest.raises(InstallError) as raised:
        must([sys.executable, "-c", script], "pip install -r x.txt")
    assert str(raised.value) == "pip install -r x.txt: ERROR: no such version"
    line = run_clients.row(Result({}, [], {"not installed": str(raised.value)}))
    assert line == " - | - | not installed: pip install -r x.txt: ERROR: no such version |"


def test_the_table_keeps_rows_of_families_that_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"before\n{run_clients.BEGIN}\n| litellm | litellm 1.0 | chat | all pass |\n"
        f"| gone | gone 1.0 | chat | all pass |\n{run_clients.END}\nafter\n"
    )
    results = tmp_path / "results"
    results.mkdir()
    failed = Result({"langchain-huggingface": "2.0"}, ["chat"], {"errors": "a | b"})
    run_clients.keep(failed, results / "langchain.json")
    monkeypatch.setattr(run_clients, "RESULTS", results)
    run_clients.write_table(page)
    assert page.read_text().splitlines() == [
        "before",
        run_clients.BEGIN,
        "| family | versions | exercised | result |",
        "| --- | --- | --- | --- |",
        "| langchain | langchain-huggingface 2.0 | chat, errors | errors: a \\| b |",
        "| litellm | litellm 1.0 | chat | all pass |",
        run_clients.END,
        "after",
    ]
