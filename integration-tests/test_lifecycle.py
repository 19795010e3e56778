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
from conftest import BIN, FULL, Server, StartServer, children_of, free_port, output_ids, wait_ready

# Requests whose clients leave when they like.
LEAVERS = 1000 if FULL else 200


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
        (["--device", "tpu"], "--device tpu: must be one of auto, cpu, cuda; did you mean cpu?"),
        (["--kv-cache-memory", "1"], "--kv-cache-memory 1: "),
        (["--kv-cache-memory", "1MB", "--max-total-tokens", "64"], "--max-total-tokens 64: "),
        (["--max-batch-total-tokens", "32", "--max-input-tokens", "32"], "--max-input-tokens 32: "),
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
    # One line, before anything was started.
    (line,) = ended.stderr.splitlines()
    assert named in line
    assert "listen" not in ended.stdout


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


def router_of(server: Server) -> int:
    return next(pid for pid in children_of(server.process.pid) if pid not in server.workers())


def test_a_killed_router_comes_back_on_its_port_and_the_worker_stays(
    start_server: StartServer,
) -> None:
    server = start_server()
    before = server.generate("The capital of France is", max_new_tokens=16)
    router, workers = router_of(server), server.workers()

    def ask(number: int) -> str:
        try:
            return server.generate(f"{number} bottles", max_new_tokens=2000)["generated_text"]
        except httpx.TransportError:
            return "lost"

    with ThreadPoolExecutor(max_workers=8) as pool:
        answers = [pool.submit(ask, number) for number in range(8)]
        while server.metric("vllm:num_requests_running") < 8:
            time.sleep(0.05)
        os.kill(router, signal.SIGKILL)
        assert [answer.result() for answer in answers] == ["lost"] * 8
    wait_ready(server, seconds=30)
    assert server.client.get(f"{server.url}/health").status_code == 200
    assert server.workers() == workers
    assert router_of(server) != router
    after = server.generate("The capital of France is", max_new_tokens=16)
    assert output_ids(after) == output_ids(before)
    assert server.stop() == 0
    assert list(server.temp.iterdir()) == []


def test_a_killed_launcher_leaves_no_process_and_its_directory_is_swept(
    start_server: StartServer,
) -> None:
    server = start_server()
    descendants = children_of(server.process.pid)
    assert len(descendants) >= 2
    left = list(server.temp.iterdir())
    server.process.kill()
    server.process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in descendants):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.05)
    assert list(server.temp.iterdir()) == left
    following = start_server(env={"TMPDIR": str(server.temp)})
    assert not left[0].exists()
    assert following.stop() == 0
    assert list(server.temp.iterdir()) == []


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


def test_requests_with_random_leavers_give_everything_back(server: Server) -> None:
    router = router_of(server)
    wait_ready(server)
    sockets_before = len(list(Path(f"/proc/{router}/fd").iterdir()))
    with ThreadPoolExecutor(max_workers=24) as pool:
        outcomes = list(pool.map(lambda seed: stream_once(server, seed), range(LEAVERS)))
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
