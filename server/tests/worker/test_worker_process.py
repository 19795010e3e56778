"""The worker as a process: start, `Describe`, `Prepare`, and every way to end."""

import json
import os
import signal
import stat
import time
from pathlib import Path

import grpc
import pytest
import torch
from headrace.pb import worker_pb2 as pb
from worker_client import Stream, Worker, decode_rows, greedy, make_checkpoint, new_sequence


def code_and_words(call):
    with pytest.raises(grpc.RpcError) as caught:
        list(call())
    return caught.value.code(), caught.value.details()


def test_describe_prepare_and_a_clean_stop(start, checkpoint):
    worker = start(checkpoint[1], with_parent=True)
    description = worker.stub().Describe(pb.DescribeRequest(), timeout=20)
    assert description.vocab_size == 320
    assert description.max_position_embeddings == 512
    assert description.compute_dtype == "float32"
    assert description.max_steps_in_flight >= 2
    assert len(description.kv_groups) == 1
    # 2 layers x 2 KV heads x 16 x K and V x 4 bytes
    assert description.kv_groups[0].bytes_per_token == 512
    assert stat.S_IMODE(worker.socket.stat().st_mode) == 0o600
    assert os.getpriority(os.PRIO_PROCESS, worker.process.pid) == os.getpriority(0, 0) + 5
    progress = worker.prepare()
    names = [p.stage.name for p in progress if p.HasField("stage")]
    assert list(dict.fromkeys(names)) == ["weights", "largest step", "kv cache", "warm-up"]
    ready = progress[-1].ready
    assert ready.num_blocks == (4 << 20) // (512 * 16)
    assert ready.kv_cache_bytes == 4 << 20
    assert ready.weight_bytes > 0
    # Idempotent, with what it has; by name with what it has not.
    assert worker.prepare() == [progress[-1]]
    assert worker.prepare(required_blocks=ready.num_blocks) == [progress[-1]]
    for changes, words in (
        ({"required_blocks": 7}, "7 KV blocks are required"),
        ({"block_size": 32}, "other sizes"),
    ):
        code, details = code_and_words(lambda changes=changes: worker.prepare(**changes))
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert words in details
    worker.process.send_signal(signal.SIGINT)
    stream = Stream(worker.stub())
    assert stream.opened() == 1
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert not worker.socket.exists()
    levels = {line["level"] for line in worker.log_lines()}
    assert levels == {"INFO"}
    assert all(
        {"timestamp", "level", "target", "message", "rank"} <= set(line)
        for line in worker.log_lines()
    )


def test_required_blocks_are_honoured_or_refused(start, checkpoint):
    worker = start(checkpoint[1])
    code, details = code_and_words(lambda: worker.prepare(required_blocks=513))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "513 KV blocks are required" in details
    worker.close()
    worker.socket.unlink()
    second = start(checkpoint[1])
    assert second.prepare(required_blocks=100)[-1].ready.num_blocks == 100


def test_run_before_prepare_is_refused(start, checkpoint):
    worker = start(checkpoint[1])
    stream = Stream(worker.stub())
    with pytest.raises(grpc.RpcError, match="Prepare has not succeeded"):
        stream.opened()


def test_the_launchers_death_ends_the_worker(start, checkpoint):
    worker = start(checkpoint[1], with_parent=True)
    worker.stub().Describe(pb.DescribeRequest(), timeout=20)
    os.close(worker.parent_fd)
    worker.parent_fd = None
    worker.wait(5)
    assert not worker.socket.exists()


def test_a_kill_of_the_parent_process_ends_the_worker(checkpoint, tmp_path):
    # A parent of its own: the death signal comes although the pipe stays open.
    read_end, write_end = os.pipe()
    middle = os.fork()
    if middle == 0:
        worker = Worker(checkpoint[1], tmp_path)
        os.write(write_end, str(worker.process.pid).encode())
        time.sleep(60)
        os._exit(0)
    pid = int(os.read(read_end, 20))
    deadline = time.monotonic() + 30
    while not (tmp_path / "rank-0.sock").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    while time.monotonic() < deadline:
        try:
            with Path(f"/proc/{pid}/stat").open() as file:
                if file.read().split()[2] == "Z":
                    break
        except FileNotFoundError:
            break
        time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the worker outlived its parent")


