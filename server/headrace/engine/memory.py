"""How much memory the KV cache may take."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch

CPU_SHARE = 0.4
"""Of what is free, for the KV caches of all local ranks."""

CUDA_SHARE = 0.9

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_KIB = 1024


def free_bytes(device: torch.device, proc: Path = _PROC, cgroup: Path = _CGROUP) -> int:
    """What this process could still take: of the machine and, on the CPU, of its cgroup's limit."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    available = _field(proc / "meminfo", "MemAvailable") * _KIB
    return min([available, *_cgroup_room(proc, cgroup)])


def kv_budget(device: torch.device, activation_bytes: int, local_ranks: int) -> int:
    """Bytes of one rank's KV cache.

    On the CPU at most 40 % of the smaller of free memory and what the cgroup leaves, less what the
    largest step needs again, divided by the ranks of this machine (each measures before any allocates).
    """
    share = CPU_SHARE if device.type == "cpu" else CUDA_SHARE
    ranks = local_ranks if device.type == "cpu" else 1
    left = free_bytes(device) - activation_bytes * ranks
    return max(0, int(left * share) // ranks)


def _field(path: Path, name: str) -> int:
    """The number behind `name` in a file of `name: number` or `name number` lines."""
    for line in path.read_text(encoding="ascii").splitlines():
        words = line.replace(":", " ").split()
        if words and words[0] == name:
            return int(words[1])
    return 0


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        # Absent, or the word "max".
        return None


def _cgroup_room(proc: Path, root: Path) -> list[int]:
    """Limit less use of every memory cgroup above this process; page cache that can go counts as free."""
    rooms = []
    try:
        lines = (proc / "self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, files, cache = root, ("memory.max", "memory.current"), "inactive_file"
        elif "memory" in controllers.split(","):
            base = root / "memory"
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            cache = "total_inactive_file"
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            folder = base.joinpath(*parts[:depth])
            limit, used = _number(folder / files[0]), _number(folder / files[1])
            if limit is None or used is None:
                continue
            reclaimable = _field(folder / "memory.stat", cache)
            rooms.append(max(0, limit - max(0, used - reclaimable)))
    return rooms


class PeakMeter:
    """Measures how much memory a piece of work takes and gives back again."""

    def __init__(self, device: torch.device) -> None:
        """Starts measuring."""
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
            return
        # 5: reset the peak of the resident size. Where that is not allowed the peak is that of the whole
        # life so far: an over-estimate, never too low.
        with contextlib.suppress(OSError):
            (_PROC / "self/clear_refs").write_text("5", encoding="ascii")
        self._before = _field(_PROC / "self/status", "VmRSS") * _KIB

    def peak(self) -> int:
        """Bytes above the start, at the highest point."""
        if self._device.type == "cuda":
            return max(0, torch.cuda.max_memory_allocated(self._device) - self._before)
        return max(0, _field(_PROC / "self/status", "VmHWM") * _KIB - self._before)
