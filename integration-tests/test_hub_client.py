"""huggingface_hub's InferenceClient, unchanged, over a real socket: TGI's routes and chat, synchronous and not."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import Server
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import (
    BadRequestError,
    HfHubHTTPError,
    InferenceTimeoutError,
    OverloadedError,
    UnknownError,
    ValidationError,
)

PROMPT = "The capital of France is"
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "capital": {"type": "boolean"},
    },
    "required": ["city", "capital"],
}


@pytest.fixture(scope="module")
def hub(server: Server) -> InferenceClient:
    return InferenceClient(server.url, timeout=300)


def test_text_only(hub: InferenceClient) -> None:
    whole = hub.text_generation(PROMPT, max_new_tokens=12, return_full_text=False)
    pieces = list(hub.text_generation(PROMPT, max_new_tokens=12, stream=True))
    assert isinstance(whole, str)
    assert "Paris" in whole
    assert "".join(pieces) == whole
    # `/` prepends the prompt, as TGI does where the hub's pipeline tag is unknown.
    assert hub.text_generation(PROMPT, max_new_tokens=12) == PROMPT + whole


def test_details_are_those_of_transformers(hub: InferenceClient, golden: list[dict]) -> None:
    entry = next(entry for entry in golden if "capital of France" in entry["prompt"])
    near = next((i for i, gap in enumerate(entry["gaps"]) if gap < 1e-3), len(entry["gaps"]))
    whole = hub.text_generation(entry["prompt"], max_new_tokens=64, details=True)
    ids = [token.id for token in whole.details.tokens]
    assert near > 0
    assert ids[:near] == entry["output_ids"][:near]
    assert whole.details.generated_tokens == len(ids)
    assert whole.details.prefill == []
    assert all(token.logprob <= 0 for token in whole.details.tokens)
    pieces = list(
        hub.text_generation(entry["prompt"], max_new_tokens=64, details=True, stream=True)
    )
    assert [vars(piece.token) for piece in pieces] == [
        vars(token) for token in whole.details.tokens
    ]
    assert [piece.index for piece in pieces] == list(range(1, len(ids) + 1))
    assert all(piece.generated_text is None and piece.details is None for piece in pieces[:-1])
    end = pieces[-1]
    assert end.generated_text == whole.generated_text
    assert end.details.finish_reason == whole.details.finish_reason
    assert end.details.generated_tokens == len(ids)
    assert end.details.input_length == len(entry["prompt_ids"])


def test_decoder_input_details(hub: InferenceClient, server: Server) -> None:
    whole = hub.text_generation(PROMPT, max_new_tokens=1, details=True, decoder_input_details=True)
    ids = [
        t["id"]
        for t in server.client.post(f"{server.url}/tokenize", json={"inputs": PROMPT}).json()
    ]
    assert [token.id for token in whole.details.prefill] == ids
    assert "".join(token.text for token in whole.details.prefill) == PROMPT
    assert whole.details.prefill[0].logprob is None
    assert all(token.logprob < 0 for token in whole.details.prefill[1:])


def test_top_n_tokens(hub: InferenceClient) -> None:
    whole = hub.text_generation(PROMPT, max_new_tokens=4, details=True, top_n_tokens=3)
    # The client leaves these as dicts, for they are lists in a list.
    places = whole.details.top_tokens
    assert [len(likeliest) for likeliest in places] == [3] * 4
    for token, likeliest in zip(whole.details.tokens, places, strict=True):
        assert vars(token) == likeliest[0]
        logprobs = [one["logprob"] for one in likeliest]
        assert logprobs == sorted(logprobs, reverse=True)
    pieces = hub.text_generation(
        PROMPT, max_new_tokens=4, details=True, top_n_tokens=3, stream=True
    )
    assert [[vars(token) for token in piece.top_tokens] for piece in pieces] == places


def test_stop(hub: InferenceClient) -> None:
    whole = hub.text_generation("1, 2, 3, 4, 5, 6,", max_new_tokens=30, stop=[" 9"], details=True)
    assert whole.generated_text == "1, 2, 3, 4, 5, 6, 7, 8, 9"
    assert whole.details.finish_reason == "stop_sequence"


def test_seed_and_sampling_fields(hub: InferenceClient) -> None:
    def draw(seed: int) -> str:
        return hub.text_generation(
            PROMPT, max_new_tokens=16, do_sample=True, seed=seed, temperature=1.3, top_k=40, top_p=0.95,
            typical_p=0.95, repetition_penalty=1.1, frequency_penalty=0.1, truncate=100, details=True,
        )  # fmt: skip

    one = draw(7)
    assert draw(7) == one
    assert one.details.seed == 7
    assert len({draw(seed).generated_text for seed in range(6)}) > 1


def test_best_of(hub: InferenceClient) -> None:
    whole = hub.text_generation(
        PROMPT, max_new_tokens=8, best_of=2, do_sample=True, temperature=1.5, details=True
    )
    (other,) = whole.details.best_of_sequences
    score = [sum(t.logprob for t in one.tokens) / len(one.tokens) for one in (whole.details, other)]
    assert score[0] >= score[1]


def test_json_grammar(hub: InferenceClient) -> None:
    text = hub.text_generation(
        "A capital city as JSON: ",
        max_new_tokens=60,
        grammar={"type": "json", "value": SCHEMA},
        return_full_text=False,
    )
    value = json.loads(text)
    assert set(value) == {"city", "capital"}
    assert isinstance(value["city"], str)
    assert isinstance(value["capital"], bool)


def test_regex_grammar(hub: InferenceClient) -> None:
    pattern = r"((25[0-5]|2[0-4]\d|[01]?\d\d?)\.){3}(25[0-5]|2[0-4]\d|[01]?\d\d?)"
    text = hub.text_generation(
        "The address of the local host is ",
        max_new_tokens=40,
        grammar={"type": "regex", "value": pattern},
        return_full_text=False,
    )
    assert re.fullmatch(pattern, text)


def test_validation_errors(hub: InferenceClient) -> None:
    with pytest.raises(ValidationError, match="`inputs` tokens \\+ `max_new_tokens` must be <="):
        hub.text_generation(PROMPT, max_new_tokens=100_000)
    with pytest.raises(ValidationError, match="`inputs` cannot be empty"):
        hub.text_generation("", max_new_tokens=1)
    with pytest.raises(ValidationError, match="grammar"):
        hub.text_generation(PROMPT, max_new_tokens=1, grammar={"type": "regex", "value": "("})
    # Refused before the stream opens.
    with pytest.raises(ValidationError, match="top_p"):
        next(iter(hub.text_generation(PROMPT, max_new_tokens=1, top_p=1.5, stream=True)))


def test_chat(hub: InferenceClient) -> None:
    whole = hub.chat_completion(QUESTION, max_tokens=30, temperature=0)
    assert whole.choices[0].message.content == ANSWER
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    chunks = list(
        hub.chat_completion(
            QUESTION,
            max_tokens=30,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_chat_through_the_v1_base_url(server: Server) -> None:
    client = InferenceClient(base_url=f"{server.url}/v1", api_key="any", timeout=300)
    whole = client.chat.completions.create(
        messages=QUESTION, max_tokens=30, temperature=0, model="tgi"
    )
    assert whole.choices[0].message.content == ANSWER
    # Not `/`: the prompt goes to `/v1` itself.
    assert client.text_generation(PROMPT, max_new_tokens=4) == InferenceClient(
        server.url
    ).text_generation(PROMPT, max_new_tokens=4)


def test_chat_logprobs_seed_stop_and_n(hub: InferenceClient) -> None:
    whole = hub.chat_completion(
        QUESTION, max_tokens=30, temperature=0, logprobs=True, top_logprobs=2, seed=1, stop=[" Paris"],
        frequency_penalty=0, presence_penalty=0, logit_bias=None, top_p=1, n=1,
    )  # fmt: skip
    choice = whole.choices[0]
    assert choice.message.content == "The capital of France is"
    assert choice.finish_reason == "stop"
    assert all(len(one.top_logprobs) == 2 for one in choice.logprobs.content)
    assert choice.logprobs.content[0].token == "The"
    assert choice.logprobs.content[0].top_logprobs[0].logprob == choice.logprobs.content[0].logprob


def test_chat_grammar(hub: InferenceClient) -> None:
    for response_format in (
        {"type": "json", "value": SCHEMA},
        # The client rewrites this one to {"type": "json_object", "value": …}.
        {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}},
    ):
        whole = hub.chat_completion(
            QUESTION, max_tokens=60, temperature=0, response_format=response_format
        )
        assert set(json.loads(whole.choices[0].message.content)) == {"city", "capital"}


def test_chat_errors(hub: InferenceClient) -> None:
    with pytest.raises(BadRequestError, match="temperature") as caught:
        hub.chat_completion(QUESTION, temperature=-1)
    assert caught.value.response.status_code == 400
    # The client quotes the request id and the server's words.
    assert caught.value.response.headers["x-request-id"] in str(caught.value)
    with pytest.raises(BadRequestError, match="messages"):
        hub.chat_completion([])


def test_overload_and_keys(crowded: Server) -> None:
    client = InferenceClient(crowded.url, api_key="secret", timeout=300)
    stream = client.text_generation(PROMPT, max_new_tokens=2000, stream=True)
    next(iter(stream))
    with pytest.raises(OverloadedError, match="Model is overloaded"):
        client.text_generation(PROMPT, max_new_tokens=1)
    with pytest.raises(HfHubHTTPError) as caught:
        client.chat_completion(QUESTION, max_tokens=1)
    assert caught.value.response.status_code == 429
    assert int(caught.value.response.headers["retry-after"]) >= 1
    client.close()
    crowded.wait_idle()
    assert client.text_generation(PROMPT, max_new_tokens=1)
    stranger = InferenceClient(crowded.url, api_key="wrong")
    # A type that the client does not know, with the server's words.
    with pytest.raises(UnknownError, match="A valid API key is required"):
        stranger.text_generation(PROMPT, max_new_tokens=1)
    with pytest.raises(HfHubHTTPError, match="A valid API key is required") as caught:
        stranger.chat_completion(QUESTION, max_tokens=1)
    assert caught.value.response.status_code == 401


def test_timeout_frees_the_permit(server: Server) -> None:
    with pytest.raises(InferenceTimeoutError):
        InferenceClient(server.url, timeout=1).text_generation(PROMPT, max_new_tokens=2000)
    server.wait_idle()


def test_many_threads(hub: InferenceClient) -> None:
    alone = hub.text_generation(PROMPT, max_new_tokens=12)
    with ThreadPoolExecutor(max_workers=8) as pool:
        texts = list(pool.map(lambda _: hub.text_generation(PROMPT, max_new_tokens=12), range(16)))
    assert texts == [alone] * 16


def test_asynchronous(server: Server, hub: InferenceClient) -> None:
    async def talk() -> None:
        async with AsyncInferenceClient(server.url, timeout=300) as client:
            whole, chat = await asyncio.gather(
                client.text_generation(PROMPT, max_new_tokens=12, details=True),
                client.chat_completion(QUESTION, max_tokens=30, temperature=0),
            )
            assert whole == hub.text_generation(PROMPT, max_new_tokens=12, details=True)
            assert chat.choices[0].message.content == ANSWER
            pieces = [
                piece
                async for piece in await client.text_generation(
                    PROMPT, max_new_tokens=12, details=True, stream=True
                )
            ]
            assert [vars(piece.token) for piece in pieces] == [
                vars(token) for token in whole.details.tokens
            ]
            text = ""
            async for chunk in await client.chat_completion(
                QUESTION, max_tokens=30, temperature=0, stream=True
            ):
                text += "".join(choice.delta.content or "" for choice in chunk.choices)
            assert text == ANSWER
            with pytest.raises(ValidationError):
                await client.text_generation(PROMPT, max_new_tokens=100_000)

    asyncio.run(talk())


def test_endpoint_questions(server: Server) -> None:
    # Without a provider, 2.x asks the hub where the model is served.
    client = InferenceClient(server.url, provider="hf-inference")
    assert client.health_check() is True
    info = client.get_endpoint_info()
    assert info["max_total_tokens"] > info["max_input_tokens"] > 0
