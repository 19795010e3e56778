"""What a server says about itself."""

from __future__ import annotations

import re

from conftest import Server


def test_info_and_api_document(server: Server) -> None:
    (model,) = server.client.get(f"{server.url}/v1/models").json()["data"]
    info = server.client.get(f"{server.url}/info").json()
    assert info["model_id"] == model["id"]
    document = server.client.get(f"{server.url}/api-doc/openapi.json").json()
    assert {"/generate", "/generate_stream", "/v1/chat/completions", "/v1/completions"} <= set(
        document["paths"]
    )
    assert "swagger" in server.client.get(f"{server.url}/docs", follow_redirects=True).text.lower()


def test_durations_have_three_decimals_at_most(server: Server) -> None:
    body = {"inputs": "Hi", "parameters": {"max_new_tokens": 2}}
    answer = server.client.post(f"{server.url}/generate", json=body)
    assert re.fullmatch(r"\d+\.\d{3}", answer.headers["x-compute-time"])
    log = server.logged()
    assert "milliseconds=" in log
    # Timestamps have no `=` before them.
    assert re.findall(r"\S+=\d+\.\d{4,}", log) == []


def test_the_pace_is_shown_as_its_flag_is_given(server: Server) -> None:
    flags = server.client.get(f"{server.url}/server_info").json()["flags"]
    assert flags["target_itl_ms"] == "auto"
