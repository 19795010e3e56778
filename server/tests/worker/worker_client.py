"""A worker in a real process behind a real socket, and a client that speaks the protocol to it."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import torch
from headrace.pb import worker_pb2 as pb
from headrace.pb import worker_pb2_grpc
from transformers import LlamaConfig, LlamaForCausalLM

BLOCK_SIZE = 16
OPTIONS = [
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
]


def make_checkpoint(folder, **changes):
    """A tiny random Llama in Hugging Face layout, and its model document."""
    fields = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "initializer_range": 0.2,
        **changes,
    }
    torch.manual_seed(11)
    model = LlamaForCausalLM(LlamaConfig(**fields)).eval()
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    document = {
        "model_id": "tiny",
        "revision": None,
        "pipeline_tag": None,
        "weights": {"format": "safetensors", "files": [str(folder / "model.safetensors")]},
        "config": config,
        "tokenizer": {"kind": "tokenizer_json", "path": str(folder / "tokenizer.json")},
        "tokenizer_config": None,
        "chat_template": None,
        "generation_config": None,
        "dtype": "float32",
        "max_position_embeddings": fields["max_position_embeddings"],
        "vocab_size": fields["vocab_size"],
    }
    path = folder / "model.json"
    path.write_text(json.dumps(document))
    return model, path


class Worker:
    """One worker process."""

    def __init__(self, document, folder, rank=0, world_size=1, flags=(), with_parent=False):
        self.socket = Path(folder) / f"rank-{rank}.sock"
        command = [
            sys.executable,
            "-m",
            "headrace.worker",
            "--document",
            str(document),
            "--rank",
            str(rank),
            "--world-size",
            str(world_size),
            "--socket",
            str(self.socket),
            "--rendezvous",
            str(Path(folder) / "rendezvous"),
            "--compute-threads",
            "1",
            *flags,
        ]
        read_end = self.parent_fd = None
        if with_parent:
            read_end, self.parent_fd = os.pipe()
            command += ["--parent-fd", str(read_end)]
        self.log = (Path(folder) / f"rank-{rank}.log").open("w+")
        self.process = subprocess.Popen(
            command,
            env=dict(os.environ),
            stderr=self.log,
            pass_fds=[] if read_end is None else [read_end],
        )
        if read_end is not None:
            os.close(read_end)
        self.channel = None

    def stub(self):
        if self.channel is None:
            deadline = time.monotonic() + 60
            while not self.socket.exists():
                assert self.process.poll() is None, self.log_lines()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            self.channel = grpc.insecure_channel(f"unix:{self.socket}", options=OPTIONS)
        return worker_pb2_grpc.WorkerStub(self.channel)

    def prepare(self, **changes):
        return list(self.stub().Prepare(prepare_request(**changes), timeout=60))

    def log_lines(self):
        self.log.flush()
        return [json.loads(line) for line in Path(self.log.name).read_text().splitlines()]

    def wait(self, seconds=20):
        return self.process.wait(seconds)

    def close(self):
        if self.channel is not None:
            self.channel.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.parent_fd is not None:
            os.close(self.parent_fd)
        self.log.close()


def prepare_request(**changes):
    fields = {
        "block_size": BLOCK_SIZE,
        "max_batch_tokens": 64,
        "max_sequences": 8,
        "max_total_tokens": 256,
        "kv_cache_bytes": 4 << 20,
        "poison_fresh_blocks": True,
        **changes,
    }
    return pb.PrepareRequest(**fields)


class Stream:
    """One `Run` call."""

    def __init__(self, stub, num_blocks=32, epoch=1):
        self.outgoing = queue.SimpleQueue()
        self.replies = queue.SimpleQueue()
        self.heartbeats = 0
        self.step_id = 0
        self.call = stub.Run(iter(self.outgoing.get, None))
        threading.Thread(target=self._read, daemon=True).start()
        self.outgoing.put(pb.RunMessage(open=pb.Open(epoch=epoch, num_blocks=num_blocks)))

    def _read(self):
        try:
            for reply in self.call:
                if reply.HasField("heartbeat"):
                    self.heartbeats += 1
                else:
                    self.replies.put(reply)
        except grpc.RpcError as error:
            self.replies.put(error)

    def next(self, seconds=30):
        reply = self.replies.get(timeout=seconds)
        if isinstance(reply, grpc.RpcError):
            raise reply
        return reply

    def opened(self):
        return self.next().opened.epoch

    def send(self, **fields):
        self.step_id += 1
        step = pb.Step(step_id=self.step_id, **fields)
        self.outgoing.put(pb.RunMessage(step=step))
        return self.step_id

    def step(self, **fields):
        number = self.send(**fields)
        reply = self.next().step
        assert reply.step_id == number
        return reply

    def close(self):
        self.outgoing.put(None)
        self.call.cancel()


def new_sequence(slot, ids, first_block, num_blocks=12, prompt_length=None, **sampling):
    return pb.NewSequence(
        slot=slot,
        token_ids=ids,
        prompt_length=len(ids) if prompt_length is None else prompt_length,
        computed_length=0,
        blocks=range(first_block, first_block + num_blocks),
        sampling=pb.SamplingParams(**sampling),
    )


def decode_rows(*slots):
    return [pb.Row(slot=slot, num_tokens=1, sample=True) for slot in slots]


def greedy(model, ids, count):
    """transformers' own answer."""
    output = model.generate(
        torch.tensor([ids]),
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    return output[0, len(ids) :].tolist()
