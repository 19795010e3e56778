"""What a server says about itself."""

from __future__ import annotations

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
