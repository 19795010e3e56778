"""Token embedding and output projection, split by vocabulary.

Shape legend: T tokens, H hidden size, V vocabulary, V_local this rank's share of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from headrace.distributed.process_group import ProcessGroup
    from headrace.ops.op_set import LinearWeight, OpSet


@dataclass(frozen=True, eq=False)
class VocabParallelEmbedding:
    """Each rank looks up the ids of its range in a table [V_local, H]."""

    group: ProcessGroup
    table: Tensor
    vocabulary: range

    def __call__(self, token_ids: Tensor) -> Tensor:
        """int64 [T], each below V -> [T, H], the same on every rank."""
        if self.group.world_size == 1:
            return self.table.index_select(0, token_ids)
        local = token_ids - self.vocabulary.start
        elsewhere = (local < 0) | (local >= len(self.vocabulary))
        rows = self.table.index_select(0, local.masked_fill(elsewhere, 0))
        # One rank has the row, the others add zeros: the sum is the row itself.
        return self.group.all_reduce_sum(rows.masked_fill(elsewhere[:, None], 0.0))


@dataclass(frozen=True, eq=False)
class VocabParallelHead:
    """Each rank computes the logits of its range; rank 0 gathers them."""

    ops: OpSet
    group: ProcessGroup
    weight: LinearWeight
    vocabulary_sizes: tuple[int, ...]

    def __call__(self, hidden: Tensor) -> Tensor | None:
        """[T, H] -> float32 [T, V] on rank 0, None elsewhere."""
        logits = self.ops.linear(hidden, self.weight, None).float()
        return self.group.gather_to_first(logits, 1, self.vocabulary_sizes)
