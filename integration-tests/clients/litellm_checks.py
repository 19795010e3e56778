"""litellm: the same chat through its providers for TGI, vLLM and OpenAI, and text completions."""

from __future__ import annotations

import asyncio

import litellm
from checks import ANSWER, COUNT, COUNTED, MODEL, QUESTION, refusal, run

MESSAGES = [{"role": "user", "content": QUESTION}]
CHAT_PROVIDERS = ["huggingface/tgi", f"hosted_vllm/{MODEL}", f"openai/{MODEL}"]
TEXT = f"text-completion-openai/{MODEL}"


def where(url: str, model: str) -> dict:
    # The provider for TGI adds `/v1/chat/completions` itself.
    base = url if model.startswith("huggingface/") else f"{url}/v1"
    return {"model": model, "api_base": base, "api_key": "any", "timeout": 300, "num_retries": 0}


def chat(url: str, model: str, **fields: object) -> object:
    fields = {"messages": MESSAGES, "max_tokens": 30, "temperature": 0} | fields
    return litellm.completion(**where(url, model), **fields)


def check_chat(url: str) -> None:
    for model in CHAT_PROVIDERS:
        whole = chat(url, model)
        assert whole.choices[0].message.content == ANSWER, model
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


def check_chat_stream_with_usage(url: str) -> None:
    for model in CHAT_PROVIDERS:
        chunks = list(chat(url, model, stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == ANSWER, model
        assert chunks[-1].usage.completion_tokens > 0


def check_stop_seed_and_n(url: str) -> None:
    for model in CHAT_PROVIDERS[1:]:
        assert (
            chat(url, model, stop=[" Paris"]).choices[0].message.content
            == "The capital of France is"
        )
        one, two = (
            [
                c.message.content
                for c in chat(url, model, n=2, seed=4, temperature=1.2, max_tokens=8).choices
            ]
            for _ in range(2)
        )
        assert one == two
        assert len(one) == 2


def check_logprobs(url: str) -> None:
    whole = chat(url, f"hosted_vllm/{MODEL}", logprobs=True, top_logprobs=2)
    entries = whole.choices[0].logprobs.content
    assert entries[0].token == "The"
    assert len(entries[0].top_logprobs) == 2


def check_text_completions(url: str) -> None:
    ask = where(url, TEXT) | {"prompt": COUNT, "max_tokens": 12, "temperature": 0}
    whole = litellm.text_completion(**ask)
    assert whole.choices[0].text.startswith(COUNTED)
    pieces = litellm.text_completion(**ask, stream=True)
    assert "".join(c.choices[0].text or "" for c in pieces if c.choices) == whole.choices[0].text


def check_asynchronous(url: str) -> None:
    async def talk(model: str) -> tuple[str, str]:
        ask = where(url, model) | {"messages": MESSAGES, "max_tokens": 30, "temperature": 0}
        whole = await litellm.acompletion(**ask)
        text = ""
        async for chunk in await litellm.acompletion(**ask, stream=True):
            text += chunk.choices[0].delta.content or ""
        return whole.choices[0].message.content, text

    for model in CHAT_PROVIDERS:
        assert asyncio.run(talk(model)) == (ANSWER, ANSWER), model


def check_errors(url: str) -> None:
    long = [{"role": "user", "content": "word " * 20_000}]
    for model in CHAT_PROVIDERS[1:]:
        refusal(litellm.ContextWindowExceededError, lambda m=model: chat(url, m, messages=long))
        refusal(
            litellm.BadRequestError, lambda m=model: chat(url, m, temperature=-1), "temperature"
        )
    refusal(
        litellm.BadRequestError, lambda: chat(url, CHAT_PROVIDERS[0], temperature=-1), "temperature"
    )
    ask = where(url, TEXT) | {"prompt": "word " * 20_000}
    refusal(litellm.ContextWindowExceededError, lambda: litellm.text_completion(**ask))


def check_time_out(url: str) -> None:
    fields = {"max_tokens": 2000, "ignore_eos": True}
    ask = where(url, f"hosted_vllm/{MODEL}") | {"messages": MESSAGES, "timeout": 1} | fields
    refusal(litellm.Timeout, lambda: litellm.completion(**ask))


def check_router_of_two_deployments(url: str) -> None:
    router = litellm.Router(
        model_list=[
            {"model_name": "any", "litellm_params": where(url, model)}
            for model in CHAT_PROVIDERS[1:]
        ]
    )
    for _ in range(3):
        whole = router.completion(model="any", messages=MESSAGES, max_tokens=30, temperature=0)
        assert whole.choices[0].message.content == ANSWER


if __name__ == "__main__":
    litellm.suppress_debug_info = True
    run(globals(), "litellm")
