"""A one-layer decoder small enough to check by hand, on the real KV cache and attention of the torch ops.

Shapes: T = tokens, H = hidden size (one head), V = vocabulary.
"""

from types import SimpleNamespace

import numpy as np
import torch
from headrace.distributed import ProcessGroup
from headrace.engine import (
    BlockAppend,
    Engine,
    EngineLimits,
    NewSequence,
    NoMasks,
    Step,
    StepRows,
)
from headrace.ops.torch_ops import TorchOpSet
from headrace.sampling import SamplingParameters

VOCAB, HIDDEN, BLOCK = 61, 16, 4
CPU = torch.device("cpu")


class TinyModel:
    """Embedding, attention over the paged cache, projection; ids in `broken` give a non-finite state."""

    def __init__(self):
        generator = torch.Generator().manual_seed(5)
        self.embedding = torch.randn(VOCAB, HIDDEN, generator=generator)
        self.places = torch.randn(512, HIDDEN, generator=generator)
        self.projection = torch.randn(VOCAB, HIDDEN, generator=generator)
        self.config = SimpleNamespace(vocab_size=VOCAB, num_layers=1, head_dim=HIDDEN)
        self.kv_heads_on_rank = 1
        self.num_positions = 512
        self.weight_bytes = 0
        self.ops = TorchOpSet(CPU, torch.float32)
        self.broken = set()
        self.fail_next = None
        self.forwards = 0
        self.most_logits = 0

    def forward(self, batch, kv):
        self.forwards += 1
        if self.fail_next is not None:
            error, self.fail_next = self.fail_next, None
            raise error
        x = self.embedding[batch.token_ids] + self.places[batch.positions]
        heads = x.view(-1, 1, HIDDEN)
        self.ops.attention.write(kv[0], heads, heads, batch.metadata)
        mixed = self.ops.attention.attend(heads, kv[0], batch.metadata, 0.25, None)
        hidden = x + mixed.view(-1, HIDDEN)
        for token in self.broken:
            hidden[batch.token_ids == token] = torch.nan
        return hidden

    def logits(self, hidden):
        self.most_logits = max(self.most_logits, hidden.shape[0])
        return hidden @ self.projection.T

    def dense_logits(self, ids):
        """Logits of every position, without a cache: the oracle."""
        x = self.embedding[ids] + self.places[: len(ids)]
        scores = (x @ x.T) * 0.25
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        return (x + scores.softmax(-1) @ x) @ self.projection.T

    def greedy(self, ids, count):
        """The oracle's continuation."""
        ids = list(ids)
        for _ in range(count):
            ids.append(int(self.dense_logits(torch.tensor(ids))[-1].argmax()))
        return ids[-count:]


def limits(**changes):
    fields = {
        "block_size": BLOCK,
        "max_batch_tokens": 64,
        "max_sequences": 8,
        "max_total_tokens": 96,
        "poison_fresh_blocks": True,
        **changes,
    }
    return EngineLimits(**fields)


class Driver:
    """An engine with step ids counted for it."""

    def __init__(self, num_blocks=64, group=None, **changes):
        self.model = TinyModel()
        self.engine = Engine(
            self.model, self.model.ops, group or ProcessGroup(), limits(**changes), num_blocks
        )
        self.engine.open(num_blocks)
        self.step_id = 0

    def step(
        self,
        rows=(),
        new=(),
        finished=(),
        appends=(),
        copies=(),
        acknowledged=None,
        masks=None,
        drafts=(),
    ):
        """Rows: (slot, tokens, sample[, prompt_logprobs[, masked]])."""
        self.step_id += 1
        table = [tuple(row) + (False,) * (5 - len(row)) for row in rows]
        columns = np.array(table, np.int64).reshape(-1, 5).T.copy()
        step = Step(
            step_id=self.step_id,
            finished_slots=list(finished),
            new_sequences=list(new),
            block_appends=[BlockAppend(slot, np.array(b, np.int64)) for slot, b in appends],
            block_copies=np.array(copies, np.int64).reshape(-1, 3),
            rows=StepRows(
                columns[0],
                columns[1],
                columns[2] != 0,
                columns[3] != 0,
                columns[4] != 0,
                np.array([row[0] in drafts for row in rows], np.bool_),
            ),
            acknowledged_failure=acknowledged,
        )
        return self.engine.run(step, masks or NoMasks())

    def decode(self, slots, count):
        """`count` greedy steps; one list of ids a slot."""
        given = {slot: [] for slot in slots}
        for _ in range(count):
            outcome = self.step(rows=[(slot, 1, True) for slot in slots])
            for slot, token in zip(slots, outcome.ids.tolist(), strict=True):
                given[slot].append(token)
        return given


def sequence(slot, ids, blocks, computed=0, prompt_length=None, adapter=None, **sampling):
    return NewSequence(
        slot=slot,
        token_ids=np.array(ids, np.int64),
        prompt_length=len(ids) if prompt_length is None else prompt_length,
        computed_length=computed,
        blocks=np.array(list(blocks), np.int64),
        sampling=SamplingParameters(**sampling),
        adapter=adapter,
    )
