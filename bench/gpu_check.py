"""Checks the GPU path on a CUDA device and prints one table. Under ten minutes; exit status 1 if a row fails.

    make gpu-check [ARGS="--skip-server"]
    python bench/gpu_check.py --device cpu      # the same rows without a GPU: what the script itself does is tried

Today the GPU path is the torch op set (`headrace.ops.TorchOpSet`: cuBLAS products, paged attention in plain torch) and
torch operations in sampling; every kernel that is added for GPUs gets its row here.

- `gpu_device.py`: each op, grammar masks in the sampler and prompt logprobs, compared with float64 on the CPU;
- `gpu_server.py`: the installed `launcher` serves the demo model in float32; greedy, regex-bound and schema-bound
  answers beside each other, prompt logprobs, and streams whose worker is killed, compared with transformers'.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import torch
from gpu_device import check_device
from gpu_server import check_server
from serve import ROOT, cpu_name


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--skip-server", action="store_true")
    parser.add_argument("--launcher", help="default: the one beside this Python")
    parser.add_argument("--launcher-args", default="")
    arguments = parser.parse_args()
    on_gpu = arguments.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        print("gpu_check: no CUDA device here; nothing was checked (--device cpu tries the script)")
        return 2
    start = time.monotonic()
    rows = check_device(torch.device(arguments.device))
    if not arguments.skip_server:
        rows += check_server(arguments.device, arguments.launcher_args.split(), arguments.launcher)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    place = torch.cuda.get_device_name() if on_gpu else f"{cpu_name()} (no GPU was used)"
    seconds = time.monotonic() - start
    print(
        f"{place}, torch {torch.__version__}, {os.cpu_count()} cores, commit {commit}, "
        f"{seconds:.0f} s\n"
    )
    print("| check | error | allowed | ok |\n| --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row.name} | {row.error} | {row.allowed} | {'yes' if row.ok else 'NO'} |")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
