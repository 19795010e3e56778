"""`bench/gpu_check.py` on the CPU: the script that is run where a GPU is must not have rotted until then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from conftest import FULL

SCRIPT = Path(__file__).resolve().parent.parent / "bench" / "gpu_check.py"


def test_gpu_check_passes_on_the_cpu() -> None:
    part = [] if FULL else ["--skip-server"]
    command = [sys.executable, str(SCRIPT), "--device", "cpu", *part]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert sum(line.endswith("| yes |") for line in rows) == len(rows) - 2, done.stdout
    assert any("bit order" in line for line in rows)
