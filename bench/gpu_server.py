"""The rows of `gpu_check.py` that start the launcher with the demo model on the device."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from gpu_device import Row, count_wrong
from serve import ROOT, free_port, load_golden_script, start_server

GOLDEN = ROOT / "integration-tests" / "golden"
NEAR = 5e-3
"""A GPU's products round otherwise than the CPU's: where the best two logits are nearer, either may win."""
WAIT_SECONDS = 300
PLAIN = (0, 6, 18, 23)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
}
WORDS = r"([a-z]{2,9} ){30}end"


def is_person(text: str) -> bool:
    """Whether a text is JSON of the schema `PERSON`."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return (
        set(value) == set(PERSON["required"])
        and isinstance(value["name"], str)
        and len(value["name"]) <= 12
        and isinstance(value["age"], int)
        and 1 <= value["age"] <= 120
        and len(value["likes"]) <= 2
        and set(value["likes"]) <= {"tea", "rain"}
    )


def golden(name: str) -> list[dict[str, Any]]:
    """transformers' greedy answers."""
    entries: list[dict[str, Any]] = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
    return entries


def num_certain(entry: dict[str, Any]) -> int:
    """How many of a golden entry's ids every correct server gives."""
    gaps = entry["gaps"]
    return next((i for i, gap in enumerate(gaps) if gap < NEAR), len(gaps))


def agrees(ids: list[int], entry: dict[str, Any]) -> bool:
    """Whether the ids are the golden ones, up to the first that is not certain."""
    certain = num_certain(entry)
    due = entry["output_ids"]
    return ids[:certain] == due[:certain] and (certain < len(due) or len(ids) == len(due))


class Served:
    """The server under test."""

    def __init__(self, url: str, pid: int) -> None:
        """Of a launcher with this process id."""
        self._url = url
        self._pid = pid

    def _open(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self._url + path,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            return urllib.request.urlopen(request, timeout=WAIT_SECONDS)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path} answered {error.code}: {error.read()!r}") from error

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The whole answer."""
        with self._open(path, body) as answer:
            whole: dict[str, Any] = json.load(answer)
            return whole

    def generate(self, prompt: str, **parameters: object) -> dict[str, Any]:
        """TGI's `/generate`, greedy unless the parameters say otherwise."""
        told = {"max_new_tokens": 64, "details": True, **parameters}
        return self.post("/generate", {"inputs": prompt, "parameters": told})

    def ids(self, prompt: str, **parameters: object) -> list[int]:
        """The ids of an answer."""
        return [token["id"] for token in self.generate(prompt, **parameters)["details"]["tokens"]]

    def stream(self, prompt: str, **parameters: object) -> Iterator[dict[str, Any]]:
        """The events of an answer."""
        told = {"max_new_tokens": 64, **parameters}
        with self._open("/generate_stream", {"inputs": prompt, "parameters": told}) as answer:
            for line in answer:
                if line.startswith(b"data:"):
                    event = json.loads(line[5:])
                    if "error" in event:
                        raise SystemExit(f"a stream ended with an error: {event['error']}")
                    yield event

    def workers(self) -> set[int]:
        """The launcher's children that are workers."""
        pids = {
            int(pid)
            for listed in Path(f"/proc/{self._pid}/task").glob("*/children")
            for pid in listed.read_text().split()
        }
        return {
            pid for pid in pids if b"headrace.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        }


def check_server(device: str, extra: list[str], launcher: str | None) -> list[Row]:
    """Every row of this file."""
    port = free_port()
    arguments = ["--device", device, "--dtype", "float32", *extra]
    process = start_server(port, arguments, launcher)
    try:
        served = Served(f"http://127.0.0.1:{port}", process.pid)
        return [
            *check_greedy(served),
            *check_constrained(served),
            check_prompt_logprobs(served),
            *check_restart(served),
        ]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def check_greedy(served: Served) -> list[Row]:
    """Six golden prompts, one after the other."""
    rows = []
    entries = golden("greedy.json")
    for place in (0, 6, 13, 18, 21, 23):
        entry = entries[place]
        start = time.perf_counter()
        ids = served.ids(entry["prompt"])
        rate = len(ids) / (time.perf_counter() - start)
        name = f"server: {len(entry['prompt_ids'])} tokens in ({rate:.0f} tok/s)"
        certain = f"{num_certain(entry)} certain"
        rows.append(Row(name, f"{len(ids)} ids", certain, agrees(ids, entry)))
    return rows


def check_constrained(served: Served) -> list[Row]:
    """Regexes and JSON schemas beside plain requests, all at once."""
    plain = [golden("greedy.json")[place] for place in PLAIN]
    regexes = golden("grammar.json")
    person = {"grammar": {"type": "json", "value": PERSON}, "max_new_tokens": 120}
    chat = {
        "messages": [{"role": "user", "content": "Describe a person as JSON."}],
        "max_tokens": 120,
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "value": {"name": "person", "schema": PERSON},
        },
    }
    ask = "Describe a person as JSON: "
    with ThreadPoolExecutor(max_workers=16) as pool:
        free = [pool.submit(served.ids, entry["prompt"]) for entry in plain]
        bound = [
            pool.submit(
                served.generate,
                entry["prompt"],
                grammar={"type": "regex", "value": entry["regex"]},
            )
            for entry in regexes
        ]
        people = [
            pool.submit(served.generate, ask, **person, **extra)
            for extra in ({}, {"do_sample": True, "temperature": 1.3, "seed": 7})
        ]
        chatted = pool.submit(served.post, "/v1/chat/completions", chat)
        answers = [one.result() for one in bound]
        texts = [one.result()["generated_text"] for one in people]
        texts.append(chatted.result()["choices"][0]["message"]["content"])
        unbound = [one.result() for one in free]
    return [
        count_wrong(
            "server: regex, transformers' ids",
            (
                re.fullmatch(entry["regex"], answer["generated_text"]) is not None
                and agrees([token["id"] for token in answer["details"]["tokens"]], entry)
                for answer, entry in zip(answers, regexes, strict=True)
            ),
        ),
        count_wrong("server: json_schema, greedy, sampled and as a chat", map(is_person, texts)),
        count_wrong(
            "server: plain requests beside constrained ones",
            (agrees(ids, entry) for ids, entry in zip(unbound, plain, strict=True)),
        ),
    ]


