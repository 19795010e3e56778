"""OpenAI's Python client, unchanged, over a real socket: chat and text completions, errors, headers, leaving."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from conftest import Server

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."
COUNT = "1, 2, 3, 4, 5, 6,"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="-", max_retries=0, timeout=300)


def chat(client: openai.OpenAI, **fields: object) -> openai.types.chat.ChatCompletion:
    fields = {"model": "any", "messages": QUESTION, "max_tokens": 30, "temperature": 0} | fields
    return client.chat.completions.create(**fields)


def complete(client: openai.OpenAI, **fields: object) -> openai.types.Completion:
    fields = {"model": "any", "prompt": COUNT, "max_tokens": 12, "temperature": 0} | fields
    return client.completions.create(**fields)


def test_chat(client: openai.OpenAI) -> None:
    whole = chat(client)
    (choice,) = whole.choices
    assert (choice.message.role, choice.message.content) == ("assistant", ANSWER)
    assert choice.finish_reason == "stop"
    assert choice.logprobs is None
    assert whole.object == "chat.completion"
    assert whole.id.startswith("chatcmpl-")
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert chat(client, max_tokens=3).choices[0].finish_reason == "length"
    assert chat(client, max_tokens=None, max_completion_tokens=3).usage.completion_tokens == 3


def test_chat_stream(client: openai.OpenAI) -> None:
    whole = chat(client)
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == ANSWER
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [
        c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason
    ] == ["stop"]
    assert chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    without = list(chat(client, stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in without)


def test_chat_stream_manager(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="any", messages=QUESTION, max_tokens=30, temperature=0, logprobs=True
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done", "logprobs.content.delta"} <= set(kinds)
    assert final.choices[0].message.content == ANSWER
    assert len(final.choices[0].logprobs.content) == chat(client).usage.completion_tokens


def test_chat_logprobs_hold_the_bytes(client: openai.OpenAI) -> None:
    whole = chat(client, logprobs=True, top_logprobs=3)
    entries = whole.choices[0].logprobs.content
    assert len(entries) == whole.usage.completion_tokens
    said = b"".join(bytes(entry.bytes) for entry in entries)
    # The end token is among them.
    assert said.startswith(ANSWER.encode())
    for entry in entries:
        assert entry.top_logprobs[0].token == entry.token
        assert math.isclose(entry.top_logprobs[0].logprob, entry.logprob)
        assert len(entry.top_logprobs) == 3
    streamed = [
        entry
        for chunk in chat(client, stream=True, logprobs=True, top_logprobs=3)
        if chunk.choices and chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    assert streamed == entries


def test_chat_n_seed_and_logit_bias(client: openai.OpenAI, server: Server) -> None:
    def draw(**fields: object) -> list[str]:
        whole = chat(client, temperature=1.5, n=3, max_tokens=10, **fields)
        assert [choice.index for choice in whole.choices] == [0, 1, 2]
        return [choice.message.content for choice in whole.choices]

    assert draw(seed=5) == draw(seed=5)
    assert len(set(draw(seed=5)) | set(draw(seed=50))) > 1
    texts = ["", "", ""]
    for chunk in chat(client, temperature=1.5, n=3, max_tokens=10, seed=5, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == draw(seed=5)
    paris = server.client.post(f"{server.url}/tokenize", json={"inputs": " Paris"}).json()[0]["id"]
    assert "Paris" not in chat(client, logit_bias={str(paris): -100}).choices[0].message.content


def test_chat_stop_as_string_and_list(client: openai.OpenAI) -> None:
    for stop in (" Paris", ["nothing", " Paris"]):
        choice = chat(client, stop=stop).choices[0]
        assert (choice.message.content, choice.finish_reason) == (
            "The capital of France is",
            "stop",
        )
        text = "".join(
            c.choices[0].delta.content or "" for c in chat(client, stop=stop, stream=True)
        )
        assert text == "The capital of France is"


def test_chat_roles_and_parts(client: openai.OpenAI) -> None:
    messages = [
        {"role": "developer", "content": "You answer in one word."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}], "name": "ann"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    assert "Paris" in chat(client, messages=messages).choices[0].message.content
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(openai.BadRequestError, match="image"):
        chat(client, messages=[{"role": "user", "content": [picture]}])


def test_fields_that_todays_client_can_send(client: openai.OpenAI) -> None:
    whole = chat(
        client, user="ann", metadata={"a": "b"}, store=False, service_tier="auto", safety_identifier="x",
        prompt_cache_key="y", frequency_penalty=0, presence_penalty=0, top_p=1,
        extra_body={"top_k": -1, "min_p": 0, "repetition_penalty": 1, "ignore_eos": False, "min_tokens": 0},
    )  # fmt: skip
    assert whole.choices[0].message.content == ANSWER


def test_completions(client: openai.OpenAI, server: Server) -> None:
    ids = [
        t["id"] for t in server.client.post(f"{server.url}/tokenize", json={"inputs": COUNT}).json()
    ]
    by_text = complete(client)
    by_ids = complete(client, prompt=ids)
    assert by_text.choices[0].text == by_ids.choices[0].text
    assert by_text.choices[0].text.startswith(" 7, 8, 9")
    assert by_ids.usage.prompt_tokens == len(ids)
    assert by_text.choices[0].finish_reason == "length"
    both = complete(client, prompt=[COUNT, "A, B, C, D,"], n=2, temperature=0.7, seed=1)
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    several = complete(client, prompt=[ids, ids])
    assert [choice.text for choice in several.choices] == [by_text.choices[0].text] * 2
    stopped = complete(client, stop=" 9")
    assert (stopped.choices[0].text, stopped.choices[0].finish_reason) == (" 7, 8,", "stop")


def test_completions_stream_and_logprobs(client: openai.OpenAI) -> None:
    whole = complete(client, logprobs=2)
    logprobs = whole.choices[0].logprobs
    assert "".join(logprobs.tokens) == whole.choices[0].text
    assert (
        len(logprobs.token_logprobs)
        == len(logprobs.top_logprobs)
        == len(logprobs.text_offset)
        == 12
    )
    assert logprobs.text_offset[0] == 0
    for token, logprob, top in zip(
        logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
    ):
        assert top[token] == logprob == max(top.values())
        assert len(top) == 2
    chunks = list(complete(client, logprobs=2, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert [t for c in chunks if c.choices for t in c.choices[0].logprobs.tokens] == logprobs.tokens
    assert chunks[-1].usage.completion_tokens == 12
    assert chunks[-1].choices == []


def test_completions_best_of(client: openai.OpenAI) -> None:
    best = complete(client, best_of=3, n=1, temperature=1.5, seed=2)
    assert len(best.choices) == 1
    assert best.usage.completion_tokens >= 3


def test_completions_echo(client: openai.OpenAI) -> None:
    echoed = complete(client, echo=True, logprobs=1, max_tokens=2)
    (choice,) = echoed.choices
    assert choice.text.startswith(COUNT)
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs[0] is None
    assert choice.logprobs.top_logprobs[0] is None
    assert all(logprob < 0 for logprob in choice.logprobs.token_logprobs[1:])
    assert len(choice.logprobs.tokens) == echoed.usage.prompt_tokens + 2


def test_refusals_are_typed_and_name_the_field(client: openai.OpenAI) -> None:
    cases = [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"messages": []}, "messages"),
        ({"n": 1000}, "n"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"top_logprobs": 100, "logprobs": True}, "top_logprobs"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"stop": [""]}, "stop"),
    ]
    for fields, param in cases:
        with pytest.raises(openai.BadRequestError) as caught:
            chat(client, **fields)
        assert (caught.value.param or "").split(".")[0].split("[")[0] == param, fields
        assert caught.value.type == "invalid_request_error"
        assert param in caught.value.message
        # The same before a stream opens.
        with pytest.raises(openai.BadRequestError):
            chat(client, **fields, stream=True)
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, prompt="word " * 20_000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="any", input="text")


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert model.id == MODEL
    assert model.object == "model"
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("unknown")


def test_headers(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="any",
        messages=QUESTION,
        max_tokens=1,
        extra_headers={"x-request-id": "ann-1"},
        extra_body={"no_such_field": 1},
    )
    assert raw.headers["x-request-id"] == "ann-1"
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-headrace-ignored"] == "no_such_field"
    assert raw.parse().choices
    assert chat(client)._request_id
    with client.chat.completions.with_streaming_response.create(
        model="any", messages=QUESTION, max_tokens=2, stream=True
    ) as raw:
        assert raw.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in raw.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"


def test_overload_keys_and_names(crowded: Server) -> None:
    client = openai.OpenAI(
        base_url=f"{crowded.url}/v1", api_key="secret", max_retries=0, timeout=300
    )
    with pytest.raises(openai.NotFoundError) as caught:
        chat(client, model="another")
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError) as caught:
        chat(client.with_options(api_key="wrong"))
    assert caught.value.code == "invalid_api_key"
    stream = chat(
        client, model=MODEL, max_tokens=2000, stream=True, extra_body={"ignore_eos": True}
    )
    next(stream)
    with pytest.raises(openai.RateLimitError) as caught:
        chat(client, model=MODEL, max_tokens=1)
    assert int(caught.value.response.headers["retry-after"]) >= 1
    # The client waits as it is told, and comes again.
    with ThreadPoolExecutor(max_workers=1) as pool:
        patient = pool.submit(chat, client.with_options(max_retries=30), model=MODEL, max_tokens=1)
        stream.close()
        assert patient.result().usage.completion_tokens == 1


def test_leaving_frees_the_permit(client: openai.OpenAI, server: Server) -> None:
    forever = {"max_tokens": 2000, "extra_body": {"ignore_eos": True}}
    stream = chat(client, stream=True, **forever)
    next(stream)
    stream.close()
    server.wait_idle()
    with pytest.raises(openai.APITimeoutError):
        chat(client.with_options(timeout=1), **forever)
    server.wait_idle()


def test_asynchronous(server: Server) -> None:
    async def talk() -> None:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="-", max_retries=0, timeout=300
        ) as client:
            answers = await asyncio.gather(
                *(
                    client.chat.completions.create(
                        model="any", messages=QUESTION, max_tokens=30, temperature=0
                    )
                    for _ in range(8)
                )
            )
            assert {answer.choices[0].message.content for answer in answers} == {ANSWER}
            stream = await client.chat.completions.create(
                model="any", messages=QUESTION, max_tokens=30, temperature=0, stream=True
            )
            text = ""
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
            assert text == ANSWER
            whole = await client.completions.create(
                model="any", prompt=COUNT, max_tokens=6, temperature=0
            )
            pieces = [
                chunk.choices[0].text
                async for chunk in await client.completions.create(
                    model="any", prompt=COUNT, max_tokens=6, temperature=0, stream=True
                )
            ]
            assert "".join(pieces) == whole.choices[0].text
            assert [model.id async for model in client.models.list()] == [MODEL]
            with pytest.raises(openai.BadRequestError):
                await client.chat.completions.create(model="any", messages=QUESTION, top_p=2)

    asyncio.run(talk())
