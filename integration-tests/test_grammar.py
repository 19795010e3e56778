"""Constrained output over a real socket: TGI's `grammar` as its clients send it."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from conftest import GOLDEN, Server, StartServer, output_ids, same_ids
from huggingface_hub import InferenceClient
from huggingface_hub.errors import ValidationError

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 1, "maximum": 120},
        "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}, "maxItems": 2},
    },
    "required": ["name", "age", "likes"],
}
ASK = "Describe a person as JSON: "


def check_person(text: str) -> None:
    """A validator of its own for the one schema of this file."""
    value = json.loads(text)
    assert set(value) == {"name", "age", "likes"}
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 12
    assert isinstance(value["age"], int)
    assert 1 <= value["age"] <= 120
    assert len(value["likes"]) <= 2
    assert set(value["likes"]) <= {"tea", "rain"}


@pytest.fixture(scope="module")
def hub(server: Server) -> InferenceClient:
    return InferenceClient(server.url)


def test_greedy_constrained_ids_equal_transformers(server: Server) -> None:
    for entry in json.loads((GOLDEN / "grammar.json").read_text(encoding="utf-8")):
        grammar = {"type": "regex", "value": entry["regex"]}
        answer = server.generate(entry["prompt"], grammar=grammar)
        assert answer["details"]["finish_reason"] == "eos_token"
        same_ids(answer, entry)
        assert re.fullmatch(entry["regex"], answer["generated_text"])


def test_hub_grammars_stream_as_they_answer_whole(hub: InferenceClient) -> None:
    for grammar in [
        {"type": "json", "value": PERSON},
        {"type": "json", "value": json.dumps(PERSON)},
        {"type": "json_schema", "value": {"name": "person", "schema": PERSON}},
    ]:
        whole = hub.text_generation(ASK, grammar=grammar, max_new_tokens=90)
        check_person(whole.removeprefix(ASK))
    pieces = list(
        hub.text_generation(
            ASK,
            grammar={"type": "json_object", "value": PERSON},
            max_new_tokens=90,
            stream=True,
            details=True,
        )
    )
    shown = [piece.token.text for piece in pieces if not piece.token.special]
    assert "".join(shown) == whole.removeprefix(ASK)
    assert pieces[-1].details.finish_reason == "eos_token"


def test_grammars_go_with_sampling_penalties_and_several_choices(server: Server) -> None:
    asks = {
        "grammar": {"type": "json", "value": PERSON},
        "max_new_tokens": 120,
        "do_sample": True,
        "temperature": 1.3,
        "top_p": 0.9,
        "repetition_penalty": 1.1,
    }
    first, again = (server.generate(ASK, seed=7, **asks) for _ in range(2))
    assert output_ids(first) == output_ids(again)
    for answer in [first, server.generate(ASK, best_of=2, **asks)]:
        others = answer["details"].get("best_of_sequences") or []
        for text in [answer, *others]:
            check_person(text["generated_text"])
    # A stop string ends the text wherever the grammar is.
    cut = server.generate(ASK, grammar=asks["grammar"], stop=["age"])
    assert cut["details"]["finish_reason"] == "stop_sequence"
    assert cut["generated_text"].endswith("age")


def test_chat_takes_tgis_response_format(server: Server) -> None:
    body = {
        "messages": [{"role": "user", "content": "Is Paris the capital of France?"}],
        "response_format": {"type": "regex", "value": "(yes|no), of course"},
        "max_tokens": 30,
        "temperature": 0,
    }
    answer = server.client.post(f"{server.url}/v1/chat/completions", json=body).json()
    choice = answer["choices"][0]
    assert re.fullmatch("(yes|no), of course", choice["message"]["content"])
    assert choice["finish_reason"] == "stop"
    # A complete grammar ends the text, whatever else was asked for.
    for rules in [{"min_tokens": 25}, {"min_tokens": 4}, {"ignore_eos": True}]:
        bound = server.client.post(f"{server.url}/v1/chat/completions", json={**body, **rules})
        assert bound.json()["choices"][0] == choice


def test_plain_requests_beside_constrained_ones_are_unchanged(
    server: Server, golden: list[dict]
) -> None:
    plain = golden[:4]
    grammar = {"type": "json", "value": PERSON}
    with ThreadPoolExecutor(max_workers=8) as pool:
        bound = [
            pool.submit(server.generate, ASK, grammar=grammar, max_new_tokens=90) for _ in range(4)
        ]
        free = [pool.submit(server.generate, entry["prompt"]) for entry in plain]
        texts = {answer.result()["generated_text"] for answer in bound}
        assert len(texts) == 1
        check_person(texts.pop())
        for entry, answer in zip(plain, free, strict=True):
            same_ids(answer.result(), entry)


def test_bad_grammars_are_refused_by_name_at_once(server: Server, hub: InferenceClient) -> None:
    for grammar, words in [
        ({"type": "regex", "value": "(" * 30000}, "the regex is 30000 bytes long"),
        ({"type": "regex", "value": "a(b"}, "the regex is not valid: unclosed group at byte 1"),
        ({"type": "regex", "value": "a(?=b)"}, "look-around"),
        ({"type": "json", "value": {"not": {}}}, "the keyword `not` at # is not supported"),
        ({"type": "json", "value": {"type": "integer", "minimum": 2, "maximum": 1}}, "minimum"),
        ({"type": "json", "value": {"$ref": "#/nowhere"}}, "`#/nowhere`, which a `$ref` names"),
    ]:
        started = time.monotonic()
        body = {"inputs": "x", "parameters": {"grammar": grammar}}
        answer = httpx.post(f"{server.url}/generate", json=body, timeout=60)
        assert answer.status_code == 422
        assert answer.json()["error_type"] == "validation"
        error = answer.json()["error"]
        assert error.startswith("Input validation error: grammar is not valid: ")
        assert words in error
        assert "\n" not in error
        assert time.monotonic() - started < 10
    with pytest.raises(ValidationError, match="word boundaries"):
        hub.text_generation("x", grammar={"type": "regex", "value": r"a\bb"})


def test_a_killed_worker_costs_constrained_streams_a_pause_only(start_server: StartServer) -> None:
    server = start_server()
    grammar = {"type": "regex", "value": "([a-z]{2,9} ){40}end"}
    before = server.generate("Words: ", grammar=grammar, max_new_tokens=200)
    assert re.fullmatch(grammar["value"], before["generated_text"])
    parameters = {"grammar": grammar, "max_new_tokens": 200}
    body = {"inputs": "Words: ", "parameters": parameters}
    ids: list[int] = []
    with server.client.stream("POST", f"{server.url}/generate_stream", json=body) as stream:
        for line in stream.iter_lines():
            if not line.startswith("data:"):
                continue
            event = json.loads(line[len("data:") :])
            ids.append(event["token"]["id"])
            if len(ids) == 12:
                for pid in server.workers():
                    os.kill(pid, signal.SIGKILL)
    assert ids == output_ids(before)
    assert event["generated_text"] == before["generated_text"]
