"""What each spawned rank of a distributed test runs. Imported afresh by every rank."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from safetensors.torch import save_file


def run_model(rank, world_size, rendezvous, document_path, out):
    """Runs one document on one rank; rank 0 saves its logits."""
    from headrace.distributed import ProcessGroup
    from headrace.document import ModelDocument
    from headrace.models import load_model
    from headrace.ops.select import select_op_set
    from paged_sequences import PagedSequences
    from tiny_checkpoints import random_ids

    torch.set_num_threads(1)
    group = ProcessGroup.connect(rank, world_size, Path(rendezvous))
    results = {}
    for name, path in json.loads(Path(document_path).read_text()).items():
        ops = select_op_set("cpu", torch.float32, os.environ.get("HEADRACE_TEST_OPS", "auto"))
        model = load_model(ModelDocument.from_file(Path(path)), ops, group, lambda *_: None)
        sequences = PagedSequences(model, ops)
        hidden = sequences.hidden_in_chunks("a", random_ids(40), [17, 20, 1, 1, 1])
        logits = model.logits(hidden)
        assert (logits is None) == (rank != 0)
        results[f"{name} hidden"] = hidden
        if logits is not None:
            results[f"{name} logits"] = logits
    save_file(results, f"{out}-{rank}.safetensors")
    group.close()


def run_collectives(rank, world_size, rendezvous, out):
    """Runs each collective on one rank."""
    from headrace.distributed import ProcessGroup

    torch.set_num_threads(1)
    group = ProcessGroup.connect(rank, world_size, Path(rendezvous))
    generator = torch.Generator().manual_seed(rank)
    rows = torch.randn(64, 33, generator=generator)
    part = torch.full((2, rank + 1), float(rank))
    ids = torch.tensor([7, 8, 9]) if rank == 0 else torch.zeros(3, dtype=torch.int64)
    results = {
        "part": rows,
        "sum": group.all_reduce_sum(rows.clone()),
        "rows one by one": torch.cat(
            [group.all_reduce_sum(rows[row : row + 1].clone()) for row in range(64)]
        ),
        "ids": group.broadcast_ids(ids),
        "votes": torch.tensor([group.vote(True), group.vote(rank != world_size - 1)]),
    }
    gathered = group.gather_to_first(part, 1, range(1, world_size + 1))
    assert (gathered is None) == (rank != 0)
    if gathered is not None:
        results["gathered"] = gathered
    save_file(results, f"{out}-{rank}.safetensors")
    group.close()
