"""Real processes over Gloo: collectives, and models split over them."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import rank_process
import torch
from headrace.distributed import ProcessGroup
from safetensors.torch import load_file
from tiny_checkpoints import oracle_logits, random_ids, random_model, save, tiny_config
from torch import multiprocessing


def spawn(function, world_size, folder, *arguments):
    """Runs `function` on every rank; returns what each saved."""
    out = folder / f"ranks-{world_size}"
    processes = multiprocessing.spawn(
        function,
        args=(world_size, str(folder / f"rendezvous-{world_size}"), *arguments, str(out)),
        nprocs=world_size,
        join=False,
    )
    while not processes.join(timeout=60):
        pass
    return [load_file(f"{out}-{rank}.safetensors") for rank in range(world_size)]


@pytest.mark.parametrize("world_size", [2, 3])
def test_collectives(world_size, tmp_path):
    results = spawn(rank_process.run_collectives, world_size, tmp_path)
    total = results[0]["part"].clone()
    for result in results[1:]:
        total += result["part"]
    for result in results:
        # In rank order, to the bit, whatever the number of rows.
        assert torch.equal(result["sum"], total)
        assert torch.equal(result["rows one by one"], total)
        assert result["ids"].tolist() == [7, 8, 9]
        assert result["votes"].tolist() == [True, False]
    row = [float(rank) for rank in range(world_size) for _ in range(rank + 1)]
    assert results[0]["gathered"].tolist() == [row, row]


def test_one_rank_needs_no_collectives(tmp_path):
    group = ProcessGroup.connect(0, 1, tmp_path / "never made")
    x = torch.ones(2, 3)
    assert group.all_reduce_sum(x) is x
    assert group.gather_to_first(x, 1, [3]) is x
    assert group.broadcast_ids(x) is x
    assert (group.vote(True), group.vote(False)) == (True, False)
    assert not torch.distributed.is_initialized()
    assert not (tmp_path / "never made").exists()


MODELS = {
    # 3 groups over 2 ranks: 2 + 1; over 3 ranks: one each.
    "9 heads in 3 groups": {
        "hidden_size": 144,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "tie_word_embeddings": True,
    },
    # 2 groups over 3 ranks: the first is on two of them. The MLP and the vocabulary split unevenly.
    "4 heads in 2 groups": {"attention_bias": True, "mlp_bias": True, "intermediate_size": 97},
    "qwen2": {"family": "qwen2", "num_key_value_heads": 1},
}


@pytest.mark.parametrize("world_size", [2, 3])
def test_split_models_equal_transformers(world_size, tmp_path):
    expected, paths = {}, {}
    for name, changes in MODELS.items():
        oracle = random_model(tiny_config(**changes))
        folder = tmp_path / name
        document = save(oracle, folder)
        expected[name] = oracle_logits(oracle, random_ids(40))
        paths[name] = str(folder / "document.json")
        Path(paths[name]).write_text(json.dumps(asdict(document), default=str))
    (tmp_path / "documents.json").write_text(json.dumps(paths))
    results = spawn(rank_process.run_model, world_size, tmp_path, str(tmp_path / "documents.json"))
    for name, logits in expected.items():
        torch.testing.assert_close(results[0][f"{name} logits"], logits, atol=1e-3, rtol=0)
        for result in results[1:]:
            assert torch.equal(result[f"{name} hidden"], results[0][f"{name} hidden"])
