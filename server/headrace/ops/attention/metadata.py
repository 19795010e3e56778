"""What attention needs to know about the tokens of one step.

Shape legend: T tokens of the step, R rows (one row is one sequence's tokens of this step), B blocks in
the longest table of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


@dataclass(frozen=True, eq=False)
class AttentionMetadata:
    """The rows of one step, prefill and decode mixed; all tensors on the device of the KV.

    Token ``i`` of row ``r`` (counted from ``row_starts[r]``) has the absolute position
    ``context_lengths[r] - num_tokens(r) + i`` and sees the keys of all positions up to its own.

    Attributes:
        row_starts: int32 [R + 1], offset of each row's first token in T; the last entry is T.
        context_lengths: int32 [R], tokens with KV once this step's have been written.
        block_tables: int32 [R, B], block of each ``block_size`` positions, padded with 0.
        positions: int64 [T], absolute positions.
        block_size: tokens of a block.
    """

    row_starts: Tensor
    context_lengths: Tensor
    block_tables: Tensor
    positions: Tensor
    block_size: int

    @property
    def num_rows(self) -> int:
        """Rows of the step."""
        return self.context_lengths.shape[0]

    @property
    def num_tokens(self) -> int:
        """Tokens of the step."""
        return self.positions.shape[0]

    @classmethod
    def from_rows(
        cls,
        num_tokens: Sequence[int],
        computed: Sequence[int],
        block_tables: Sequence[Sequence[int]],
        block_size: int,
        device: torch.device | str = "cpu",
    ) -> AttentionMetadata:
        """Builds the tensors from one entry per row.

        Args:
            num_tokens: tokens to compute of each row.
            computed: tokens of each row that have their KV already.
            block_tables: blocks of each row, at least enough for ``computed + num_tokens``.
            block_size: tokens of a block.
            device: where the tensors go.

        Raises:
            ValueError: if the lists differ in length or a table is too short.
        """
        if not len(num_tokens) == len(computed) == len(block_tables):
            raise ValueError("num_tokens, computed and block_tables must have one entry per row")
        width = max((len(table) for table in block_tables), default=0)
        padded = torch.zeros((len(block_tables), width), dtype=torch.int32)
        positions: list[int] = []
        lengths: list[int] = []
        for row, (count, start, table) in enumerate(
            zip(num_tokens, computed, block_tables, strict=True)
        ):
            if len(table) * block_size < start + count:
                raise ValueError(f"row {row}: {len(table)} blocks hold less than {start + count}")
            padded[row, : len(table)] = torch.tensor(list(table), dtype=torch.int32)
            positions.extend(range(start, start + count))
            lengths.append(start + count)
        return cls(
            row_starts=torch.tensor([0, *accumulate(num_tokens)], dtype=torch.int32, device=device),
            context_lengths=torch.tensor(lengths, dtype=torch.int32, device=device),
            block_tables=padded.to(device),
            positions=torch.tensor(positions, dtype=torch.int64, device=device),
            block_size=block_size,
        )
