"""Starting, stopping and failing, as a person at a terminal sees it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from conftest import BIN, Server, StartServer, children_of, free_port, wait_ready


def test_sigterm_lets_streams_finish_and_leaves_nothing(start_server: StartServer) -> None:
    server = start_server()
    descendants = children_of(server.process.pid)
    assert descendants
    body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 200}}
    lines = []
    with httpx.stream("POST", f"{server.url}/generate_stream", json=body, timeout=120) as stream:
        source = stream.iter_lines()
        lines.append(next(source))
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        refused = httpx.post(f"{server.url}/generate", json=body)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert httpx.get(f"{server.url}/ready").status_code == 503
        assert httpx.get(f"{server.url}/health").status_code == 200
        lines += list(source)
    last = json.loads([line for line in lines if line.startswith("data:")][-1][5:])
    assert last["generated_text"] is not None
    assert server.process.wait(timeout=30) == 0
    assert [pid for pid in descendants if Path(f"/proc/{pid}").exists()] == []
    assert list(server.temp.iterdir()) == []


def test_second_signal_ends_at_once(start_server: StartServer) -> None:
    server = start_server()
    descendants = children_of(server.process.pid)
    body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 2000}}
    with httpx.stream("POST", f"{server.url}/generate_stream", json=body, timeout=120) as stream:
        lines = stream.iter_lines()  # kept: dropping the generator would close the connection
        next(lines)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGINT)
        server.process.wait(timeout=10)
    time.sleep(0.2)
    assert [pid for pid in descendants if Path(f"/proc/{pid}").exists()] == []
    assert list(server.temp.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--model-id", "/nonexistent/model"], "/nonexistent/model"),
        (["--max-total-tokens", "many"], "--max-total-tokens"),
        (["--no-such-flag"], "--no-such-flag"),
        (["--quantize", "gptq"], "--quantize"),
    ],
)
def test_a_bad_start_ends_within_five_seconds_with_the_name(
    arguments: list[str], named: str
) -> None:
    started = time.monotonic()
    port = str(free_port())
    ended = subprocess.run(
        [str(BIN / "launcher"), "--hostname", "127.0.0.1", "--port", port, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert time.monotonic() - started < 5
    assert ended.returncode != 0
    assert named in ended.stderr + ended.stdout
    assert "Traceback" not in ended.stderr


def test_busy_port_is_named(server: Server) -> None:
    port = server.url.rsplit(":", 1)[1]
    started = time.monotonic()
    ended = subprocess.run(
        [str(BIN / "launcher"), "--hostname", "127.0.0.1", "--port", port],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert time.monotonic() - started < 5
    assert ended.returncode != 0
    assert port in ended.stderr


def test_broken_gguf_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + os.urandom(200))
    started = time.monotonic()
    ended = subprocess.run(
        [
            str(BIN / "launcher"),
            "--hostname",
            "127.0.0.1",
            "--port",
            str(free_port()),
            "--model-id",
            str(broken),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert time.monotonic() - started < 5
    assert ended.returncode != 0
    assert "broken.gguf" in ended.stderr


def stream_once(server: Server, seed: int) -> int:
    """One stream that may be left at any moment; returns how many ends it saw."""
    draw = random.Random(seed)
    body: dict = {
        "inputs": "word " * draw.choice([1, 20, 300]),
        "parameters": {"max_new_tokens": draw.choice([1, 20, 60])},
    }
    if draw.random() < 0.3:
        body["parameters"]["stop"] = ["e", "the word"]
    leave_after = draw.choice([0, 0.02, 0.1, 0.5, None, None])
    started = time.monotonic()
    ends = 0
    try:
        timeout = httpx.Timeout(60, read=leave_after if leave_after else 60)
        with httpx.stream(
            "POST", f"{server.url}/generate_stream", json=body, timeout=timeout
        ) as stream:
            for line in stream.iter_lines():
                if (
                    line.startswith("data:")
                    and json.loads(line[5:]).get("generated_text") is not None
                ):
                    ends += 1
                if leave_after is not None and time.monotonic() - started > leave_after:
                    return -1
    except httpx.ReadTimeout:
        return -1
    return ends


def test_two_hundred_requests_with_random_leavers_give_everything_back(server: Server) -> None:
    router = next(pid for pid in children_of(server.process.pid) if pid not in server.workers())
    wait_ready(server)
    sockets_before = len(list(Path(f"/proc/{router}/fd").iterdir()))
    with ThreadPoolExecutor(max_workers=24) as pool:
        outcomes = list(pool.map(lambda seed: stream_once(server, seed), range(200)))
    assert set(outcomes) == {-1, 1}, outcomes
    deadline = time.monotonic() + 20
    while (
        server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") > 0
    ):
        assert time.monotonic() < deadline, "requests are left running"
        time.sleep(0.05)
    blocks = {
        state: server.metric(f"headrace_kv_blocks_{state}")
        for state in ("free", "owned", "cached", "total")
    }
    assert blocks["owned"] == 0
    assert blocks["free"] + blocks["cached"] == blocks["total"]
    time.sleep(0.5)
    assert len(list(Path(f"/proc/{router}/fd").iterdir())) <= sockets_before + 4
