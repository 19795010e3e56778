"""Complete snapshots in the hub's cache, found without any network."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.hub.selection import INDEX, SelectionError, small_files, weight_files

if TYPE_CHECKING:
    from pathlib import Path

_COMMIT = re.compile(r"^[0-9a-f]{40}$")


def repository_folder(cache: Path, model_id: str) -> Path:
    """Where the cache keeps a model (huggingface_hub's documented layout)."""
    return cache / ("models--" + model_id.replace("/", "--"))


def complete_snapshot(cache: Path, model_id: str, revision: str) -> Path | None:
    """The snapshot folder of a revision, if everything that is needed lies in it.

    Small files are downloaded before weights, so a snapshot with all its weights is complete.
    """
    repository = repository_folder(cache, model_id)
    if _COMMIT.match(revision):
        commit = revision
    else:
        try:
            commit = (repository / "refs" / revision).read_text(encoding="utf-8").strip()
        except OSError:
            return None
    snapshot = repository / "snapshots" / commit
    if not _COMMIT.match(commit) or not snapshot.is_dir():
        return None
    # A link whose blob is not there yet is not a file.
    names = [str(p.relative_to(snapshot)) for p in snapshot.rglob("*") if p.is_file()]
    try:
        weights = weight_files(
            names, lambda: (snapshot / INDEX).read_text(encoding="utf-8", errors="replace")
        )
    except SelectionError:
        return None
    has_config = weights[0].endswith(".gguf") or "config.json" in small_files(names)
    return snapshot if has_config and all((snapshot / name).is_file() for name in weights) else None
