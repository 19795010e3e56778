"""From the rows of a step to the tensors of the forward.

Shapes: R = rows, T = tokens of all rows, B = blocks of the longest context among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from headrace.models.causal_model import StepBatch
from headrace.ops.attention.metadata import AttentionMetadata

if TYPE_CHECKING:
    import numpy.typing as npt

    from headrace.engine.slots import SlotTable


def build_batch(
    table: SlotTable,
    slots: npt.NDArray[np.int64],
    num_tokens: npt.NDArray[np.int64],
    block_size: int,
    device: torch.device,
) -> tuple[StepBatch, npt.NDArray[np.int64]]:
    """Gathers ids, positions and block tables.

    Args:
        table: The slots.
        slots: [R], all checked.
        num_tokens: [R], each at least 1.
        block_size: Tokens a block.
        device: Where the tensors go.

    Returns:
        The batch, and row_starts [R + 1] int64 on the host.
    """
    computed = table.computed[slots]
    row_starts = np.zeros(slots.size + 1, np.int64)
    np.cumsum(num_tokens, out=row_starts[1:])
    total = int(row_starts[-1])
    if total == slots.size:
        # Decode: one token a row.
        positions = computed
        ids = table.ids[slots, positions]
    else:
        positions = np.arange(total) + np.repeat(computed - row_starts[:-1], num_tokens)
        ids = table.ids[np.repeat(slots, num_tokens), positions]
    contexts = computed + num_tokens
    width = -(-int(contexts.max()) // block_size)
    # A table may be shorter than the longest context: what lies past it is old but below num_blocks,
    # and never read.
    tables = np.ascontiguousarray(table.tables[slots, :width])

    def tensor(values: npt.NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(values).to(device)

    place = tensor(positions)
    metadata = AttentionMetadata(
        row_starts=tensor(row_starts.astype(np.int32)),
        context_lengths=tensor(contexts.astype(np.int32)),
        block_tables=tensor(tables),
        positions=place,
        block_size=block_size,
    )
    return StepBatch(tensor(ids.astype(np.int64)), place, metadata), row_starts
