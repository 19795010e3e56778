"""Build backend of the one wheel: stages the real binaries, then hands over to maturin.

maturin builds either an extension module or binaries, not both, and says nothing about the ones it leaves out.
So the binaries are built here and laid into maturin's data folder, whose `scripts/` go on PATH. One cargo
profile serves this wheel and the tests (ADR 0004), so a tree that was tested is installed without compiling.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import maturin

ROOT = Path(__file__).resolve().parent.parent
# Command name -> name of the binary that cargo makes.
COMMANDS = {
    "launcher": "launcher",
    "router": "router",
    "text-generation-launcher": "launcher",
    "text-generation-server": "launcher",
}
PACKAGES = ["headrace-launcher", "headrace-router"]


def _target_directory() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def _stage_binaries() -> None:
    command = ["cargo", "build", "--locked"]
    for package in PACKAGES:
        command += ["--package", package]
    # cargo's progress goes to stderr, which pip shows with -v.
    completed = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
    if completed.returncode != 0:
        message = f"cargo build failed with exit code {completed.returncode}"
        raise RuntimeError(message)
    scripts = ROOT / "target" / "wheel-data" / "scripts"
    if scripts.exists():
        shutil.rmtree(scripts)
    scripts.mkdir(parents=True)
    for name, binary in COMMANDS.items():
        shutil.copy2(_target_directory() / "debug" / binary, scripts / name)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 517: binaries first, then the wheel."""
    _stage_binaries()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """PEP 660: Python sources stay in place, binaries and the extension are copies."""
    _stage_binaries()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """PEP 517."""
    return maturin.build_sdist(sdist_directory, config_settings)


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """PEP 517: nothing beyond pyproject's `requires`."""
    return maturin.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """PEP 660."""
    return maturin.get_requires_for_build_editable(config_settings)


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """PEP 517."""
    return maturin.get_requires_for_build_sdist(config_settings)
