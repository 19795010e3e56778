"""Starts the installed `launcher` (beside this Python) and talks to it as a client would."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

BIN = Path(sys.executable).parent
GOLDEN = Path(__file__).resolve().parent / "golden"
FULL = os.environ.get("HEADRACE_FULL") == "1"
START_SECONDS = 180


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def children_of(pid: int) -> list[int]:
    """Every descendant of a process that still runs."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, open_ends = [], [pid]
    while open_ends:
        for child in parents.get(open_ends.pop(), []):
            found.append(child)
            open_ends.append(child)
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@dataclass
class Server:
    """A running launcher."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    temp: Path
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=300))

    def workers(self) -> list[int]:
        found = [
            pid for pid in children_of(self.process.pid) if "headrace.worker" in command_line(pid)
        ]
        return sorted(found)

    def generate(self, prompt: str, **parameters: object) -> dict:
        body = {
            "inputs": prompt,
            "parameters": {"max_new_tokens": 64, "details": True, **parameters},
        }
        answer = self.client.post(f"{self.url}/generate", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def generate_all(self, prompts: list[str], **parameters: object) -> list[dict]:
        with ThreadPoolExecutor(max_workers=len(prompts)) as pool:
            return list(pool.map(lambda prompt: self.generate(prompt, **parameters), prompts))

    def metric(self, name: str) -> float:
        """The sum of a metric's samples over its labels."""
        text = self.client.get(f"{self.url}/metrics").text
        lines = [line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
        assert lines, f"no metric {name}"
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def wait_idle(self, seconds: float = 60) -> None:
        """Until no request is in the house: those whose clients left are gone."""
        deadline = time.monotonic() + seconds
        while (
            self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") > 0
        ):
            assert time.monotonic() < deadline, f"requests are left after {seconds} s"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 120) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=seconds)

    def logged(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


StartServer = Callable[..., Server]


def launch(*arguments: str, env: dict[str, str] | None = None) -> Server:
    """Starts a launcher; whoever calls this waits for it and ends it."""
    port = free_port()
    # A temporary directory of its own shows what a launcher leaves behind.
    temp = Path(tempfile.mkdtemp(prefix="headrace-test-"))
    log = temp.with_suffix(".log")
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(BIN / "launcher"), "--hostname", "127.0.0.1", "--port", str(port), *arguments],
            stdout=sink,
            stderr=sink,
            env={**os.environ, "TMPDIR": str(temp), **(env or {})},
        )
    return Server(process, f"http://127.0.0.1:{port}", log, temp)


@pytest.fixture(scope="session")
def start_session_server() -> Iterator[StartServer]:
    started: list[Server] = []

    def start(*arguments: str, wait: bool = True, env: dict[str, str] | None = None) -> Server:
        server = launch(*arguments, env=env)
        started.append(server)
        if wait:
            wait_ready(server)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()


class StartError(AssertionError):
    """A launcher ended or took too long; the message has the end of its log."""


def wait_ready(server: Server, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            raise StartError(f"launcher ended: {server.logged()[-2000:]}")
        try:
            if server.client.get(f"{server.url}/ready", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise StartError(f"not ready within {seconds} s: {server.logged()[-2000:]}")


@pytest.fixture
def start_server(start_session_server: StartServer) -> Iterator[StartServer]:
    """Servers that end with the test."""
    mine: list[Server] = []

    def start(*arguments: str, **options: object) -> Server:
        server = start_session_server(*arguments, **options)
        mine.append(server)
        return server

    yield start
    for server in mine:
        server.stop(signal.SIGTERM)


@pytest.fixture(scope="session")
def server(start_session_server: StartServer) -> Server:
    """One server with default flags for the tests that do not care."""
    return start_session_server()


@pytest.fixture(scope="session")
def crowded(start_session_server: StartServer) -> Server:
    """One request at a time, for those who have the key `secret` and know the model's name."""
    return start_session_server(
        "--max-concurrent-requests", "1", "--api-key", "secret", "--strict-model-name"
    )


@pytest.fixture(scope="session")
def golden() -> list[dict]:
    """transformers' greedy answers; see golden/make_greedy.py."""
    return json.loads((GOLDEN / "greedy.json").read_text(encoding="utf-8"))


def output_ids(answer: dict) -> list[int]:
    return [token["id"] for token in answer["details"]["tokens"]]


def same_ids(answer: dict, entry: dict) -> None:
    """Equal ids up to the first step where transformers' own top two are closer than 1e-3."""
    near = next((i for i, gap in enumerate(entry["gaps"]) if gap < 1e-3), len(entry["gaps"]))
    expected = entry["output_ids"]
    got = output_ids(answer)
    assert got[:near] == expected[:near], f"differs for {entry['prompt'][:60]!r}"
    if near == len(entry["gaps"]):
        assert got == expected
        assert answer["generated_text"] == entry["text"]
