"""`python -m headrace.hub.download --model-id ID [--revision R] [--cache-dir D]`.

Downloads what is needed to serve a model into huggingface_hub's cache. A snapshot that is complete in the
cache is used as it is, without any network; so is it when the hub cannot be reached.

Standard output has JSON lines: progress; `{"configured": ...}`, the snapshot's path, once the small files
are there and the weights begin; and at last `{"path": ..., "revision": <commit>, "pipeline_tag": ...}`. A
failure is one line on standard error and exit code 1. A connection that breaks is resumed where it broke;
after a restart of this program whole files are kept (huggingface_hub starts an unfinished file again).
"""

from __future__ import annotations

import argparse
import errno
import logging
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from headrace.hub.cached import complete_snapshot
from headrace.hub.progress import progress_bar, write_line
from headrace.hub.selection import INDEX, SelectionError, small_files, weight_files

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULT_REVISION = "main"
_INFO_SECONDS = 20.0
_ATTEMPTS = 4
_PAUSE_SECONDS = 1.0
_CONNECTIONS = 4


class DownloadError(Exception):
    """A download failed; the message is one line for the person who started headrace."""


def fetch(model_id: str, revision: str | None, cache: Path) -> dict[str, object]:
    """Gets a model into the cache.

    Args:
        model_id: `owner/name` on the hub.
        revision: Branch, tag or commit; None: `main`.
        cache: huggingface_hub's cache.

    Returns:
        `path` of the snapshot, its `revision` (a commit) and the hub's `pipeline_tag`, when known.

    Raises:
        DownloadError: For every reason that is not a bug.
    """
    wanted = revision or _DEFAULT_REVISION
    snapshot = complete_snapshot(cache, model_id, wanted)
    if snapshot is not None:
        return {"path": str(snapshot), "revision": snapshot.name, "pipeline_tag": None}
    if constants.is_offline_mode():
        raise DownloadError(
            f"{model_id} (revision {wanted}) is not complete in the cache {cache} "
            "and HF_HUB_OFFLINE is set"
        )
    try:
        return _download(model_id, wanted, cache)
    except SelectionError as error:
        raise DownloadError(f"{model_id} cannot be served: {error}") from error
    except (OSError, HFValidationError) as error:
        raise DownloadError(_words(error, model_id, wanted, cache)) from error
    except Exception as error:
        # The HTTP library of huggingface_hub has been requests, httpx and httpx2; its errors share no base.
        if type(error).__module__.split(".")[0] not in ("httpx", "httpx2", "httpcore", "hf_xet"):
            raise
        raise DownloadError(_words(error, model_id, wanted, cache)) from error


def _download(model_id: str, wanted: str, cache: Path) -> dict[str, object]:
    info = HfApi().model_info(model_id, revision=wanted, files_metadata=True, timeout=_INFO_SECONDS)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    commit = info.sha or wanted

    def one(name: str, at: str) -> Path:
        return _retrying(
            lambda: hf_hub_download(
                model_id,
                name,
                revision=at,
                cache_dir=cache,
                tqdm_class=progress_bar(name, sizes[name]),
            )
        )

    small = small_files(sizes)
    # Refused before anything is downloaded, if the names alone say so.
    if INDEX not in small:
        weight_files(sizes, str)
    first = True
    snapshot: Path | None = None
    for name in small:
        # By the revision's own name once: huggingface_hub then remembers which commit it stood for.
        path = one(name, wanted if first else commit)
        if first:
            snapshot = _root(path, name)
            commit = snapshot.name
            first = False
    weights = weight_files(
        sizes, lambda: (snapshot or Path()).joinpath(INDEX).read_text(encoding="utf-8")
    )
    if snapshot is None:
        snapshot = _root(one(weights[0], wanted), weights[0])
        commit = snapshot.name
    # What the flags ask can be checked against the configuration before gigabytes follow.
    write_line({"configured": str(snapshot)})
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(lambda name: one(name, commit), weights))
    return {"path": str(snapshot), "revision": commit, "pipeline_tag": info.pipeline_tag}


def _root(path: Path, name: str) -> Path:
    """The snapshot folder that holds `name` at `path`."""
    return path.parents[name.count("/")]


def _retrying(get: Callable[[], str]) -> Path:
    """Repeats a download for what may pass: huggingface_hub itself resumes within a file."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return Path(get())
        except Exception as error:
            if not _may_pass(error):
                raise
            time.sleep(_PAUSE_SECONDS * attempt)
    return Path(get())


def _may_pass(error: Exception) -> bool:
    if isinstance(error, HfHubHTTPError):
        return _status(error) >= 500
    if isinstance(error, OSError):
        return error.errno is None
    return type(error).__module__.split(".")[0] in ("httpx", "httpx2", "httpcore")


def _status(error: HfHubHTTPError) -> int:
    response = getattr(error, "response", None)
    return int(getattr(response, "status_code", 0))


def _words(error: Exception, model_id: str, wanted: str, cache: Path) -> str:
    """One line for an error."""
    endpoint = constants.ENDPOINT
    if isinstance(error, GatedRepoError):
        return f"{model_id} is gated: accept its terms on {endpoint} and set HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError) or (
        isinstance(error, HfHubHTTPError) and _status(error) in (401, 403)
    ):
        return f"{model_id} is not a model on {endpoint}, or it is private and HF_TOKEN does not open it"
    if isinstance(error, RevisionNotFoundError):
        return f"{model_id} has no revision {wanted} on {endpoint}"
    if isinstance(error, HFValidationError):
        return f"{model_id} is neither a local path nor a valid model id"
    if isinstance(error, HfHubHTTPError):
        return f"{endpoint} answered {_status(error)} for {model_id}"
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"no space left for {model_id} in {cache}"
    if isinstance(error, PermissionError):
        return f"cannot write to the cache {cache}: {error.strerror}"
    if isinstance(error, OSError) and error.errno is not None:
        return f"cannot write {model_id} to the cache {cache}: {error.strerror}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{endpoint} cannot be reached for {model_id} (revision {wanted}): {lines[0]}"


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m headrace.hub.download",
        description="Download a model from the hub into its cache.",
    )
    parser.add_argument("--model-id", required=True, help="owner/name")
    parser.add_argument("--revision", help="branch, tag or commit; main if absent")
    parser.add_argument("--cache-dir", type=Path, help="cache of huggingface_hub")
    parser.add_argument(
        "--print-json", action="store_true", help="JSON lines on standard output (always so)"
    )
    parsed = parser.parse_args(arguments)
    # Its warnings (retries, anonymous use) would stand between the lines of this program.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    cache = parsed.cache_dir or Path(constants.HF_HUB_CACHE)
    try:
        write_line(fetch(parsed.model_id, parsed.revision, cache))
    except DownloadError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
