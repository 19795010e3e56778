"""Telling failures apart."""

from __future__ import annotations

import torch

_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out. torch's CPU allocator raises a bare RuntimeError."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error) for w in _OUT_OF_MEMORY)


def one_line(error: BaseException) -> str:
    """The type and the first line of the message of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
