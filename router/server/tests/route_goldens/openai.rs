//! `OpenAI`'s routes.

use crate::post;
use crate::routes_support::{Server, config, greeting, says};
use serde_json::json;

#[tokio::test]
async fn chat_routes() {
    let server = Server::start(config(), says(greeting())).await;
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let cases = [
        ("chat", json!({"model": "tgi", "messages": messages})),
        (
            "chat_logprobs",
            json!({"model": "any/name", "messages": messages, "max_tokens": 3, "logprobs": true, "top_logprobs": 2}),
        ),
        (
            "chat_stop",
            json!({"messages": messages, "stop": "ö", "n": 2}),
        ),
        ("chat_stream", json!({"messages": messages, "stream": true})),
        (
            "chat_stream_usage",
            json!({"messages": messages, "stream": true, "logprobs": true, "stop": ["wör", "d!!"],
                "stream_options": {"include_usage": true}}),
        ),
        (
            "chat_stream_continuous",
            json!({"messages": messages, "stream": true, "max_tokens": 2,
                "stream_options": {"continuous_usage_stats": true}}),
        ),
        (
            "chat_tools",
            json!({"messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}]}),
        ),
        (
            "chat_response_format",
            json!({"messages": messages, "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
        ),
        (
            "chat_image",
            json!({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        ),
        (
            "chat_too_long",
            json!({"messages": messages, "max_tokens": 60, "stream": true}),
        ),
        (
            "chat_completion_tokens_beyond",
            json!({"messages": messages, "max_completion_tokens": 2_147_483_648_u32}),
        ),
        (
            "chat_tier_stream",
            json!({"messages": messages, "stream": true, "max_tokens": 1, "service_tier": "flex", "stop": ["Hell"],
                "stream_options": {"include_usage": true}}),
        ),
        (
            "chat_prompt_too_long",
            json!({"messages": [{"role": "user", "content": "x".repeat(70)}]}),
        ),
        ("chat_missing", json!({"model": "x"})),
    ];
    for (name, body) in cases {
        post(&server, name, "/v1/chat/completions", body).await;
    }
}

#[tokio::test]
async fn chats_that_ask_about_tokens() {
    let server = Server::start(config(), says(greeting())).await;
    let user = json!([{"role": "user", "content": "Hi"}]);
    let begun =
        json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well, "}]);
    let cases = [
        (
            "chat_prompt_logprobs",
            json!({"messages": user, "prompt_logprobs": 1, "max_tokens": 1}),
        ),
        (
            "chat_token_ids",
            json!({"messages": user, "return_token_ids": true, "return_tokens_as_token_ids": true,
                "logprobs": true, "top_logprobs": 1, "max_tokens": 2}),
        ),
        (
            "chat_token_ids_stream",
            json!({"messages": user, "return_token_ids": true, "max_tokens": 4, "stream": true}),
        ),
        (
            "chat_echo",
            json!({"messages": begun, "echo": true, "max_tokens": 2}),
        ),
        (
            "chat_echo_stream",
            json!({"messages": begun, "echo": true, "max_tokens": 2, "stream": true}),
        ),
    ];
    for (name, body) in cases {
        post(&server, name, "/v1/chat/completions", body).await;
    }
}

#[tokio::test]
async fn completion_routes() {
    let server = Server::start(config(), says(greeting())).await;
    let cases = [
        ("completion", json!({"model": "x", "prompt": "Hello"})),
        (
            "completion_prompts",
            json!({"prompt": ["Hello", "user"], "n": 2, "max_tokens": 2}),
        ),
        (
            "completion_ids",
            json!({"prompt": [[72, 73], [74]], "max_tokens": 1, "logprobs": 1}),
        ),
        (
            "completion_ignore_eos",
            json!({"prompt": [72], "max_tokens": 10, "ignore_eos": true}),
        ),
        (
            "completion_logprobs",
            json!({"prompt": "Hello", "logprobs": 1, "stop": ["ld"]}),
        ),
        (
            "completion_stream",
            json!({"prompt": "Hello", "stream": true}),
        ),
        (
            "completion_stream_usage",
            json!({"prompt": "Hello", "stream": true, "logprobs": 0, "max_tokens": 4,
                "stream_options": {"include_usage": true}}),
        ),
        (
            "completion_shape",
            json!({"prompt": "Hello", "stop": ["ld"], "include_stop_str_in_output": true, "service_tier": "auto",
                "user": "me", "unheard_of": 1}),
        ),
        (
            "completion_special_stream",
            json!({"prompt": "Hello", "stop_token_ids": [37], "skip_special_tokens": false, "stream": true,
                "include_stop_str_in_output": true}),
        ),
        (
            "completion_allowed_ids",
            json!({"prompt": "Hello", "allowed_token_ids": [37, 1], "bad_words": ["!"], "max_tokens": 3}),
        ),
        (
            "completion_allowed_none",
            json!({"prompt": "Hello", "allowed_token_ids": []}),
        ),
        (
            "completion_truncated",
            json!({"prompt": "x".repeat(70), "truncate_prompt_tokens": -1, "max_tokens": 4}),
        ),
        ("completion_bad_id", json!({"prompt": [1, 100_000]})),
        ("completion_too_long", json!({"prompt": vec![72; 70]})),
        (
            "completion_suffix",
            json!({"prompt": "Hello", "suffix": "x"}),
        ),
    ];
    for (name, body) in cases {
        post(&server, name, "/v1/completions", body).await;
    }
}

#[tokio::test]
async fn completions_that_ask_about_tokens() {
    let server = Server::start(config(), says(greeting())).await;
    let cases = [
        ("completion_echo", json!({"prompt": "Hello", "echo": true})),
        (
            "completion_echo_logprobs",
            json!({"prompt": "Hello w", "echo": true, "logprobs": 1, "max_tokens": 1}),
        ),
        (
            "completion_echo_only",
            json!({"prompt": "Hello w", "echo": true, "logprobs": 1, "max_tokens": 0}),
        ),
        (
            "completion_echo_only_stream",
            json!({"prompt": "Hello", "echo": true, "logprobs": 0, "max_tokens": 0, "stream": true,
                "stream_options": {"include_usage": true}}),
        ),
        (
            "completion_echo_ids",
            json!({"prompt": [[0, 72, 73], [74, 75]], "echo": true, "logprobs": 0, "max_tokens": 1, "n": 2}),
        ),
        (
            "completion_echo_stream",
            json!({"prompt": "Hello", "echo": true, "logprobs": 1, "max_tokens": 3, "stream": true}),
        ),
        (
            "completion_echo_truncate",
            json!({"prompt": "Hello wö", "echo": true, "logprobs": 0, "max_tokens": 1, "truncate": 3}),
        ),
        (
            "completion_max_tokens_0",
            json!({"prompt": "Hello", "max_tokens": 0}),
        ),
        (
            "completion_prompt_logprobs",
            json!({"prompt": "Hello", "prompt_logprobs": 2, "max_tokens": 1, "n": 2}),
        ),
        (
            "completion_prompt_logprobs_stream",
            json!({"prompt": "Hello", "prompt_logprobs": 2, "stream": true}),
        ),
        (
            "completion_token_ids",
            json!({"prompt": "Hello", "return_token_ids": true, "return_tokens_as_token_ids": true,
                "logprobs": 1, "max_tokens": 2}),
        ),
        (
            "completion_token_ids_stream",
            json!({"prompt": "Hello", "return_token_ids": true, "stream": true}),
        ),
    ];
    for (name, body) in cases {
        post(&server, name, "/v1/completions", body).await;
    }
}
