"""Real processes over Gloo: collectives, and models split over them."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import rank_process
import torch
from headrace.distributed import ProcessGroup
from paged_sequences import random_ids
from safetensors.torch import load_file
from tiny_checkpoints import oracle_logits, random_model, save, tiny_config
from torch import multiprocessing

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


@pytest.fixture(scope="module")
def oracles(tmp_path_factory):
    """Documents of the models, and transformers' logits."""
    folder = tmp_path_factory.mktemp("models")
    logits, paths = {}, {}
    for name, changes in MODELS.items():
        oracle = random_model(tiny_config(**changes))
        document = save(oracle, folder / name)
        logits[name] = oracle_logits(oracle, random_ids(40))
        paths[name] = str(folder / name / "document.json")
        Path(paths[name]).write_text(json.dumps(asdict(document), default=str))
    (folder / "documents.json").write_text(json.dumps(paths))
    return folder / "documents.json", logits


@pytest.fixture(scope="module", params=[2, 3], ids=["2 ranks", "3 ranks"])
def results(request, oracles, tmp_path_factory):
    """What each rank saved: the group is started once and does everything."""
    folder = tmp_path_factory.mktemp("ranks")
    processes = multiprocessing.spawn(
        rank_process.run,
        args=(request.param, str(folder / "rendezvous"), str(oracles[0]), str(folder)),
        nprocs=request.param,
        join=False,
    )
    while not processes.join(timeout=60):
        pass
    return [load_file(folder / f"{rank}.safetensors") for rank in range(request.param)]


def test_sums_are_in_rank_order_whatever_the_rows(results):
    total = results[0]["part"].clone()
    for result in results[1:]:
        total += result["part"]
    for result in results:
        assert torch.equal(result["sum"], total)
        assert torch.equal(result["rows one by one"], total)


def test_gathers_broadcasts_and_votes(results):
    for result in results:
        assert result["ids"].tolist() == [7, 8, 9]
        assert result["votes"].tolist() == [True, False]
    row = [float(rank) for rank in range(len(results)) for _ in range(rank + 1)]
    assert results[0]["gathered"].tolist() == [row, row]


@pytest.mark.parametrize("name", MODELS)
def test_split_models_equal_transformers(name, results, oracles):
    logits = results[0][f"{name} logits"]
    torch.testing.assert_close(logits, oracles[1][name], atol=1e-3, rtol=0)
    for result in results[1:]:
        assert torch.equal(result[f"{name} hidden"], results[0][f"{name} hidden"])


def test_one_rank_needs_no_collectives(tmp_path):
    group = ProcessGroup.connect(0, 1, tmp_path / "never made")
    x = torch.ones(2, 3)
    assert group.all_reduce_sum(x) is x
    assert group.gather_to_first(x, 1, [3]) is x
    assert group.broadcast_ids(x) is x
    assert (group.vote(True), group.vote(False)) == (True, False)
    assert not torch.distributed.is_initialized()
    assert not (tmp_path / "never made").exists()
