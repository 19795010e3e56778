"""The memory plan: cgroup limits, shares, required blocks."""

import pytest
from headrace.distributed import ProcessGroup
from headrace.engine import PreparationError
from headrace.engine.memory import CPU_SHARE, free_bytes, kv_budget
from headrace.engine.preparation import plan_blocks, prepare_model
from tiny_model import CPU, TinyModel, limits

MIB = 1 << 20


def fake_system(tmp_path, cgroup_line, files):
    proc, cgroup = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 9999 kB\nMemAvailable:   819200 kB\n")
    (proc / "self/cgroup").write_text(cgroup_line)
    for name, text in files.items():
        (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroup / name).write_text(text)
    return proc, cgroup


def test_cgroup_v2_counts_what_its_parents_leave(tmp_path):
    proc, cgroup = fake_system(
        tmp_path,
        "0::/a/b\n",
        {
            "a/memory.max": str(500 * MIB),
            "a/memory.current": str(300 * MIB),
            "a/memory.stat": f"anon 5\ninactive_file {50 * MIB}\n",
            "a/b/memory.max": "max",
            "a/b/memory.current": str(10 * MIB),
        },
    )
    assert free_bytes(CPU, proc, cgroup) == 250 * MIB


def test_cgroup_v1(tmp_path):
    proc, cgroup = fake_system(
        tmp_path,
        "4:cpu,memory:/x\n3:pids:/y\n",
        {
            "memory/x/memory.limit_in_bytes": str(400 * MIB),
            "memory/x/memory.usage_in_bytes": str(100 * MIB),
            "memory/x/memory.stat": f"total_inactive_file {20 * MIB}\n",
        },
    )
    assert free_bytes(CPU, proc, cgroup) == 320 * MIB


def test_without_a_cgroup_the_machine_counts(tmp_path):
    proc, cgroup = fake_system(tmp_path, "0::/\n", {})
    assert free_bytes(CPU, proc, cgroup) == 800 * MIB


def test_budget_is_a_share_over_the_ranks(monkeypatch):
    monkeypatch.setattr("headrace.engine.memory.free_bytes", lambda device: 1000 * MIB)
    assert CPU_SHARE == 0.4
    assert kv_budget(CPU, 0, 1) == 400 * MIB
    assert kv_budget(CPU, 100 * MIB, 2) == 160 * MIB


def test_measured_blocks_stay_under_the_share():
    free = free_bytes(CPU)
    blocks = plan_blocks(limits(), ProcessGroup(), MIB, 0)
    assert 0 < blocks * MIB <= 0.42 * free


def test_given_bytes_required_blocks_and_their_refusals(monkeypatch):
    group = ProcessGroup()
    assert plan_blocks(limits(kv_cache_bytes=10 * MIB), group, MIB, 0) == 10
    assert plan_blocks(limits(kv_cache_bytes=10 * MIB, required_blocks=7), group, MIB, 0) == 7
    with pytest.raises(PreparationError, match="11 KV blocks are required, --kv-cache-memory"):
        plan_blocks(limits(kv_cache_bytes=10 * MIB, required_blocks=11), group, MIB, 0)
    with pytest.raises(PreparationError, match="--kv-cache-memory 1000 holds no KV block"):
        plan_blocks(limits(kv_cache_bytes=1000), group, MIB, 0)
    monkeypatch.setattr("headrace.engine.preparation.free_bytes", lambda device: 100 * MIB)
    monkeypatch.setattr("headrace.engine.memory.free_bytes", lambda device: 100 * MIB)
    assert plan_blocks(limits(), group, MIB, 0) == 40
    # After a restart less may be free than at first: 40 blocks must still be had.
    assert plan_blocks(limits(required_blocks=60), group, MIB, 0) == 60
    with pytest.raises(PreparationError, match="101 KV blocks"):
        plan_blocks(limits(required_blocks=101), group, MIB, 0)


def test_given_bytes_are_never_cut_and_never_more_than_there_is(monkeypatch):
    group = ProcessGroup()
    monkeypatch.setattr("headrace.engine.preparation.free_bytes", lambda device: 100 * MIB)
    with pytest.raises(
        PreparationError, match="--kv-cache-memory 104857601: more than the 104857600"
    ):
        plan_blocks(limits(kv_cache_bytes=100 * MIB + 1), group, MIB, 0)
    # 2^20 blocks bound a measured pool only.
    assert plan_blocks(limits(kv_cache_bytes=100 * MIB), group, 16, 0) == 100 * MIB // 16
    monkeypatch.setattr("headrace.engine.memory.free_bytes", lambda device: 100 * MIB)
    assert plan_blocks(limits(), group, 16, 0) == 1 << 20


def test_prepare_reports_its_stages_and_runs_the_largest_step():
    model, stages = TinyModel(), []
    tokens = []
    forward = model.forward
    model.forward = lambda batch, kv: tokens.append(batch.token_ids.numel()) or forward(batch, kv)
    engine = prepare_model(
        model,
        model.ops,
        ProcessGroup(),
        limits(kv_cache_bytes=64 * 512, max_batch_tokens=200),
        lambda name, done, total, unit: stages.append((name, done, total, unit)),
    )
    assert engine.num_blocks == 64
    names = [name for name, *_ in stages]
    assert list(dict.fromkeys(names)) == ["largest step", "kv cache", "warm-up"]
    assert ("kv cache", 64 * 512, 64 * 512, "bytes") in stages
    # Three rows: 96 + 96 + 8 tokens; then the decode steps of one row and of eight.
    assert tokens == [200, 1, 8]


@pytest.mark.parametrize("name", ["block_size", "max_batch_tokens", "max_total_tokens"])
def test_sizes_of_nothing_are_named(name):
    with pytest.raises(PreparationError, match=name):
        limits(**{name: 0}).check()
