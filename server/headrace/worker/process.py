"""What the worker does to its own process: how it ends, its priority, its threads."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_log = logging.getLogger("headrace.worker")

_PR_SET_PDEATHSIG = 1
_NICENESS = 5
_STOP_SECONDS = 5.0

EXIT_STOPPED = 0
EXIT_REFUSED = 1
EXIT_GROUP_FAILED = 3


class ProcessEnd:
    """The ways in which the process ends; each removes the socket file first."""

    def __init__(self, socket: Path) -> None:
        """`socket` is removed at the end, whichever it is."""
        self._socket = socket
        self.is_stopping = False

    def exit_now(self, code: int) -> NoReturn:
        """Ends the process from any thread, also while the main thread sits in a collective."""
        self._socket.unlink(missing_ok=True)
        logging.shutdown()
        sys.stderr.flush()
        os._exit(code)

    def stop(self) -> None:
        """From a signal handler in the main thread: unwinds it with code 0, or ends after a while."""
        if self.is_stopping:
            return
        self.is_stopping = True
        timer = threading.Timer(_STOP_SECONDS, self.exit_now, (EXIT_STOPPED,))
        timer.daemon = True
        timer.start()
        raise SystemExit(EXIT_STOPPED)


def die_with_parent() -> None:
    """Asks the kernel for SIGKILL when the thread that started this process ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def install_signals(stop: Callable[[], None]) -> None:
    """SIGTERM stops cleanly; SIGINT (Ctrl-C in the terminal) is the launcher's business."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def lower_priority() -> None:
    """Below the router's: the front stays quick while kernels take every core."""
    try:
        os.nice(_NICENESS)
    except OSError as error:
        _log.warning("priority not lowered: %s", error)


def watch_parent(fd: int, end: ProcessEnd) -> None:
    """Ends the process when the pipe ends, from a side thread."""

    def wait() -> None:
        try:
            while os.read(fd, 1):
                pass
        except OSError as error:
            _log.warning("the pipe of the launcher (descriptor %d): %s", fd, error)
        if not end.is_stopping:
            _log.warning("the launcher is gone")
        end.exit_now(EXIT_REFUSED)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()


def set_waiting_policy(compute_threads: int) -> None:
    """Before torch is imported: OpenMP's threads sleep when idle, and there are as many as told."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    os.environ["OMP_NUM_THREADS"] = str(compute_threads)
