"""langchain-huggingface: its text model and its chat model of an endpoint, called, streamed and awaited."""

from __future__ import annotations

import asyncio

from checks import ANSWER, COUNT, COUNTED, QUESTION, refusal, run
from huggingface_hub.errors import HfHubHTTPError, ValidationError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_huggingface import ChatHuggingFace, HuggingFaceEndpoint


def model(url: str, **fields: object) -> HuggingFaceEndpoint:
    # Its own defaults sample (top_p, typical_p 0.95) at temperature 0.8; top_k 1 makes that the likeliest token.
    fields = {"max_new_tokens": 12, "top_k": 1} | fields
    return HuggingFaceEndpoint(endpoint_url=url, timeout=300, **fields)


def chat_model(url: str, **fields: object) -> ChatHuggingFace:
    endpoint = HuggingFaceEndpoint(
        endpoint_url=url, timeout=300, max_new_tokens=30, temperature=0.01, **fields
    )
    return ChatHuggingFace(llm=endpoint)


def check_invoke(url: str) -> None:
    assert model(url).invoke(COUNT).startswith(COUNTED)
    assert model(url, do_sample=True, seed=3, top_k=50).invoke(COUNT)


def check_stop(url: str) -> None:
    # The client cuts the stop text itself.
    assert model(url).invoke(COUNT, stop=[" 9"]) == " 7, 8,"
    assert model(url, stop_sequences=[" 9"]).invoke(COUNT) == " 7, 8,"


def check_batch(url: str) -> None:
    alone = model(url).invoke(COUNT)
    assert model(url).batch([COUNT] * 6) == [alone] * 6


def check_stream(url: str) -> None:
    pieces = list(model(url).stream(COUNT))
    assert len(pieces) > 3
    assert "".join(pieces) == model(url).invoke(COUNT)


def check_asynchronous(url: str) -> None:
    async def talk() -> tuple[str, str]:
        ask = model(url)
        whole = await ask.ainvoke(COUNT)
        return whole, "".join([piece async for piece in ask.astream(COUNT)])

    whole, streamed = asyncio.run(talk())
    assert whole == streamed
    assert whole.startswith(COUNTED)


def check_chat_invoke(url: str) -> None:
    message = chat_model(url).invoke([HumanMessage(content=QUESTION)])
    assert message.content == ANSWER
    assert message.response_metadata["finish_reason"] == "stop"
    assert message.usage_metadata["total_tokens"] > message.usage_metadata["output_tokens"] > 0


def check_chat_history(url: str) -> None:
    history = [
        SystemMessage(content="You answer in one sentence."),
        HumanMessage(content="Hello"),
        AIMessage(content="Hello! How can I help you today?"),
        HumanMessage(content=QUESTION),
    ]
    assert "Paris" in chat_model(url).invoke(history).content


def check_chat_stream(url: str) -> None:
    chunks = list(chat_model(url).stream([HumanMessage(content=QUESTION)], stream_usage=True))
    assert "".join(chunk.content for chunk in chunks) == ANSWER
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.usage_metadata["output_tokens"] > 0


def check_chat_asynchronous(url: str) -> None:
    async def talk() -> tuple[str, str]:
        ask = chat_model(url)
        whole = await ask.ainvoke([HumanMessage(content=QUESTION)])
        pieces = [piece.content async for piece in ask.astream([HumanMessage(content=QUESTION)])]
        return whole.content, "".join(pieces)

    assert asyncio.run(talk()) == (ANSWER, ANSWER)


def check_chain(url: str) -> None:
    prompt = ChatPromptTemplate.from_messages([("user", "What is the capital of {country}?")])
    chain = prompt | chat_model(url) | StrOutputParser()
    assert "Paris" in chain.invoke({"country": "France"})


def check_errors(url: str) -> None:
    ask = model(url, max_new_tokens=10**6)
    refusal(ValidationError, lambda: ask.invoke(COUNT), "`max_new_tokens`")
    refusal(ValidationError, lambda: list(ask.stream(COUNT)), "`max_new_tokens`")
    refusal(HfHubHTTPError, lambda: chat_model(url).invoke("hello", top_p=3.0), "top_p")


if __name__ == "__main__":
    run(globals(), "langchain-huggingface", "huggingface_hub")
