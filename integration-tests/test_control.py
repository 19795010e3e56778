"""Keys, and what only an operator's key opens, on a real server."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from conftest import StartServer, children_of

ADMIN_KEY = "a-key-of-the-desk"
OPERATOR = {"x-api-key": ADMIN_KEY}
WEB = {"authorization": "Bearer web"}
PROMPT = "The capital of France is a city that everybody knows, and its name is"


def cached_tokens(url: str, headers: dict[str, str], **fields: object) -> int:
    body = {"prompt": PROMPT, "max_tokens": 1, "temperature": 0, **fields}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_keys_caches_and_a_drain_over_http(start_server: StartServer) -> None:
    flags = ("--api-key", "web", "--api-key", "other", "--admin-api-key", ADMIN_KEY)
    server = start_server(*flags)
    url = server.url
    descendants = children_of(server.process.pid)
    # Each key, and each salt, has its cached prefixes for itself.
    assert cached_tokens(url, WEB) == 0
    assert cached_tokens(url, WEB) > 0
    assert cached_tokens(url, {"x-api-key": "other"}) == 0
    assert cached_tokens(url, WEB, cache_salt="a") == 0
    # Only the operator empties them.
    assert httpx.post(f"{url}/flush_cache").status_code == 401
    assert httpx.post(f"{url}/flush_cache", headers=WEB).status_code == 403
    flushed = httpx.post(f"{url}/flush_cache", headers=OPERATOR)
    assert flushed.status_code == 200
    assert flushed.json()["freed_blocks"] > 0
    assert cached_tokens(url, WEB) == 0
    # A drain that was asked for ends as SIGTERM's does: streams finish, and nothing is left.
    body = {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 200}}
    target = f"{url}/generate_stream"
    with httpx.stream("POST", target, json=body, headers=WEB, timeout=120) as stream:
        lines = stream.iter_lines()
        first = next(lines)
        drain = httpx.post(f"{url}/drain", headers=OPERATOR)
        assert drain.status_code == 202
        rest = list(lines)
    last = json.loads([line for line in [first, *rest] if line.startswith("data:")][-1][5:])
    assert last["generated_text"] is not None
    assert server.process.wait(timeout=30) == 0
    assert [pid for pid in descendants if Path(f"/proc/{pid}").exists()] == []
    assert list(server.temp.iterdir()) == []
    assert ADMIN_KEY not in server.logged()
