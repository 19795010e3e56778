"""Progress of downloads as JSON lines on standard output.

{"stage": "download", "file": "model.safetensors", "done": 1048576, "total": 269060552}
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_SECONDS_BETWEEN = 0.2
_lock = threading.Lock()


def write_line(fields: dict[str, object]) -> None:
    """Writes one line; safe from any thread."""
    with _lock:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


class LineProgress:
    """What huggingface_hub takes for a tqdm bar of one file; prints lines instead."""

    file = ""
    total: float = 0

    def __init__(self, *_arguments: object, initial: float = 0, **_options: object) -> None:
        """Called by huggingface_hub with tqdm's arguments."""
        self.n = initial
        self._told = 0.0

    def update(self, n: float | None = 1) -> None:
        """Adds bytes; prints a few lines a second at most, and the last one."""
        self.n += n or 0
        now = time.monotonic()
        if now - self._told >= _SECONDS_BETWEEN or self.n >= self.total > 0:
            self._told = now
            write_line(
                {
                    "stage": "download",
                    "file": self.file,
                    "done": int(self.n),
                    "total": int(self.total),
                }
            )

    def __enter__(self) -> Self:
        """A bar is a context."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to close."""

    def close(self) -> None:
        """Nothing to close."""

    def refresh(self, *_arguments: object, **_options: object) -> None:
        """Nothing to redraw."""

    def set_description(self, *_arguments: object, **_options: object) -> None:
        """The file's name is shown anyway."""

    def set_description_str(self, *_arguments: object, **_options: object) -> None:
        """The file's name is shown anyway."""

    def set_postfix_str(self, *_arguments: object, **_options: object) -> None:
        """Rates are for the reader of the lines to compute."""


def progress_bar(file: str, total: int) -> type[LineProgress]:
    """A class to give to huggingface_hub.

    Args:
        file: Name of the file, as in the repository.
        total: Its size in bytes; 0: not known.
    """
    return type("FileProgress", (LineProgress,), {"file": file, "total": total})
