"""`Run` over a real socket: greedy against transformers, batches, failures, masks, streams."""

import threading
import time

import grpc
import numpy as np
import pytest
import torch
from headrace.pb import worker_pb2 as pb
from worker_client import Stream, decode_rows, greedy, new_sequence

PROMPTS = [[5, 9, 200, 17, 3], [7], [(11 * k) % 320 for k in range(50)], [44, 45, 46]]


@pytest.fixture
def stream(ready):
    """An open stream with empty slots."""
    stream = Stream(ready.stub(), num_blocks=128, epoch=5)
    assert stream.opened() == 5
    yield stream
    stream.close()


def tokens(reply):
    return [[token.id for token in row.tokens] for row in reply.rows]


def test_greedy_equals_transformers_with_chunked_prefill_and_arrivals(stream, checkpoint):
    model, _ = checkpoint
    given = {0: [], 1: [], 2: [], 3: []}

    def take(reply):
        assert reply.outcome == pb.StepReply.OUTCOME_OK
        for row in reply.rows:
            given[row.slot] += [token.id for token in row.tokens]

    take(
        stream.step(
            new_sequences=[new_sequence(0, PROMPTS[0], 0), new_sequence(2, PROMPTS[2], 24)],
            rows=[
                pb.Row(slot=0, num_tokens=5, sample=True),
                pb.Row(slot=2, num_tokens=20, sample=False),
            ],
        )
    )
    take(
        stream.step(
            new_sequences=[new_sequence(1, PROMPTS[1], 12)],
            rows=[
                *decode_rows(0),
                pb.Row(slot=1, num_tokens=1, sample=True),
                pb.Row(slot=2, num_tokens=30, sample=True),
            ],
        )
    )
    for _ in range(10):
        take(stream.step(rows=decode_rows(0, 1, 2)))
    take(
        stream.step(
            finished_slots=[1],
            new_sequences=[new_sequence(3, PROMPTS[3], 40)],
            rows=[*decode_rows(0, 2), pb.Row(slot=3, num_tokens=3, sample=True)],
        )
    )
    for _ in range(8):
        take(stream.step(rows=decode_rows(0, 2, 3)))
    for slot, ids in given.items():
        assert len(ids) > 8
        assert ids == greedy(model, PROMPTS[slot], len(ids)), slot


def test_two_steps_in_flight(stream, checkpoint):
    model, _ = checkpoint
    stream.send(
        new_sequences=[new_sequence(0, PROMPTS[0], 0)],
        rows=[pb.Row(slot=0, num_tokens=5, sample=True)],
    )
    ids = []
    for _ in range(12):
        stream.send(rows=decode_rows(0))
        ids += tokens(stream.next().step)[0]
    ids += tokens(stream.next().step)[0]
    assert ids == greedy(model, PROMPTS[0], 13)


def test_logprobs_and_prompt_logprobs(stream, checkpoint):
    model, _ = checkpoint
    prompt = PROMPTS[2]
    reply = stream.step(
        new_sequences=[new_sequence(0, prompt, 0, logprobs=True, top_n=4, prompt_top_n=2)],
        rows=[pb.Row(slot=0, num_tokens=50, sample=True, prompt_logprobs=True)],
    )
    with torch.no_grad():
        expected = torch.log_softmax(model(torch.tensor([prompt])).logits[0], -1)
    row = reply.rows[0]
    assert [token.id for token in row.prompt_logprobs] == prompt[1:]
    for position, token in enumerate(row.prompt_logprobs):
        assert token.logprob == pytest.approx(expected[position, token.id].item(), abs=1e-4)
        values, ids = expected[position].topk(2)
        assert [entry.id for entry in token.top] == ids.tolist()
        assert [entry.logprob for entry in token.top] == pytest.approx(values.tolist(), abs=1e-4)
        assert token.rank == 1 + int((expected[position] > expected[position, token.id]).sum())
    token = row.tokens[0]
    assert not token.HasField("rank")
    values, ids = expected[-1].topk(4)
    assert [entry.id for entry in token.top] == ids.tolist()
    assert [entry.logprob for entry in token.top] == pytest.approx(values.tolist(), abs=1e-4)
    assert token.logprob == pytest.approx(values[0].item(), abs=1e-4)


def test_seeded_sampling_alone_equals_in_a_batch(ready):
    how = [
        {"do_sample": True, "temperature": 0.9 + 0.1 * n, "top_p": 0.95, "seed": 100 + n}
        for n in range(8)
    ]

    def run(slots):
        stream = Stream(ready.stub(), num_blocks=128)
        stream.opened()
        replies = [
            stream.step(
                new_sequences=[new_sequence(n, [n + 1, 5], 12 * n, **how[n]) for n in slots],
                rows=[pb.Row(slot=n, num_tokens=2, sample=True) for n in slots],
            )
        ]
        replies += [stream.step(rows=decode_rows(*slots)) for _ in range(12)]
        stream.close()
        columns = [[row[0] for row in tokens(reply)] for reply in replies]
        return list(zip(*columns, strict=True))

    together = run(range(8))
    assert [run([n])[0] for n in range(8)] == together
    assert len(set(together)) == 8


def test_a_bad_sequence_fails_alone(stream, checkpoint):
    model, _ = checkpoint
    bad = new_sequence(1, [5, 320], 12)
    reply = stream.step(
        new_sequences=[new_sequence(0, PROMPTS[0], 0), bad],
        rows=[
            pb.Row(slot=0, num_tokens=5, sample=True),
            pb.Row(slot=1, num_tokens=2, sample=True),
        ],
    )
    assert [row.status for row in reply.rows] == [1, 3]
    assert "vocabulary" in reply.rows[1].error
    assert tokens(reply)[0] == greedy(model, PROMPTS[0], 1)


