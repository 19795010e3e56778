"""Checks the GPU path on a CUDA device and prints one table. Under ten minutes; exit status 1 if a row fails.

    python bench/gpu_check.py [--skip-server]

Today the GPU path is the torch op set (`headrace.ops.TorchOpSet`: cuBLAS products, paged attention in plain torch);
every kernel that is added for GPUs gets its row here. Each op is compared with the same op in float64 on the CPU;
then the installed `launcher` serves the demo model with `--device cuda`, and its greedy ids are compared with the
golden file.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import torch
from headrace.ops import AttentionMetadata, select_op_set

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
Row = tuple[str, str, str, bool]


def compare(name: str, got: torch.Tensor, want: torch.Tensor, tolerance: float) -> Row:
    """One row: the largest difference relative to the largest value."""
    difference = (got.double().cpu() - want.double()).abs().max().item()
    relative = difference / max(want.abs().max().item(), 1e-12)
    return name, f"{relative:.1e}", f"{tolerance:.0e}", relative <= tolerance


def milliseconds(run: Callable[[], object]) -> float:
    """Median of 20 runs by CUDA events, after 5 that do not count."""
    times = []
    for index in range(25):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        if index >= 5:
            times.append(start.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def check_ops(dtype: torch.dtype) -> list[Row]:
    """Every op of the set on the device against float64 on the CPU."""
    device = torch.device("cuda")
    ours = select_op_set(device, dtype, "auto")
    oracle = select_op_set(torch.device("cpu"), torch.float64, "torch")
    tolerance = {torch.float32: 1e-3, torch.bfloat16: 3e-2, torch.float16: 5e-3}[dtype]
    label = f"{ours.name} {str(dtype).removeprefix('torch.')}"
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
        values = torch.randn(*shape, generator=generator).to(dtype)
        return values.to(device), values.double()

    rows = []
    x, x64 = random(64, 576)
    w, w64 = random(1536, 576)
    packed = ours.pack_linear(w)
    got = ours.linear(x, packed, None)
    time_ms = milliseconds(lambda: ours.linear(x, packed, None))
    rows.append(
        compare(f"{label}: linear 64x576x1536 ({time_ms:.3f} ms)", got, x64 @ w64.T, tolerance)
    )
    weight, weight64 = random(576)
    rows.append(
        compare(
            f"{label}: rms_norm",
            ours.rms_norm(x, weight, 1e-5),
            oracle.rms_norm(x64, weight64, 1e-5),
            tolerance,
        )
    )
    gate, gate64 = random(64, 3072)
    rows.append(
        compare(f"{label}: silu_mul", ours.silu_mul(gate), oracle.silu_mul(gate64), tolerance)
    )

    heads, kv_heads, head_dim, block_size, blocks = 9, 3, 64, 16, 32
    lengths = [1, 17, 200]
    tokens = [1, 17, 8]
    q, q64 = random(sum(tokens), heads, head_dim)
    outputs = []
    history, history64 = random(sum(lengths), 2, kv_heads, head_dim)
    for op_set, queries, past, place in (
        (ours, q, history, device),
        (oracle, q64, history64, torch.device("cpu")),
    ):
        kv = op_set.attention.allocate(blocks, kv_heads, head_dim, block_size, poison=True)
        tables, offset = torch.zeros(3, 13, dtype=torch.int32), 0
        free = iter(range(blocks))
        for row, length in enumerate(lengths):
            for column in range(-(-length // block_size)):
                tables[row, column] = next(free)
        full = metadata(lengths, lengths, tables, block_size, place)
        op_set.attention.write(kv, past[:, 0], past[:, 1], full)
        offset = metadata(tokens, lengths, tables, block_size, place)
        outputs.append(op_set.attention.attend(queries, kv, offset, head_dim**-0.5, None))
    rows.append(compare(f"{label}: paged attention, mixed rows", outputs[0], outputs[1], tolerance))
    return rows


def metadata(
    tokens: list[int],
    lengths: list[int],
    tables: torch.Tensor,
    block_size: int,
    device: torch.device,
) -> AttentionMetadata:
    """The last `tokens[r]` tokens of rows that are `lengths[r]` long."""
    starts = torch.tensor([0, *tokens]).cumsum(0).to(torch.int32)
    positions = torch.cat([torch.arange(n - t, n) for t, n in zip(tokens, lengths, strict=True)])
    return AttentionMetadata(
        row_starts=starts.to(device),
        context_lengths=torch.tensor(lengths, dtype=torch.int32, device=device),
        block_tables=tables.to(device),
        positions=positions.to(device),
        block_size=block_size,
    )


def check_server() -> list[Row]:
    """Greedy ids of six golden prompts through the installed launcher on the device."""
    spec = importlib.util.spec_from_file_location("serve", HERE / "serve.py")
    if spec is None or spec.loader is None:
        raise SystemExit("bench/serve.py cannot be loaded")
    serve = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(serve)
    port = serve.free_port()
    server = serve.start_server(port, ["--device", "cuda", "--dtype", "float32"])
    rows = []
    try:
        entries = json.loads(
            (ROOT / "integration-tests/golden/greedy.json").read_text(encoding="utf-8")
        )
        for place in (0, 6, 13, 18, 21, 23):
            entry = entries[place]
            body = {
                "inputs": entry["prompt"],
                "parameters": {"max_new_tokens": 64, "details": True},
            }
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/generate",
                data=json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
            )
            start = time.perf_counter()
            with urllib.request.urlopen(request, timeout=300) as answer:
                ids = [token["id"] for token in json.load(answer)["details"]["tokens"]]
            seconds = time.perf_counter() - start
            # A GPU's products round otherwise than the CPU's: equal up to the first gap below 5e-3.
            near = next((i for i, gap in enumerate(entry["gaps"]) if gap < 5e-3), len(ids))
            equal = ids[:near] == entry["output_ids"][:near]
            name = f"server: {len(entry['prompt_ids'])} tokens in ({len(ids) / seconds:.0f} tok/s)"
            rows.append((name, f"{len(ids)} ids", f"{near} ids", equal))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)
    return rows


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skip-server", action="store_true")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("gpu_check: no CUDA device here; nothing was checked")
        return 2
    rows: list[Row] = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rows += check_ops(dtype)
    if not arguments.skip_server:
        rows += check_server()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {os.cpu_count()} cores, commit {commit}\n"
    )
    print("| check | error | allowed | ok |\n| --- | --- | --- | --- |")
    for name, error, allowed, ok in rows:
        print(f"| {name} | {error} | {allowed} | {'yes' if ok else 'NO'} |")
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
