"""The one wheel has the binaries, the package and the extension, and they run."""

from __future__ import annotations

import importlib.metadata
import subprocess

import pytest
from conftest import BIN

COMMANDS = ("launcher", "router", "text-generation-launcher", "text-generation-server")


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run_and_name_their_version(command: str) -> None:
    shown = subprocess.run(
        [str(BIN / command), "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip().endswith(importlib.metadata.version("headrace"))


def test_wheel_lists_binaries_and_extension() -> None:
    names = [str(file) for file in importlib.metadata.files("headrace") or []]
    for command in COMMANDS:
        assert [name for name in names if name.endswith(f"bin/{command}")], command
    assert [name for name in names if name.startswith("headrace/_kernels") and name.endswith(".so")]
    assert "headrace/worker/__main__.py" in names
    assert not [name for name in names if name.startswith(("tests/", "headrace/tests/"))]
