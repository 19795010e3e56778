"""Runs sequences through a model's paged cache, as an engine would, with poisoned fresh blocks."""

from __future__ import annotations

import torch
from headrace.models import StepBatch
from headrace.ops.attention import AttentionMetadata

VOCAB = 131
"""Of the tiny models."""


def random_ids(count, seed=1, vocab=VOCAB):
    """Token ids, int64 [count]."""
    return torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed))


class PagedSequences:
    """Several sequences over one pool; blocks are dealt in a scattered order."""

    def __init__(self, model, ops, num_blocks=64, block_size=16):
        config = model.config
        self.model = model
        self.block_size = block_size
        self.kv = [
            ops.attention.allocate(
                num_blocks, model.kv_heads_on_rank, config.head_dim, block_size, True
            )
            for _ in range(config.num_layers)
        ]
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(7))
        self.free = order.tolist()
        self.tables = {}
        self.computed = {}

    def step(self, rows):
        """One step: `rows` maps a sequence's name to its next ids. Returns hidden [T, H]."""
        counts, starts, tables, ids = [], [], [], []
        for name, new in rows.items():
            table = self.tables.setdefault(name, [])
            start = self.computed.get(name, 0)
            while len(table) * self.block_size < start + len(new):
                table.append(self.free.pop())
            counts.append(len(new))
            starts.append(start)
            tables.append(list(table))
            ids.append(torch.as_tensor(new, dtype=torch.int64))
            self.computed[name] = start + len(new)
        metadata = AttentionMetadata.from_rows(counts, starts, tables, self.block_size)
        batch = StepBatch(torch.cat(ids), metadata.positions, metadata)
        return self.model.forward(batch, self.kv)

    def drop(self, name):
        """Forgets a sequence and takes its blocks back."""
        self.free.extend(self.tables.pop(name))
        del self.computed[name]

    def hidden_in_chunks(self, name, ids, chunks):
        """Hidden states of all tokens of one sequence, computed chunk by chunk: [T, H]."""
        assert sum(chunks) == len(ids)
        parts, start = [], 0
        for count in chunks:
            parts.append(self.step({name: ids[start : start + count]}))
            start += count
        return torch.cat(parts)
