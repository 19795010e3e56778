"""Telling failures apart."""

from __future__ import annotations

import torch

_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that memory ran out. torch's CPU allocator raises a bare RuntimeError."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(w in str(error) for w in _OUT_OF_MEMORY)


_NO_DEVICE = (
    "no nvidia driver",
    "no cuda gpus",
    "not compiled with cuda",
    "invalid device ordinal",
)


def is_configuration_fault(error: BaseException) -> bool:
    """Whether another attempt with the same flags and files would fail in the same way.

    Sizes that kernels refuse are ValueError; torch says by AssertionError or RuntimeError that there is no device.
    """
    if isinstance(error, (ValueError, NotImplementedError)):
        return True
    words = str(error).lower()
    return isinstance(error, (RuntimeError, AssertionError)) and any(w in words for w in _NO_DEVICE)


_LOST_PEER = ("closed by peer", "connection reset", "broken pipe", "connection refused")


def is_lost_peer(error: BaseException) -> bool:
    """Whether a collective failed because another rank's process is gone (gloo's and the socket's words)."""
    words = str(error).lower()
    return any(w in words for w in _LOST_PEER)


def one_line(error: BaseException) -> str:
    """The type and the first line of the message of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
