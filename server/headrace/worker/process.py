"""What the worker does to its own process: how it ends, its priority, its threads."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

_log = logging.getLogger("headrace.worker")

_PR_SET_PDEATHSIG = 1
_NICENESS = 5
_STOP_SECONDS = 3.0

EXIT_STOPPED = 0
EXIT_REFUSED = 1
EXIT_GROUP_FAILED = 3


class ProcessEnd:
    """The ways in which the process ends; each removes the socket file first."""

    def __init__(self, socket: Path) -> None:
        """`socket` is removed at the end, whichever it is."""
        self._socket = socket
        self.is_stopping = False
        # SIGTERM came; the main thread may not have seen it yet.
        self.is_told = False

    @property
    def is_ending(self) -> bool:
        """Whether it ends or was told to, the main thread's own view aside."""
        return self.is_stopping or self.is_told

    def exit_now(self, code: int) -> NoReturn:
        """Ends the process from any thread, also while the main thread sits in a collective."""
        # No lock is taken here, the log's included: whoever holds one may never give it back.
        self._socket.unlink(missing_ok=True)
        os._exit(code)

    def stop(self) -> None:
        """From a signal handler in the main thread: unwinds it with code 0."""
        if not self.is_stopping:
            self.is_stopping = True
            raise SystemExit(EXIT_STOPPED)

    def exit_soon(self) -> None:
        """From a side thread: the main thread may sit in a kernel or a collective and never see a signal."""
        time.sleep(_STOP_SECONDS)
        self.exit_now(EXIT_STOPPED)


def die_with_parent() -> None:
    """Asks the kernel for SIGKILL when the thread that started this process ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def install_signals(end: ProcessEnd) -> None:
    """SIGTERM stops cleanly; SIGINT (Ctrl-C in the terminal) is the launcher's business."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def watch() -> None:
        # Python runs handlers in the main thread only, between two of its own instructions; the bytes that
        # the C handler writes are seen here whatever that thread is doing.
        while number := os.read(read_end, 1):
            if number[0] == signal.SIGTERM:
                end.is_told = True
                end.exit_soon()

    threading.Thread(target=watch, name="signal-watch", daemon=True).start()
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda _number, _frame: end.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def name_thread(name: str) -> None:
    """The calling thread's name in `top -H` and `perf`, at most 15 bytes."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            comm = f"/proc/self/task/{threading.get_native_id()}/comm"
            Path(comm).write_text(name, encoding="ascii")


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
        finally:
            # Nobody is left to read a log line.
            end.exit_now(EXIT_REFUSED)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()


def set_waiting_policy(compute_threads: int) -> None:
    """Before torch is imported: OpenMP's threads sleep when idle, and there are as many as told."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    os.environ["OMP_NUM_THREADS"] = str(compute_threads)