def test_masks_arrive_late_early_or_are_called_off(stream):
    words = np.zeros(10, np.uint32)
    words[100 // 32] |= 1 << (100 % 32)
    bitset = pb.Mask(step_id=1, slot=0, position=0, bitset=words.tobytes(), mask_id=7)
    # Before the step it belongs to.
    stream.outgoing.put(pb.RunMessage(mask=bitset))
    stream.send(
        new_sequences=[new_sequence(n, [5, n], 12 * n) for n in range(3)],
        rows=[pb.Row(slot=n, num_tokens=2, sample=True, masked=True) for n in range(3)],
    )
    time.sleep(0.2)
    assert stream.replies.empty()
    allow = pb.Mask(step_id=1, slot=1, position=0, allow=pb.TokenIds(ids=[33]), mask_id=8)
    stream.outgoing.put(pb.RunMessage(mask=allow))
    stream.outgoing.put(pb.RunMessage(mask_called_off=pb.MaskCalledOff(step_id=1, slot=2)))
    reply = stream.next().step
    assert [row.status for row in reply.rows] == [1, 1, 1]
    assert tokens(reply) == [[100], [33], []]
    # Equal masks are sent once.
    stream.send(
        rows=[pb.Row(slot=n, num_tokens=1, sample=True, masked=True) for n in range(2)],
    )
    for slot, name in ((0, 8), (1, 99)):
        mask = pb.Mask(step_id=2, slot=slot, position=1, same_as=name)
        stream.outgoing.put(pb.RunMessage(mask=mask))
    reply = stream.next().step
    assert tokens(reply) == [[33], []]
    assert "mask 99 is not known" in reply.rows[1].error


def test_a_second_run_aborts_the_first_even_while_it_waits_for_a_mask(ready, checkpoint):
    model, _ = checkpoint
    first = Stream(ready.stub(), epoch=1)
    first.opened()
    first.send(
        new_sequences=[new_sequence(0, [5, 6], 0)],
        rows=[pb.Row(slot=0, num_tokens=2, sample=True, masked=True)],
    )
    time.sleep(0.1)
    second = Stream(ready.stub(), epoch=2)
    assert second.opened() == 2
    with pytest.raises(grpc.RpcError) as caught:
        first.next()
    assert caught.value.code() == grpc.StatusCode.ABORTED
    # Slots are empty again, step ids start again, weights are still there.
    reply = second.step(
        new_sequences=[new_sequence(0, PROMPTS[0], 0)],
        rows=[pb.Row(slot=0, num_tokens=5, sample=True)],
    )
    assert tokens(reply)[0] == greedy(model, PROMPTS[0], 1)
    second.close()


def test_a_broken_stream_keeps_the_weights(ready, checkpoint):
    model, _ = checkpoint
    for epoch in range(3, 6):
        stream = Stream(ready.stub(), epoch=epoch)
        assert stream.opened() == epoch
        for _ in range(5):
            stream.send(
                finished_slots=[0],
                new_sequences=[new_sequence(0, PROMPTS[0], 0)],
                rows=[pb.Row(slot=0, num_tokens=5, sample=True)],
            )
        stream.call.cancel()
    stream = Stream(ready.stub(), epoch=9)
    assert stream.opened() == 9
    reply = stream.step(
        new_sequences=[new_sequence(0, PROMPTS[0], 0)],
        rows=[pb.Row(slot=0, num_tokens=5, sample=True)],
    )
    assert tokens(reply)[0] == greedy(model, PROMPTS[0], 1)
    stream.close()
    assert ready.process.poll() is None


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([pb.RunMessage(step=pb.Step(step_id=1))], "not Open"),
        ([pb.RunMessage(open=pb.Open(num_blocks=32)), pb.RunMessage(step=pb.Step(step_id=2))], "2"),
        ([pb.RunMessage(open=pb.Open(num_blocks=32)), pb.RunMessage()], "unexpected"),
        ([pb.RunMessage(open=pb.Open(num_blocks=10**6))], "1000000 blocks"),
        ([pb.RunMessage(open=pb.Open(num_blocks=0))], "0 blocks"),
    ],
)
def test_violations_of_the_protocol_end_the_stream_by_name(ready, messages, words):
    hold = threading.Event()

    def outgoing():
        yield from messages
        hold.wait(20)

    with pytest.raises(grpc.RpcError, match=words):
        list(ready.stub().Run(outgoing(), timeout=20))
    hold.set()


def test_heartbeats_come_while_a_step_waits(stream):
    stream.send(
        new_sequences=[new_sequence(0, [5, 6], 0)],
        rows=[pb.Row(slot=0, num_tokens=2, sample=True, masked=True)],
    )
    before = stream.heartbeats
    time.sleep(2.3)
    assert stream.heartbeats - before >= 2
    stream.outgoing.put(pb.RunMessage(mask_called_off=pb.MaskCalledOff(step_id=1, slot=0)))
    assert stream.next().step.outcome == pb.StepReply.OUTCOME_OK


def test_large_messages_pass(stream):
    # 12,000 copies of 200 ids of two bytes: more than gRPC's own limit of 4 MiB would allow.
    reply = stream.step(
        new_sequences=[new_sequence(7, [300] * 200, 0)] * 12000,
        rows=[pb.Row(slot=7, num_tokens=1)],
    )
    assert "occupied" in reply.rows[0].error
