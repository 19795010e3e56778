"""Streams and bodies for the tests under load: many at once, each read to its end and checked for having one."""

from __future__ import annotations

import contextlib
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx
from conftest import Server

TOPICS = ["rivers", "bread", "the moon", "a small dog", "winter", "old maps", "bees", "trains"]


@dataclass(frozen=True)
class Ask:
    """One request, and so one text: greedy, or sampled under its own seed."""

    prompt: str
    parameters: dict[str, object]

    def body(self) -> dict[str, object]:
        return {"inputs": self.prompt, "parameters": dict(self.parameters)}


@dataclass
class Heard:
    """What one stream said."""

    ids: list[int] = field(default_factory=list)
    text: str = ""
    ends: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    comments: int = 0


def asks(count: int, max_new_tokens: int = 24) -> list[Ask]:
    """Greedy and seeded ones in turn, of different lengths, some with the same beginning."""
    made = []
    for number in range(count):
        topic = TOPICS[number % len(TOPICS)]
        prompt = f"Here is note {number} about {topic}. " * (1 + number % 5) + "It says:"
        parameters: dict[str, object] = {"max_new_tokens": max_new_tokens + number % 7}
        if number % 2:
            parameters |= {"do_sample": True, "temperature": 0.9, "top_p": 0.95, "seed": number}
        made.append(Ask(prompt, parameters))
    return made


def listen(server: Server, ask: Ask, seconds: float = 300) -> Heard:
    """Reads one stream to its end."""
    heard = Heard()
    with httpx.stream(
        "POST", f"{server.url}/generate_stream", json=ask.body(), timeout=seconds
    ) as stream:
        assert stream.status_code == 200, stream.read()
        for line in stream.iter_lines():
            if line.startswith(":"):
                heard.comments += 1
            if not line.startswith("data:"):
                continue
            event = json.loads(line[5:])
            if "error" in event:
                heard.errors.append(event["error"])
                continue
            heard.ids.append(event["token"]["id"])
            if not event["token"]["special"]:
                heard.text += event["token"]["text"]
            if event.get("generated_text") is not None:
                heard.ends.append(event["generated_text"])
    return heard


def listen_to_all(server: Server, many: list[Ask]) -> list[Heard]:
    with ThreadPoolExecutor(max_workers=len(many)) as pool:
        return list(pool.map(lambda ask: listen(server, ask), many))


@contextlib.contextmanager
def listening(server: Server, many: list[Ask]) -> Iterator[list[Future[Heard]]]:
    """All streams at once, while the body of the `with` does something to the server."""
    with ThreadPoolExecutor(max_workers=len(many)) as pool:
        yield [pool.submit(listen, server, ask) for ask in many]


def assert_same(heard: list[Heard], undisturbed: list[Heard]) -> None:
    """Every token once, one end, and the text of the undisturbed run."""
    for number, (mine, due) in enumerate(zip(heard, undisturbed, strict=True)):
        assert mine.errors == [], f"stream {number}"
        assert mine.ids == due.ids, f"stream {number}"
        assert mine.text == due.text, f"stream {number}"
        assert mine.ends == due.ends, f"stream {number}"
        assert len(mine.ends) == 1, f"stream {number}"


class Arrivals:
    """One short request after the other from several threads, until told to stop; the status codes it met."""

    def __init__(self, server: Server, threads: int = 4) -> None:
        self.statuses: list[int] = []
        self._server = server
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(threads)]

    def __enter__(self) -> Arrivals:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        body = {"inputs": "One", "parameters": {"max_new_tokens": 4}}
        while not self._stop.is_set():
            try:
                answer = httpx.post(f"{self._server.url}/generate", json=body, timeout=120)
            except httpx.ConnectError:
                return  # the port is closed: the drain is over
            self.statuses.append(answer.status_code)
            if answer.status_code == 503:
                assert int(answer.headers["retry-after"]) >= 1
                self._stop.wait(0.05)


ROUTES = [
    "/generate",
    "/generate_stream",
    "/",
    "/v1",
    "/invocations",
    "/v1/completions",
    "/v1/chat/completions",
    "/tokenize",
    "/chat_tokenize",
]

VALUES: list[object] = [
    None,
    True,
    -1,
    0,
    2**31,
    2**32,
    2**63,
    2**64,
    -(2**63) - 1,
    1e308,
    -0.0,
    0.5,
    "",
    "x",
    "\x00",
    "\N{GRINNING FACE}" * 50,
    "<|im_end|>" * 20,
    [],
    [[]],
    [-1],
    [2**32],
    [1, "a"],
    {},
    {"": None},
    {"type": "json", "value": {"$ref": "#"}},
    {"type": "regex", "value": "(" * 500},
    {"type": "regex", "value": "(a{1000}){1000}"},
]

KEYS = [
    *["inputs", "parameters", "prompt", "messages", "stream", "max_tokens", "max_new_tokens", "n"],
    *[
        "best_of",
        "temperature",
        "top_p",
        "top_k",
        "typical_p",
        "seed",
        "stop",
        "truncate",
        "grammar",
    ],
    *["logit_bias", "logprobs", "top_logprobs", "stop_token_ids", "min_tokens", "response_format"],
    *["tools", "tool_choice", "stream_options", "decoder_input_details", "top_n_tokens", "role"],
    *["content", "watermark", "adapter_id", "echo", "suffix", "best_of", "min_p", "user", "model"],
]


def hostile(seed: int) -> tuple[str, bytes]:
    """A route and a body that no client in its senses sends."""
    draw = random.Random(seed)
    route = draw.choice(ROUTES)
    kind = draw.randrange(10)
    if kind == 0:
        depth = draw.choice([10, 200, 5000])
        return route, b"[" * depth + b"]" * draw.choice([0, depth])
    if kind == 1:
        return route, draw.choice(
            [b"", b"\xff\xfe", b"\xef\xbb\xbf{}", b'{"inputs":"\\ud800"}', b"{} {}", b'{"a":1e999}']
        )

    def member(depth: int) -> object:
        if depth == 0 or draw.random() < 0.6:
            return draw.choice(VALUES)
        return {draw.choice(KEYS): member(depth - 1) for _ in range(draw.randrange(4))}

    body = {draw.choice(KEYS): member(3) for _ in range(draw.randrange(6))}
    if draw.random() < 0.6:
        # Good enough to come far.
        body["inputs"] = "x" * draw.choice([1, 1, 1, 4_000])
        body["prompt"] = draw.choice(["x", [1, 2, 3], [5_000_000], ["a"] * 65])
        body["messages"] = [
            {"role": draw.choice(["user", "", "x"]), "content": draw.choice(VALUES)}
        ]
    # What is taken after all must not run to the context's end.
    if body.get("max_tokens") is None:
        body["max_tokens"] = 2
    parameters = body.get("parameters")
    if not isinstance(parameters, dict):
        parameters = {draw.choice(KEYS): draw.choice(VALUES)}
    if parameters.get("max_new_tokens") is None:
        parameters["max_new_tokens"] = 2
    body["parameters"] = parameters
    text = json.dumps(body).encode()
    if kind == 2:
        text = text[: draw.randrange(len(text) + 1)]
    if kind == 3:
        text = text.replace(b'"max_tokens"', b'"max_tokens": 1, "max_tokens"')
    return route, text
