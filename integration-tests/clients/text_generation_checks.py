"""TGI's own Python client, `text-generation`: it sends every parameter, nulls included."""

from __future__ import annotations

import asyncio
import json
import re

from checks import ANSWER, COUNT, COUNTED, QUESTION, refusal, run
from text_generation import AsyncClient, Client
from text_generation.errors import ValidationError
from text_generation.types import FinishReason, Grammar, GrammarType, Message

PROMPT = "The capital of France is"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
}


def client(url: str) -> Client:
    return Client(url, timeout=300)


def check_generate(url: str) -> None:
    whole = client(url).generate(PROMPT, max_new_tokens=12)
    assert "Paris" in whole.generated_text
    assert not whole.generated_text.startswith(PROMPT)
    assert whole.details.finish_reason == FinishReason.Length
    assert whole.details.generated_tokens == len(whole.details.tokens) == 12
    assert "".join(token.text for token in whole.details.tokens) == whole.generated_text
    assert whole.details.prefill == []
    full = client(url).generate(PROMPT, max_new_tokens=12, return_full_text=True)
    assert full.generated_text == PROMPT + whole.generated_text
    # The client asks for 20 tokens where its user says nothing.
    assert client(url).generate(PROMPT).details.generated_tokens <= 20


def check_generate_stream(url: str) -> None:
    whole = client(url).generate(PROMPT, max_new_tokens=12)
    pieces = list(client(url).generate_stream(PROMPT, max_new_tokens=12))
    assert [piece.token for piece in pieces] == whole.details.tokens
    assert all(piece.generated_text is None and piece.details is None for piece in pieces[:-1])
    assert pieces[-1].generated_text == whole.generated_text
    assert pieces[-1].details.finish_reason == FinishReason.Length
    assert pieces[-1].details.generated_tokens == 12


def check_decoder_input_details(url: str) -> None:
    whole = client(url).generate(PROMPT, max_new_tokens=1, decoder_input_details=True)
    assert "".join(token.text for token in whole.details.prefill) == PROMPT
    assert whole.details.prefill[0].logprob is None
    assert all(token.logprob < 0 for token in whole.details.prefill[1:])


def check_top_n_tokens(url: str) -> None:
    whole = client(url).generate(PROMPT, max_new_tokens=3, top_n_tokens=2)
    assert [len(tokens) for tokens in whole.details.top_tokens] == [2, 2, 2]
    assert [tokens[0] for tokens in whole.details.top_tokens] == whole.details.tokens


def check_sampling_and_seed(url: str) -> None:
    def draw() -> object:
        return client(url).generate(
            PROMPT, do_sample=True, seed=11, temperature=1.2, top_k=30, top_p=0.9, typical_p=0.9,
            repetition_penalty=1.1, frequency_penalty=0.1, truncate=50, max_new_tokens=12,
        )  # fmt: skip

    one = draw()
    assert one == draw()
    assert one.details.seed == 11


def check_best_of(url: str) -> None:
    whole = client(url).generate(
        PROMPT, max_new_tokens=8, best_of=2, do_sample=True, temperature=1.5
    )
    assert len(whole.details.best_of_sequences) == 1


def check_stop_sequences(url: str) -> None:
    whole = client(url).generate(COUNT, stop_sequences=[" 9"])
    assert whole.generated_text == COUNTED
    assert whole.details.finish_reason == FinishReason.StopSequence


def check_end_token(url: str) -> None:
    prompt = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    whole = client(url).generate(prompt, max_new_tokens=40)
    assert whole.generated_text == ANSWER
    assert whole.details.finish_reason == FinishReason.EndOfSequenceToken
    assert whole.details.tokens[-1].special


def check_json_grammar(url: str) -> None:
    grammar = Grammar(type=GrammarType.Json, value=SCHEMA)
    whole = client(url).generate("A city as JSON: ", max_new_tokens=40, grammar=grammar)
    assert set(json.loads(whole.generated_text)) == {"city"}


def check_regex_grammar(url: str) -> None:
    grammar = Grammar(type=GrammarType.Regex, value="[a-z]{3,5}-[0-9]{2}")
    whole = client(url).generate("Code: ", max_new_tokens=20, grammar=grammar)
    assert re.fullmatch("[a-z]{3,5}-[0-9]{2}", whole.generated_text)


def check_refusals(url: str) -> None:
    ask = client(url)
    refusal(ValidationError, lambda: ask.generate(PROMPT, max_new_tokens=10**6), "`max_new_tokens`")
    refusal(ValidationError, lambda: ask.generate(PROMPT, watermark=True), "watermark")
    grammar = Grammar(type=GrammarType.Regex, value="(")
    refusal(ValidationError, lambda: ask.generate(PROMPT, grammar=grammar), "grammar")
    refusal(
        ValidationError,
        lambda: next(ask.generate_stream(PROMPT, max_new_tokens=10**6)),
        "`max_new_tokens`",
    )
    refusal(
        ValidationError, lambda: ask.chat([Message(role="user", content="x")], top_p=3.0), "top_p"
    )


def check_chat(url: str) -> None:
    # Its streaming chat reads an attribute that does not exist and is left out.
    messages = [Message(role="user", content=QUESTION)]
    whole = client(url).chat(messages, max_tokens=30, temperature=0.0)
    assert whole.choices[0].message.content == ANSWER
    assert whole.choices[0].finish_reason == "stop"
    assert whole.system_fingerprint
    assert whole.usage["completion_tokens"] > 0
    with_logprobs = client(url).chat(
        messages, max_tokens=5, logprobs=True, top_logprobs=2, seed=3, n=1
    )
    assert len(with_logprobs.choices[0].logprobs["content"]) == 5


async def talk(url: str) -> None:
    ask = AsyncClient(url, timeout=300)
    whole, other = await asyncio.gather(
        ask.generate(PROMPT, max_new_tokens=12), ask.generate("1, 2, 3,", max_new_tokens=12)
    )
    assert other.generated_text.startswith(" 4, 5")
    pieces = [piece async for piece in ask.generate_stream(PROMPT, max_new_tokens=12)]
    assert [piece.token for piece in pieces] == whole.details.tokens
    chat = await ask.chat([Message(role="user", content=QUESTION)], max_tokens=30, temperature=0.0)
    assert chat.choices[0].message.content == ANSWER


def check_asynchronous(url: str) -> None:
    asyncio.run(talk(url))
    refusal(
        ValidationError,
        lambda: asyncio.run(AsyncClient(url, timeout=300).generate(PROMPT, max_new_tokens=10**6)),
        "`max_new_tokens`",
    )


if __name__ == "__main__":
    run(globals(), "text-generation", "huggingface-hub")
