"""Requests of each operation that must be answered well: few of the made-up ones are, and none asks for much."""

from __future__ import annotations

from typing import Any

from checks import COUNT, MODEL, QUESTION

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
PARAMETERS = {
    "max_new_tokens": 4,
    "details": True,
    "decoder_input_details": True,
    "top_n_tokens": 2,
}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
NATIVE: list[Any] = [
    {"inputs": COUNT, "parameters": PARAMETERS},
    {
        "inputs": COUNT,
        "parameters": {"max_new_tokens": 20, "stop": [" 9"], "return_full_text": True},
    },
    {
        "inputs": COUNT,
        "parameters": {"grammar": {"type": "json", "value": SCHEMA}, "details": True},
    },
    {"inputs": COUNT, "parameters": PARAMETERS | {"best_of": 2, "do_sample": True}},
]
# `best_of` and the prompt's details are for whole answers alone.
STREAMED: list[Any] = [
    {"inputs": COUNT, "parameters": PARAMETERS | {"decoder_input_details": False}},
    *NATIVE[1:3],
]
EITHER = [*NATIVE, *(body | {"stream": True} for body in STREAMED)]
USAGE = {"include_usage": True, "continuous_usage_stats": True}
CHATS: list[Any] = [
    {"messages": MESSAGES, "max_tokens": 20, "logprobs": True, "top_logprobs": 2},
    {"messages": MESSAGES, "max_tokens": 4, "n": 2, "seed": 1, "stream": True, "logprobs": True},
    {"messages": MESSAGES, "max_tokens": 4, "stream": True, "stream_options": USAGE},
    {"messages": MESSAGES, "max_tokens": 4, "prompt_logprobs": 1, "return_token_ids": True},
    {"messages": MESSAGES, "response_format": {"type": "json", "value": SCHEMA}, "max_tokens": 40},
]
COMPLETIONS: list[Any] = [
    {"prompt": COUNT, "max_tokens": 4, "logprobs": 2, "echo": True},
    {"prompt": [[33, 28, 216], [34]], "max_tokens": 4, "n": 2, "prompt_logprobs": 1},
    {"prompt": [COUNT, QUESTION], "max_tokens": 4, "best_of": 2, "return_token_ids": True},
    {"prompt": COUNT, "max_tokens": 4, "stream": True, "stream_options": USAGE, "logprobs": 1},
]
TENSOR = {"name": "input", "shape": [1], "datatype": "BYTES", "data": [COUNT]}
TENSORS: list[Any] = [
    {
        "id": "mine",
        "inputs": [TENSOR],
        "parameters": {"max_new_tokens": 4},
        "outputs": [{"name": "out"}],
    },
    {
        "inputs": [TENSOR | {"shape": [3], "data": list(b"one")}],
        "parameters": {"max_new_tokens": 4},
    },
]
TOKENIZE: list[Any] = [
    {"inputs": COUNT},
    {"prompt": COUNT, "return_token_strs": True},
    {"messages": MESSAGES},
]
DETOKENIZE: list[Any] = [{"tokens": [33, 28, 216]}]
ABORT: list[Any] = [{"request_id": "none"}, {"request_ids": ["none", "neither"]}]

BODIES: dict[str, list[Any]] = {
    "POST /": EITHER,
    "POST /v1": EITHER,
    "POST /generate": NATIVE,
    "POST /generate_stream": STREAMED,
    "POST /chat_tokenize": [{"messages": MESSAGES}],
    "GET /chat_tokenize": [{"messages": MESSAGES}],
    "POST /v1/chat/completions": CHATS,
    "POST /v1/completions": COMPLETIONS,
    "POST /invocations": [*EITHER, *CHATS, *COMPLETIONS],
    "POST /vertex": [{"instances": [{"inputs": COUNT, "parameters": {"max_new_tokens": 4}}] * 2}],
    "POST /v2/models/{model}/infer": TENSORS,
    "POST /v2/models/{model}/versions/{version}/infer": TENSORS,
    "POST /tokenize": TOKENIZE,
    "POST /v1/tokenize": TOKENIZE,
    "POST /detokenize": DETOKENIZE,
    "POST /v1/detokenize": DETOKENIZE,
    "POST /abort": ABORT,
    "POST /abort_request": ABORT,
    "POST /abort_requests": ABORT,
}
# What an event of a stream is, by a key of its request.
EVENTS = {
    "inputs": "StreamResponse",
    "messages": "ChatCompletionChunk",
    "prompt": "Completion",
}
# Of paths; all names are taken in `{model}` and `{version}`.
NAMES = {"id": MODEL, "model": "any", "version": "1"}
