"""Starts the launcher with the demo model, loads it over HTTP and prints Markdown rows for RESULTS.md.

    make bench [ARGS="--cases a,b,c --concurrency 1,4,16,32 --no-peer"]

Cases: a = 128 tokens in, 128 out; b = 1024 in, 64 out; c = 1000 shared prefix tokens and 30 of its own in, 32 out.
The peer is transformers' `generate` (float32, static batch, in process, so without HTTP and tokenising), run in
the same session on the same machine, because no figure holds from one machine to the next.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# Case -> (prompt tokens, shared prefix tokens, output tokens).
CASES = {"a": (128, 0, 128), "b": (1024, 0, 64), "c": (30, 1000, 32)}


def load_golden_script() -> Any:
    """integration-tests/golden/make_greedy.py knows how to build the demo tokenizer; it is not a package."""
    path = ROOT / "integration-tests" / "golden" / "make_greedy.py"
    spec = importlib.util.spec_from_file_location("make_greedy", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def free_port() -> int:
    """A port that was free a moment ago on the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_server(
    port: int, extra: list[str], launcher: str | None = None
) -> subprocess.Popen[bytes]:
    """Starts `launcher`, else the one beside this Python, and waits until /ready answers 200."""
    launcher = launcher or str(Path(sys.executable).parent / "launcher")
    server = subprocess.Popen(
        [launcher, "--hostname", "127.0.0.1", "--port", str(port), *extra],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise SystemExit(f"launcher ended with {server.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2) as answer:
                if answer.status == 200:
                    return server
        except OSError:
            time.sleep(0.2)
    server.kill()
    raise SystemExit("the server was not ready within 180 s")


def measure(
    port: int, pid: int, case: str, concurrency: str, tokenizer: Path
) -> list[dict[str, Any]]:
    """Runs the load client for one case; one result a concurrency level."""
    prompt_tokens, prefix_tokens, output_tokens = CASES[case]
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [
            sys.executable, str(HERE / "load.py"), "--url", f"http://127.0.0.1:{port}", "--model", "tgi",
            "--concurrency", concurrency, "--prompt-tokens", str(prompt_tokens),
            "--shared-prefix-tokens", str(prefix_tokens), "--max-tokens", str(output_tokens),
            "--ignore-eos", "--tokenizer", str(tokenizer), "--token-ids", "--rounds", "1", "--min-requests", "3",
            "--pid", str(pid), "--label", case, "--out", out.name,
        ]  # fmt: skip
        subprocess.run(command, check=True)
        levels: list[dict[str, Any]] = json.loads(Path(out.name).read_text(encoding="utf-8"))[
            "levels"
        ]
        return levels


def measure_peer(case: str, concurrency: list[int]) -> dict[int, float]:
    """Output tokens per second of transformers' generate, one static batch a level."""
    import torch
    from transformers import AutoModelForCausalLM

    golden = load_golden_script()
    path = golden.demo_gguf()
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    prompt_tokens, prefix_tokens, output_tokens = CASES[case]
    figures = {}
    for level in concurrency:
        ids = torch.randint(100, 40_000, (level, prompt_tokens + prefix_tokens))
        start = time.perf_counter()
        model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False,
            max_new_tokens=output_tokens, min_new_tokens=output_tokens, pad_token_id=0,
        )  # fmt: skip
        figures[level] = level * output_tokens / (time.perf_counter() - start)
    return figures


def cpu_name() -> str:
    """The model name that the kernel reports."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def describe_run() -> str:
    """Day, machine and commit, as each figure needs them."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    day = f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}"
    return f"{day}, {cpu_name()}, {os.cpu_count()} cores, commit {commit}"


def main() -> int:
    """Prints one Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default="a,b,c")
    parser.add_argument("--concurrency", default="1,4,16,32")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--peer-concurrency", default="1,4,16")
    parser.add_argument("--launcher-args", default="")
    arguments = parser.parse_args()
    golden = load_golden_script()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder) / "tokenizer.json"
        golden.build_tokenizer(golden.demo_gguf()).save(str(tokenizer))
        port = free_port()
        server = start_server(port, arguments.launcher_args.split())
        try:
            for case in arguments.cases.split(","):
                rows += [
                    (case, level)
                    for level in measure(port, server.pid, case, arguments.concurrency, tokenizer)
                ]
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(timeout=120)
    peer: dict[str, dict[int, float]] = {}
    if not arguments.no_peer:
        levels = [int(level) for level in arguments.peer_concurrency.split(",")]
        for case in arguments.cases.split(","):
            peer[case] = measure_peer(
                case, [level for level in levels if case == "a" or level <= 4]
            )
    print(f"{describe_run()}\n")
    print(
        "| case | c | out tok/s | in tok/s | TTFT p50/p95 ms | ITL p50/p95 ms | RSS MiB | transformers tok/s | ratio |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for case, level in rows:
        rate = peer.get(case, {}).get(level["concurrency"])
        theirs, ratio = (
            (f"{rate:.1f}", f"{level['output_tok_s'] / rate:.2f}") if rate else ("-", "-")
        )
        ttft, itl = level["ttft_ms"], level["itl_ms"]
        print(
            f"| {case} | {level['concurrency']} | {level['output_tok_s']:.1f} | {level['prompt_tok_s']:.0f} "
            f"| {ttft['p50']:.0f}/{ttft['p95']:.0f} | {itl['p50']:.1f}/{itl['p95']:.1f} "
            f"| {level['server']['peak_rss_mib']:.0f} | {theirs} | {ratio} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