@pytest.mark.parametrize("damage", ["truncated", "missing tensor", "missing file"])
def test_a_bad_checkpoint_is_final_and_named(start, tmp_path, damage):
    folder = tmp_path / "model"
    folder.mkdir()
    _, document = make_checkpoint(folder)
    weights = folder / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif damage == "missing file":
        weights.unlink()
    else:
        fields = json.loads(document.read_text())
        fields["config"]["num_hidden_layers"] = 3
        document.write_text(json.dumps(fields))
    worker = start(document)
    code, details = code_and_words(worker.prepare)
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "\n" not in details
    named = "layers.2" if damage == "missing tensor" else "model.safetensors"
    assert named in details
    assert code_and_words(worker.prepare)[1] == details
    assert not any("traceback" in line for line in worker.log_lines())


def test_a_configuration_that_is_not_supported_fails_describe(start, tmp_path):
    _, document = make_checkpoint(tmp_path)
    fields = json.loads(document.read_text())
    fields["config"]["hidden_act"] = "gelu"
    document.write_text(json.dumps(fields))
    worker = start(document)
    with pytest.raises(grpc.RpcError, match="hidden_act"):
        worker.stub().Describe(pb.DescribeRequest(), timeout=20)


def test_a_document_that_cannot_be_read_is_one_line(start, tmp_path):
    worker = start(tmp_path / "none.json")
    assert worker.wait() == 1
    lines = worker.log_lines()
    assert len(lines) == 1
    assert lines[0]["level"] == "ERROR"
    assert "none.json" in lines[0]["message"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"block_size": 7}, "7"),
        ({"kv_cache_bytes": 10}, "--kv-cache-memory 10"),
        ({"kv_cache_bytes": 1 << 60}, f"--kv-cache-memory {1 << 60}"),
    ],
)
def test_sizes_that_cannot_be_are_final(start, checkpoint, changes, named):
    worker = start(checkpoint[1])
    code, details = code_and_words(lambda: worker.prepare(**changes))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert named in details
    assert "\n" not in details
    # The launcher says them; the worker's log has neither them nor a trace.
    assert all(line["level"] == "INFO" for line in worker.log_lines())


def test_cuda_without_a_device_is_refused_before_it_listens(start, checkpoint):
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    worker = start(checkpoint[1], flags=["--device", "cuda"])
    assert worker.wait() == 1
    lines = worker.log_lines()
    assert [line["level"] for line in lines] == ["ERROR"]
    assert "--device cuda" in lines[0]["message"]
    assert lines[0]["last_words"] is True


def test_a_kernel_set_that_this_cpu_lacks_names_its_variable(start, checkpoint, monkeypatch):
    monkeypatch.setenv("HEADRACE_KERNEL_SET", "sse9")
    worker = start(checkpoint[1])
    assert worker.wait() == 1
    words = worker.log_lines()[0]["message"]
    assert words.startswith("HEADRACE_KERNEL_SET sse9: ")
    assert "scalar" in words


def test_too_long_a_sequence_is_refused(start, checkpoint):
    worker = start(checkpoint[1])
    code, details = code_and_words(lambda: worker.prepare(max_total_tokens=513))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "512 positions" in details


@pytest.fixture
def two_ranks(start, checkpoint):
    """Two prepared ranks of one model, and their streams."""
    workers = [start(checkpoint[1], rank=rank, world_size=2) for rank in range(2)]
    calls = [worker.stub().Prepare(request()) for worker in workers]
    blocks = min(list(call)[-1].ready.num_blocks for call in calls)
    streams = [Stream(worker.stub(), num_blocks=blocks) for worker in workers]
    assert [stream.opened() for stream in streams] == [1, 1]
    return workers, streams


def request():
    return pb.PrepareRequest(
        block_size=16,
        max_batch_tokens=64,
        max_sequences=4,
        max_total_tokens=256,
        kv_cache_bytes=1 << 20,
        poison_fresh_blocks=True,
    )


def both(streams, **fields):
    for stream in streams:
        stream.send(**fields)
    return [stream.next().step for stream in streams]


