"""Faults while many streams run: each text must be what it is without them, and nothing may be left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import deadly_worker
import httpx
import pytest
from conftest import FULL, Server, StartServer, children_of, wait_ready
from streaming import (
    Arrivals,
    Ask,
    Heard,
    asks,
    assert_same,
    hostile,
    listen,
    listen_to_all,
    listening,
)

STREAMS = 32
KILLS = 10 if FULL else 1
HOSTILE = 3000 if FULL else 400

# Longer than the watchdog's 30 seconds of silence, a restart, and the rest of the texts.
STOPPED_SECONDS = 240


@pytest.fixture(scope="module")
def many() -> list[Ask]:
    return asks(STREAMS)


@pytest.fixture(scope="module")
def shared(start_session_server: StartServer) -> Server:
    """One server for the tests that kill only its workers."""
    return start_session_server("--max-restarts", "100")


@pytest.fixture(scope="module")
def undisturbed(shared: Server, many: list[Ask]) -> list[Heard]:
    heard = listen_to_all(shared, many)
    assert all(len(one.ends) == 1 and one.errors == [] for one in heard)
    return heard


def wait_until(what: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def tokens(server: Server) -> float:
    return server.metric("vllm:generation_tokens_total")


def assert_nothing_held(server: Server) -> None:
    """Within moments nothing runs and every block is free or cached."""
    wait_until(
        lambda: (
            server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting")
            == 0
        )
    )
    wait_until(lambda: server.metric("headrace_kv_blocks_owned") == 0, 10)
    books = [server.metric(f"headrace_kv_blocks_{state}") for state in ("free", "cached", "total")]
    assert books[0] + books[1] == books[2]


@pytest.mark.timeout(1800 if FULL else 300)
def test_killed_workers_cost_thirty_two_streams_a_pause(
    shared: Server, many: list[Ask], undisturbed: list[Heard]
) -> None:
    for number in range(KILLS):
        before = tokens(shared)
        with listening(shared, many) as streams:
            # In the middle, late and early.
            part = (0.5, 0.8, 0.2)[number % 3]
            due = sum(len(one.ids) for one in undisturbed) * part
            wait_until(lambda: tokens(shared) - before > due)  # noqa: B023 (it is over before the next)
            for worker in shared.workers():
                os.kill(worker, signal.SIGKILL)
            assert httpx.get(f"{shared.url}/health", timeout=10).status_code == 200
            heard = [stream.result() for stream in streams]
        assert_same(heard, undisturbed)
        assert_nothing_held(shared)


def test_a_stopped_worker_is_found_and_its_streams_go_on(
    shared: Server, many: list[Ask], undisturbed: list[Heard]
) -> None:
    before = tokens(shared)
    wait_ready(shared)
    (stopped,) = shared.workers()
    with listening(shared, many) as streams:
        wait_until(lambda: tokens(shared) - before > 100)
        os.kill(stopped, signal.SIGSTOP)
        started = time.monotonic()
        # The watchdog's 30 seconds of silence, and no more than a few looks of it.
        wait_until(lambda: not Path(f"/proc/{stopped}").exists(), 60)
        assert time.monotonic() - started > 20
        heard = [stream.result(timeout=STOPPED_SECONDS) for stream in streams]
    assert_same(heard, undisturbed)
    assert_nothing_held(shared)


def test_a_killed_rank_of_two_restarts_the_group_once_and_every_stream_goes_on(
    start_server: StartServer,
) -> None:
    server = start_server("--num-shard", "2")
    many = asks(8)
    due = listen_to_all(server, many)
    ranks = server.workers()
    assert len(ranks) == 2
    before = tokens(server)
    with listening(server, many) as streams:
        wait_until(lambda: tokens(server) - before > 60)
        os.kill(ranks[1], signal.SIGKILL)
        heard = [stream.result() for stream in streams]
    assert_same(heard, due)
    assert_nothing_held(server)
    # The rank that lived went too, and both came back, once.
    assert not set(ranks) & set(server.workers())
    assert len(server.workers()) == 2
    assert server.logged().count("the workers start again in") == 1


@pytest.fixture
def deadly_python(tmp_path: Path) -> Path:
    """A Python whose worker dies of some requests: see `deadly_worker`."""
    script = tmp_path / "python"
    worker = Path(deadly_worker.__file__)
    script.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(worker))} "$@"\n'
    )
    script.chmod(0o755)
    return script


@pytest.mark.timeout(900)
def test_requests_that_kill_the_worker_end_with_an_error_and_the_others_are_undisturbed(
    start_server: StartServer, deadly_python: Path
) -> None:
    # Small steps: most of the time goes into starting workers, and those begin with the largest step.
    small = ("--max-batch-prefill-tokens", "32", "--max-batch-size", "8")
    # The deaths of the search are more than these restarts, and do not count.
    server = start_server("--python", str(deadly_python), "--max-restarts", "2", *small)
    good = asks(6 if FULL else 3)
    due = listen_to_all(server, good)
    # One in the middle of its stream, and one at its first token.
    at = [5, 0] if FULL else [5]
    bad = [
        Ask(
            f"Poison {output}.",
            {"max_new_tokens": 20, "do_sample": True, "seed": deadly_worker.DEADLY + output},
        )
        for output in at
    ]
    with listening(server, [*good, *bad]) as streams:
        heard = [stream.result() for stream in streams]
    assert_same(heard[: len(good)], due)
    for output, victim in zip(at, heard[len(good) :], strict=True):
        assert victim.ends == []
        (error,) = victim.errors
        assert "died twice while it ran this request alone" in error
        # What came before is kept, each token once.
        assert len(victim.ids) == output
    assert server.metric("headrace_isolations_total") >= 1
    assert server.process.poll() is None
    assert_nothing_held(server)
    # The server is as good as new.
    assert_same(listen_to_all(server, good[:1]), due[:1])


@pytest.mark.timeout(1800 if FULL else 300)
def test_hostile_bodies_change_no_byte_of_good_streams(
    shared: Server, many: list[Ask], undisturbed: list[Heard]
) -> None:
    wait_ready(shared)
    workers = shared.workers()
    good = many[:8]
    statuses: dict[int, int] = {}

    def attack(seed: int) -> None:
        route, body = hostile(seed)
        headers = {"content-type": "application/json"}
        answer = httpx.post(f"{shared.url}{route}", content=body, headers=headers, timeout=120)
        statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
        assert answer.status_code < 500 or answer.status_code == 503, (seed, route, answer.text)
        if answer.status_code >= 400:
            problem = answer.json()
            assert problem.get("error"), (seed, answer.text)

    seeds = iter(range(HOSTILE))
    rounds = 0
    with ThreadPoolExecutor(max_workers=4) as attackers:
        attacks = [attackers.submit(attack, seed) for seed in seeds]
        while rounds == 0 or not all(one.done() for one in attacks):
            assert_same(listen_to_all(shared, good), undisturbed[:8])
            rounds += 1
        for one in attacks:
            one.result()
    assert set(statuses) <= {200, 400, 404, 413, 415, 422, 429}, statuses
    assert sum(statuses.get(status, 0) for status in (400, 422)) > HOSTILE / 2, statuses
    assert shared.workers() == workers, "a body ended a worker"
    assert_nothing_held(shared)


def unread_stream(server: Server, max_new_tokens: int) -> socket.socket:
    """Asks for a long stream of large events and reads nothing of it."""
    host, port = server.url.removeprefix("http://").split(":")
    parameters = {"max_new_tokens": max_new_tokens, "top_n_tokens": 5, "details": True}
    body = json.dumps({"inputs": "Once upon a time", "parameters": parameters})
    client = socket.socket()
    # Little room on this side, so that little more than the server's own buffers has to fill.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, int(port)))
    client.sendall(
        f"POST /generate_stream HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}".encode()
    )
    return client


def test_unread_streams_are_dropped_and_hold_nobody_up(
    start_server: StartServer, many: list[Ask]
) -> None:
    server = start_server("--stall-timeout", "3")
    good = many[:4]
    due = listen_to_all(server, good)
    stalled = [unread_stream(server, 4000) for _ in range(4)]
    try:
        wait_until(lambda: server.metric("vllm:num_requests_running") >= 4)
        rounds = 0
        deadline = time.monotonic() + 200
        while server.metric("vllm:num_requests_running") > 0:
            assert_same(listen_to_all(server, good), due)
            rounds += 1
            assert time.monotonic() < deadline, "unread streams are kept"
        assert rounds > 0
        assert_nothing_held(server)
        # Nobody was told that such a stream ended well.
        for client in stalled:
            client.settimeout(20)
            read = b""
            # The server does not wait for what it still had for such a client.
            with suppress(ConnectionResetError):
                while chunk := client.recv(1 << 16):
                    read += chunk
            assert b'"finish_reason"' not in read
    finally:
        for client in stalled:
            client.close()


def test_a_drain_under_load_cuts_nobody(start_server: StartServer) -> None:
    server = start_server()
    descendants = children_of(server.process.pid)
    streams = asks(16, max_new_tokens=60)
    due = listen_to_all(server, streams)
    before = tokens(server)
    with Arrivals(server) as arrivals, listening(server, streams) as listeners:
        wait_until(lambda: tokens(server) - before > 100)
        server.process.send_signal(signal.SIGTERM)
        assert_same([one.result() for one in listeners], due)
    assert set(arrivals.statuses) == {200, 503}, set(arrivals.statuses)
    # What was refused stays refused: no 200 after the first 503 but for those that were in before.
    assert server.process.wait(timeout=60) == 0
    assert [pid for pid in descendants if Path(f"/proc/{pid}").exists()] == []
    assert list(server.temp.iterdir()) == []


def test_a_second_sigterm_ends_a_drain_at_once(start_server: StartServer) -> None:
    server = start_server()
    descendants = children_of(server.process.pid)
    long = Ask("Once upon a time", {"max_new_tokens": 3000})
    with ThreadPoolExecutor(max_workers=4) as pool:
        cut = [pool.submit(listen, server, long) for _ in range(4)]
        wait_until(lambda: server.metric("vllm:num_requests_running") == 4)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(timeout=10) == 128 + signal.SIGTERM
        for one in cut:
            # Cut in mid-stream, or closed before its end: never an end that is none.
            if one.exception() is None:
                assert one.result().ends == []
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in descendants), 5)
    assert list(server.temp.iterdir()) == []
