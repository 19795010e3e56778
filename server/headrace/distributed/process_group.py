"""The ranks that hold one model together, and their collectives.

A group of one rank never touches torch.distributed. Sums have one order whatever the number of rows:
with two ranks an all-reduce is one commutative addition an element; with more, every rank gathers all
parts and adds them in rank order.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

# A rank that never comes is noticed by the launcher (its process ended) or by the router's step
# watchdog, which is shorter; this only keeps an orphan from waiting for ever. Ranks may differ by
# minutes in loading weights.
_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class ProcessGroup:
    """One rank's view of the group.

    Attributes:
        rank: 0 to `world_size - 1`.
        world_size: Ranks that hold the model.
        device: Where control tensors live: collectives of the back end need it.
    """

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def connect(
        cls, rank: int, world_size: int, rendezvous: Path, device: torch.device | None = None
    ) -> ProcessGroup:
        """Meets the other ranks; returns when all are there.

        Args:
            rank: This rank.
            world_size: How many ranks there are. One: nothing is opened.
            rendezvous: A file that does not exist yet, the same for all ranks of one start.
            device: Where tensors live; CPU: Gloo on the loop-back interface, CUDA: NCCL.
        """
        where = device or torch.device("cpu")
        if world_size > 1:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            dist.init_process_group(
                backend="nccl" if where.type == "cuda" else "gloo",
                init_method=rendezvous.absolute().as_uri(),
                rank=rank,
                world_size=world_size,
                timeout=_TIMEOUT,
            )
        return cls(rank, world_size, where)

    def close(self) -> None:
        """Leaves the group."""
        if self.world_size > 1:
            dist.destroy_process_group()

    def all_reduce_sum(self, x: Tensor) -> Tensor:
        """Sums a tensor of one shape over all ranks; every rank gets the same bits.

        Args:
            x: Contiguous; may be overwritten.
        """
        if self.world_size == 1:
            return x
        if self.world_size == 2:
            dist.all_reduce(x)
            return x
        parts = [torch.empty_like(x) for _ in range(self.world_size)]
        dist.all_gather(parts, x)
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total

    def gather_to_first(self, x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor | None:
        """Joins the ranks' tensors along a dimension, on rank 0.

        Args:
            x: This rank's part.
            dim: The dimension to join along, not negative.
            sizes: Every rank's size of that dimension.

        Returns:
            The whole on rank 0, None elsewhere.
        """
        if self.world_size == 1:
            return x
        if self.rank != 0:
            dist.send(x.contiguous(), dst=0)
            return None
        parts = [x]
        for source, size in enumerate(sizes[1:], start=1):
            part = x.new_empty((*x.shape[:dim], size, *x.shape[dim + 1 :]))
            dist.recv(part, src=source)
            parts.append(part)
        return torch.cat(parts, dim=dim)

    def broadcast_ids(self, ids: Tensor) -> Tensor:
        """Gives rank 0's ids to all.

        Args:
            ids: int64; on other ranks only the shape counts, and it is overwritten.
        """
        if self.world_size > 1:
            dist.broadcast(ids, src=0)
        return ids

    def vote(self, ok: bool) -> bool:  # noqa: FBT001 - the ballot itself
        """Whether every rank says yes. Comes before a step's first other collective."""
        if self.world_size == 1:
            return ok
        ballot = torch.tensor([int(ok)], dtype=torch.int32, device=self.device)
        dist.all_reduce(ballot, op=dist.ReduceOp.MIN)
        return bool(ballot.item())
