"""Where each microsecond of a decode step goes in the worker: 16 sequences of the demo model, two steps in flight.

    make bench-steps [ARGS="--sequences 16 --seconds 20"]

Everything is read from outside while the server serves: the worker's own account of its time from `/metrics`
(`headrace_worker_seconds_total`), the CPU time of each of its threads from /proc. Nothing is added for the measurement.
The load client is one thread that reads and counts bytes, on the same cores.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import socket
import sys
import time
import urllib.request
from collections import defaultdict
from pathlib import Path

from load import tree_pids
from serve import describe_run, free_port, start_server

# Share of its time in which the compute thread may wait for the router.
IDLE_BAR = 0.02
COMPUTE = {
    "wait": "waits for the next step",
    "mask_wait": "waits for a late mask",
    "hand_over": "hands the outcome over, keeps books",
    "apply": "checks, slots and tables, input tensors (apply)",
    "forward": "the model (forward)",
    "sample": "logits and ids (sample)",
    "other": "advances lengths, fills the outcome",
}
BESIDE = {
    "decode": "message to columns (decode), on the reader thread",
    "encode": "outcome to reply (encode), on the writer thread",
}


class Streams:
    """Greedy streams over HTTP, read as they come."""

    def __init__(self, port: int, count: int, tokens: int) -> None:
        """Sends `count` requests with prompts of their own."""
        self.events = [0] * count
        self._selector = selectors.DefaultSelector()
        for index in range(count):
            prompt = f"Story number {index}: " + "There was a small house by the river. " * 6
            body = json.dumps(
                {
                    "prompt": prompt,
                    "max_tokens": tokens,
                    "ignore_eos": True,
                    "temperature": 0,
                    "stream": True,
                }
            ).encode()
            head = (
                "POST /v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n"
            )
            stream = socket.create_connection(("127.0.0.1", port))
            stream.sendall(head.encode() + body)
            stream.setblocking(False)
            self._selector.register(stream, selectors.EVENT_READ, index)

    def read(self, until: float) -> None:
        """Takes in what comes until the monotonic time `until`."""
        while (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                stream = key.fileobj
                assert isinstance(stream, socket.socket)
                data = stream.recv(1 << 16)
                self.events[key.data] += data.count(b"data:")
                if not data:
                    raise SystemExit(f"stream {key.data} ended during the measurement")

    def close(self) -> None:
        """Leaves; the server notices."""
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()


def page(port: int) -> dict[str, float]:
    """`/metrics` as numbers by series."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value)
        for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    }


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU seconds by thread name of one process."""
    seconds: dict[str, float] = defaultdict(float)
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, rest = (task / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
        if task.name == str(pid):
            name = "compute"
        fields = rest.split()
        # The kernel counts run time in nanoseconds only where schedstat is on.
        ticks = int(fields[11]) + int(fields[12])
        try:
            seconds[name] += int((task / "schedstat").read_text().split()[0]) / 1e9
        except (OSError, IndexError):
            seconds[name] += ticks / os.sysconf("SC_CLK_TCK")
    return seconds


def find(root: int, word: str) -> int:
    """The process below `root` whose command line has `word`."""
    for pid in tree_pids(root):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if any(word.encode() in part for part in command[:3]):
            return pid
    raise SystemExit(f"no process with {word!r} below {root}")


def main() -> int:
    """Prints one Markdown section; exit code 1 if the worker was idle for longer than the bar allows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0, help="window that is measured")
    parser.add_argument("--launcher-args", default="")
    parser.add_argument("--launcher", default=None, help="another launcher than the installed one")
    arguments = parser.parse_args()
    port = free_port()
    server = start_server(port, arguments.launcher_args.split(), arguments.launcher)
    try:
        worker, router = find(server.pid, "headrace.worker"), find(server.pid, "router")
        streams = Streams(port, arguments.sequences, 1500)
        while min(streams.events) < 8:
            streams.read(time.monotonic() + 0.2)
        begun, before = time.monotonic(), page(port)
        threads, routers = thread_seconds(worker), sum(thread_seconds(router).values())
        streams.read(begun + arguments.seconds)
        after, ended = page(port), time.monotonic()
        threads_after, routers_after = thread_seconds(worker), sum(thread_seconds(router).values())
        streams.close()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=120)

    def grown(series: str) -> float:
        return after[series] - before[series]

    def stage(name: str) -> float:
        return grown(f'headrace_worker_seconds_total{{stage="{name}"}}')

    steps = grown('tgi_batch_inference_success{method="decode"}')
    others = grown('tgi_batch_inference_success{method="prefill"}')
    compute = sum(stage(name) for name in COMPUTE)
    idle = stage("wait") + stage("mask_wait")
    wall = ended - begun
    print(describe_run())
    print(
        f"\n{arguments.sequences} sequences, {steps:.0f} decode steps ({others:.0f} others) in {wall:.1f} s: "
        f"{wall / steps * 1e3:.2f} ms a step; the worker was idle {idle / compute:.2%} of its time "
        f"(bar {IDLE_BAR:.0%}); its account covers {compute / wall:.1%} of the window.\n"
    )
    print("| compute thread | µs a step | share |\n| --- | --- | --- |")
    for name, words in COMPUTE.items():
        print(f"| {words} | {stage(name) / steps * 1e6:.1f} | {stage(name) / compute:.2%} |")
    print("\n| beside it | µs a step |\n| --- | --- |")
    for name, words in BESIDE.items():
        print(f"| {words} | {stage(name) / steps * 1e6:.1f} |")
    print("\n| CPU time, by thread | µs a step |\n| --- | --- |")
    rows = {name: threads_after[name] - threads.get(name, 0.0) for name in threads_after}
    for name, seconds in sorted(rows.items(), key=lambda item: -item[1]):
        if seconds / steps > 5e-7:
            print(f"| worker, {name} | {seconds / steps * 1e6:.0f} |")
    print(f"| router, all | {(routers_after - routers) / steps * 1e6:.0f} |")
    return 0 if idle / compute < IDLE_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