def test_a_rank_in_a_collective_stops_when_told(two_ranks):
    workers, streams = two_ranks
    # Rank 1 waits for a rank that never gets this step.
    streams[1].send(
        new_sequences=[new_sequence(0, [5, 6], 0)],
        rows=[pb.Row(slot=0, num_tokens=2, sample=True)],
    )
    time.sleep(0.5)
    workers[1].process.send_signal(signal.SIGTERM)
    assert workers[1].wait(10) == 0
    assert not workers[1].socket.exists()
    # Rank 0 finds its peer gone in its next step.
    streams[0].send(
        new_sequences=[new_sequence(0, [5, 6], 0)],
        rows=[pb.Row(slot=0, num_tokens=2, sample=True)],
    )
    assert workers[0].wait() == 3
    assert "the group ends" in workers[0].log_lines()[-1]["message"]


def test_ranks_whose_streams_are_closed_wait_for_the_launcher(two_ranks):
    workers, streams = two_ranks
    streams[0].outgoing.put(None)
    streams[1].call.cancel()
    time.sleep(0.5)
    for worker in workers:
        assert worker.process.poll() is None
        worker.process.send_signal(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [0, 0]
    for worker in workers:
        assert {line["level"] for line in worker.log_lines()} == {"INFO"}
    assert any("the router closed it" in line["message"] for line in workers[0].log_lines())


def test_a_broken_stream_that_nobody_follows_up_ends_a_rank_of_several(two_ranks):
    workers, streams = two_ranks
    streams[0].call.cancel()
    assert workers[0].wait() == 3
    assert "the connection broke" in workers[0].log_lines()[-1]["message"]


def test_a_step_that_one_rank_cannot_prepare_fails_on_both_and_the_next_one_runs(
    two_ranks, checkpoint
):
    model, _ = checkpoint
    _, streams = two_ranks
    prompt = [5, 9, 200, 17, 3]
    both(
        streams,
        new_sequences=[new_sequence(0, prompt, 0)],
        rows=[pb.Row(slot=0, num_tokens=5, sample=True)],
    )
    # Of the same step rank 1 is told one thing more, which it cannot do: to copy more than a block holds. The
    # ranks vote before the first collective, so neither of them waits for the other.
    copy = pb.BlockCopy(source=40, destination=41, num_tokens=17)
    for stream, copies in zip(streams, ([], [copy]), strict=True):
        stream.send(rows=decode_rows(0), block_copies=copies)
    first, second = [stream.next().step for stream in streams]
    assert [first.outcome, second.outcome] == [pb.StepReply.OUTCOME_FAILED] * 2
    assert "another rank could not prepare the step" in first.error
    assert "block copy" in second.error
    # Sent before the failure was known, it is skipped on both.
    skipped = both(streams, rows=decode_rows(0))
    assert [reply.outcome for reply in skipped] == [pb.StepReply.OUTCOME_SKIPPED] * 2
    ids = []
    for number in range(15):
        known = {"acknowledged_failure": 2} if number == 0 else {}
        first, _ = both(streams, rows=decode_rows(0), **known)
        assert first.outcome == pb.StepReply.OUTCOME_OK, first.error
        ids.append(first.rows[0].tokens[0].id)
    assert ids == greedy(model, prompt, 16)[1:]


def test_two_ranks_give_transformers_ids_and_end_together(two_ranks, checkpoint):
    model, _ = checkpoint
    workers, streams = two_ranks
    prompt = [5, 9, 200, 17, 3]
    first, second = both(
        streams,
        new_sequences=[new_sequence(0, prompt, 0), new_sequence(1, [320], 20)],
        rows=[
            pb.Row(slot=0, num_tokens=5, sample=True, prompt_logprobs=True),
            pb.Row(slot=1, num_tokens=1, sample=True),
        ],
    )
    assert [row.status for row in first.rows] == [1, 3]
    assert len(first.rows[0].prompt_logprobs) == 4
    assert len(second.rows) == 0
    ids = [first.rows[0].tokens[0].id]
    for _ in range(15):
        first, _ = both(streams, rows=decode_rows(0))
        ids.append(first.rows[0].tokens[0].id)
    assert ids == greedy(model, prompt, 16)
    # A stream that ends, here for a wrong step id, ends a rank of several with a code that is not 0, and a
    # line that says so.
    streams[0].step_id += 5
    streams[0].send(rows=decode_rows(0))
    with pytest.raises(grpc.RpcError):
        streams[0].next()
    assert workers[0].wait() == 3
    assert "several ranks" in workers[0].log_lines()[-1]["message"]
    workers[1].process.send_signal(signal.SIGTERM)
    assert workers[1].wait() == 0
    assert not workers[1].socket.exists()
