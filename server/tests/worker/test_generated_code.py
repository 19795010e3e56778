"""The committed protobuf code is what the generator makes of the protocol today."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
COMMITTED = REPOSITORY / "server/headrace/pb"


def test_regenerated_code_equals_the_committed(tmp_path):
    pytest.importorskip("grpc_tools")
    script = REPOSITORY / "proto/generate.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True, timeout=60)
    names = {"worker_pb2.py", "worker_pb2.pyi", "worker_pb2_grpc.py"}
    assert {path.name for path in tmp_path.iterdir()} == names
    for name in names:
        assert (tmp_path / name).read_bytes() == (COMMITTED / name).read_bytes(), name
    assert subprocess.run([sys.executable, script, "--check"], timeout=60).returncode == 0
