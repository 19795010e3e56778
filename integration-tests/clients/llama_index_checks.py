"""llama-index-llms-huggingface-api: completion and chat of an endpoint, streamed and awaited."""

from __future__ import annotations

import asyncio

from checks import ANSWER, COUNT, COUNTED, QUESTION, refusal, run
from huggingface_hub.errors import BadRequestError, ValidationError
from llama_index.core.llms import ChatMessage
from llama_index.llms.huggingface_api import HuggingFaceInferenceAPI

MESSAGES = [ChatMessage(role="user", content=QUESTION)]


def model(url: str, **fields: object) -> HuggingFaceInferenceAPI:
    # It sends a temperature of 0.1 with each call unless told otherwise.
    fields = {"temperature": 0.01, "num_output": 12, "timeout": 300} | fields
    return HuggingFaceInferenceAPI(model=url, **fields)


def text_model(url: str) -> HuggingFaceInferenceAPI:
    # Without a task all goes through chat.
    return model(url, task="text-generation")


def check_complete(url: str) -> None:
    # `/` prepends the prompt unless told not to.
    text = text_model(url).complete(COUNT, return_full_text=False, top_k=1).text
    assert text.startswith(COUNTED)


def check_stream_complete(url: str) -> None:
    pieces = list(text_model(url).stream_complete(COUNT, top_k=1))
    assert pieces[-1].text == "".join(piece.delta for piece in pieces)
    assert pieces[-1].text.startswith(COUNTED)


def check_complete_through_chat(url: str) -> None:
    assert model(url, num_output=30).complete(QUESTION).text == ANSWER


def check_chat(url: str) -> None:
    answer = model(url, num_output=30).chat(MESSAGES)
    assert answer.message.content == ANSWER


def check_stream_chat(url: str) -> None:
    pieces = list(model(url, num_output=30).stream_chat(MESSAGES))
    assert pieces[-1].message.content == ANSWER


def check_asynchronous(url: str) -> None:
    async def talk() -> list[str]:
        ask = model(url, num_output=30)
        whole = await ask.achat(MESSAGES)
        streamed = [piece async for piece in await ask.astream_chat(MESSAGES)]
        text = await text_model(url).acomplete(COUNT, return_full_text=False, top_k=1)
        return [whole.message.content, streamed[-1].message.content, text.text[:8]]

    assert asyncio.run(talk()) == [ANSWER, ANSWER, COUNTED]


def check_context_window_is_read_from_info(url: str) -> None:
    assert model(url).metadata.context_window > 1000


def check_errors(url: str) -> None:
    refusal(ValidationError, lambda: text_model(url).complete(COUNT, top_p=3.0), "top_p")
    refusal(BadRequestError, lambda: model(url).chat(MESSAGES, top_p=3.0), "top_p")


if __name__ == "__main__":
    run(globals(), "llama-index-llms-huggingface-api", "huggingface_hub")
