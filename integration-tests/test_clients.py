"""Real client libraries over a real socket, unchanged."""

from __future__ import annotations

import json

import openai
import pytest
from conftest import Server
from huggingface_hub import InferenceClient

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."


@pytest.fixture(scope="module")
def hub(server: Server) -> InferenceClient:
    return InferenceClient(server.url)


@pytest.fixture(scope="module")
def openai_client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0)


def test_hub_text_generation(hub: InferenceClient) -> None:
    whole = hub.text_generation("The capital of France is", max_new_tokens=12, details=True)
    pieces = list(
        hub.text_generation(
            "The capital of France is", max_new_tokens=12, stream=True, details=True
        )
    )
    assert "Paris" in whole.generated_text
    assert whole.details.finish_reason == "length"
    assert whole.details.generated_tokens == 12
    assert [piece.token.id for piece in pieces] == [token.id for token in whole.details.tokens]
    # `/` prepends the prompt, as TGI does where the hub's pipeline tag is unknown.
    text = "".join(piece.token.text for piece in pieces)
    assert pieces[-1].generated_text == whole.generated_text == "The capital of France is" + text


def test_hub_chat(hub: InferenceClient) -> None:
    whole = hub.chat_completion(QUESTION, max_tokens=30, temperature=0)
    assert whole.choices[0].message.content == ANSWER
    assert whole.choices[0].finish_reason == "stop"
    stream = hub.chat_completion(QUESTION, max_tokens=30, temperature=0, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == ANSWER


def test_openai_chat(openai_client: openai.OpenAI) -> None:
    whole = openai_client.chat.completions.create(
        model="anything",
        messages=QUESTION,
        max_tokens=30,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
    )
    choice = whole.choices[0]
    assert choice.message.content == ANSWER
    assert choice.finish_reason == "stop"
    assert whole.usage.completion_tokens == len(choice.logprobs.content)
    stream = openai_client.chat.completions.create(
        model="anything", messages=QUESTION, max_tokens=30, temperature=0, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == ANSWER
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage.model_copy(
        update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details}
    )


def test_openai_completions_with_ids_and_stop(openai_client: openai.OpenAI, server: Server) -> None:
    prompt = "1, 2, 3, 4, 5, 6,"
    ids = [
        token["id"]
        for token in server.client.post(f"{server.url}/tokenize", json={"inputs": prompt}).json()
    ]
    by_text = openai_client.completions.create(
        model="m", prompt=prompt, max_tokens=16, temperature=0
    )
    by_ids = openai_client.completions.create(model="m", prompt=ids, max_tokens=16, temperature=0)
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert by_ids.usage.prompt_tokens == len(ids)
    stopped = openai_client.completions.create(
        model="m", prompt=prompt, max_tokens=16, temperature=0, stop=" 9"
    )
    assert stopped.choices[0].finish_reason == "stop"
    assert " 9" not in stopped.choices[0].text
    assert by_text.choices[0].text.startswith(stopped.choices[0].text)


def test_openai_errors_are_typed(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.chat.completions.create(model="m", messages=QUESTION, temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.completions.create(model="m", prompt="word " * 20_000, max_tokens=1)
    assert caught.value.code == "context_length_exceeded"


def test_models_and_info(openai_client: openai.OpenAI, server: Server) -> None:
    (model,) = openai_client.models.list().data
    info = server.client.get(f"{server.url}/info").json()
    assert info["model_id"] == model.id
    document = server.client.get(f"{server.url}/api-doc/openapi.json").json()
    assert {"/generate", "/generate_stream", "/v1/chat/completions", "/v1/completions"} <= set(
        document["paths"]
    )
    assert "swagger" in server.client.get(f"{server.url}/docs", follow_redirects=True).text.lower()
    assert json.dumps(info)