def check_prompt_logprobs(served: Served) -> Row:
    """A prompt's logprobs against transformers' in float32 on the CPU."""
    from transformers import AutoModelForCausalLM

    path = load_golden_script().demo_gguf()
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    entry = golden("greedy.json")[14]
    ids = entry["prompt_ids"]
    with torch.inference_mode():
        want = torch.log_softmax(model(input_ids=torch.tensor([ids])).logits[0].double(), -1)
    answer = served.generate(entry["prompt"], decoder_input_details=True, max_new_tokens=1)
    prefill = answer["details"]["prefill"]
    if [token["id"] for token in prefill] != ids:
        return Row("server: prompt logprobs", "other ids", "none", ok=False)
    worst = max(
        abs(token["logprob"] - float(want[place, token["id"]]))
        for place, token in enumerate(prefill[1:])
    )
    name = f"server: prompt logprobs of {len(ids)} tokens"
    return Row(name, f"{worst:.1e}", f"{NEAR:.0e}", worst <= NEAR)


def check_restart(served: Served) -> list[Row]:
    """The worker is killed under a plain and a constrained stream: both go on as if nothing had been."""
    entry = golden("greedy.json")[PLAIN[1]]
    before = served.workers()
    both_run = threading.Barrier(2)

    def listen(prompt: str, **parameters: object) -> tuple[list[int], str]:
        ids, text = [], ""
        for event in served.stream(prompt, **parameters):
            ids.append(event["token"]["id"])
            text = event.get("generated_text") or text
            if len(ids) == 8 and both_run.wait(WAIT_SECONDS) == 0:
                for pid in before:
                    os.kill(pid, signal.SIGKILL)
        return ids, text

    grammar = {"type": "regex", "value": WORDS}
    with ThreadPoolExecutor(max_workers=2) as pool:
        bound = pool.submit(listen, "Words: ", grammar=grammar, max_new_tokens=200)
        ids, _ = listen(entry["prompt"])
        _, words = bound.result()
    after = served.workers()
    return [
        Row(
            "server: the worker was killed and another one serves",
            f"{len(before)} killed",
            "1 or more",
            bool(before) and bool(after) and not before & after,
        ),
        Row(
            "server: greedy ids after the kill",
            f"{len(ids)} ids",
            f"{num_certain(entry)} certain",
            agrees(ids, entry),
        ),
        count_wrong(
            "server: constrained text after the kill", [re.fullmatch(WORDS, words) is not None]
        ),
    ]
