"""What each spawned rank of a distributed test runs. Imported afresh by every rank."""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path

import torch
from headrace.distributed import ProcessGroup
from headrace.document import ModelDocument
from headrace.models import load_model
from headrace.ops.select import select_op_set
from paged_sequences import PagedSequences, random_ids
from safetensors.torch import save_file


def run(rank, world_size, rendezvous, documents, out):
    """Runs every collective and every document on one rank, and saves what came of it."""
    torch.set_num_threads(1)
    group = ProcessGroup.connect(rank, world_size, Path(rendezvous))
    results = collectives(group)
    for name, path in json.loads(Path(documents).read_text()).items():
        hidden, logits = run_model(group, Path(path))
        results[f"{name} hidden"] = hidden
        assert (logits is None) == (rank != 0)
        if logits is not None:
            results[f"{name} logits"] = logits
    save_file(results, Path(out) / f"{rank}.safetensors")
    group.close()


def run_model(group, path):
    """Hidden states of a sequence in chunks, and its logits."""
    ops = select_op_set("cpu", torch.float32, os.environ.get("HEADRACE_TEST_OPS", "auto"))
    if ops.name != "torch":
        import_module("headrace.ops.native").set_compute_threads(1)
    model = load_model(ModelDocument.from_file(path), ops, group, lambda *_: None)
    sequences = PagedSequences(model, ops)
    hidden = sequences.hidden_in_chunks("a", random_ids(40), [17, 20, 1, 1, 1])
    return hidden, model.logits(hidden)


def collectives(group):
    """Each collective once or more."""
    rank, world_size = group.rank, group.world_size
    rows = torch.randn(64, 33, generator=torch.Generator().manual_seed(rank))
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
    part = torch.full((2, rank + 1), float(rank))
    gathered = group.gather_to_first(part, 1, range(1, world_size + 1))
    assert (gathered is None) == (rank != 0)
    if gathered is not None:
        results["gathered"] = gathered
    return results
