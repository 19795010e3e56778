//! TGI's routes.

use crate::post;
use crate::routes_support::{Server, config, greeting, says};
use serde_json::json;

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a table of requests, read from top to bottom"
)]
async fn native_routes() {
    let server = Server::start(config(), says(greeting())).await;
    let cases = [
        ("generate", "/generate", json!({"inputs": "Hello"})),
        (
            "generate_details",
            "/generate",
            json!({"inputs": "Hello and", "parameters": {"details": true, "decoder_input_details": true,
                "top_n_tokens": 2, "max_new_tokens": 3, "seed": 7, "do_sample": true}}),
        ),
        (
            "generate_best_of",
            "/generate",
            json!({"inputs": "Hello", "parameters": {"details": true, "best_of": 2, "do_sample": true,
                "max_new_tokens": 1, "return_full_text": true, "unknown": 1}}),
        ),
        (
            "generate_stop",
            "/generate",
            json!({"inputs": "Hello", "parameters": {"details": true, "stop": ["ör"]}}),
        ),
        (
            "generate_stream",
            "/generate_stream",
            json!({"inputs": "Hello", "parameters": {"details": true}}),
        ),
        (
            "generate_stream_stop",
            "/generate_stream",
            json!({"inputs": "Hello", "parameters": {"stop": ["wö"], "top_n_tokens": 1}}),
        ),
        (
            "compat",
            "/",
            json!({"inputs": "Hello", "parameters": {"max_new_tokens": 2}}),
        ),
        (
            "compat_stream",
            "/",
            json!({"inputs": "Hello", "stream": true,
                "parameters": {"max_new_tokens": 2, "return_full_text": true}}),
        ),
        (
            "compat_v1",
            "/v1",
            json!({"inputs": "Hello", "parameters": {"return_full_text": false}}),
        ),
        (
            "invocations",
            "/invocations",
            json!({"inputs": "Hello", "parameters": {"max_new_tokens": 1}}),
        ),
        (
            "generate_invalid",
            "/generate",
            json!({"inputs": "Hello", "parameters": {"temperature": -1}}),
        ),
        (
            "generate_stream_invalid",
            "/generate_stream",
            json!({"inputs": ""}),
        ),
        (
            "generate_too_long",
            "/generate",
            json!({"inputs": "Hello", "parameters": {"max_new_tokens": 63}}),
        ),
        (
            "generate_prompt_too_long",
            "/generate",
            json!({"inputs": "x".repeat(70)}),
        ),
        (
            "generate_truncate_bound",
            "/generate",
            json!({"inputs": "x", "parameters": {"truncate": 64}}),
        ),
        (
            "generate_wrong_type",
            "/generate",
            json!({"inputs": "x", "parameters": {"stop": ["a", 1]}}),
        ),
        (
            "generate_grammar",
            "/generate",
            json!({"inputs": "x", "parameters": {"grammar": {"type": "regex", "value": "Hello( w){2}"}}}),
        ),
        (
            "generate_grammar_regex",
            "/generate",
            json!({"inputs": "x", "parameters": {"grammar": {"type": "regex", "value": "(a|b"}}}),
        ),
        (
            "generate_grammar_keyword",
            "/generate",
            json!({"inputs": "x", "parameters": {"grammar": {"type": "json",
                "value": {"properties": {"a": {"not": {}}}}}}}),
        ),
        (
            "generate_grammar_type",
            "/generate",
            json!({"inputs": "x", "parameters": {"grammar": {"type": "lark", "value": "x"}}}),
        ),
    ];
    for (name, path, body) in cases {
        post(&server, name, path, body).await;
    }
}

#[tokio::test]
async fn invocations() {
    let server = Server::start(config(), says(greeting())).await;
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let cases = [
        (
            "invocations_stream",
            json!({"inputs": "Hello", "stream": true, "parameters": {"max_new_tokens": 1, "return_full_text": false}}),
        ),
        (
            "invocations_chat",
            json!({"messages": messages, "max_tokens": 1}),
        ),
        (
            "invocations_chat_stream",
            json!({"messages": messages, "max_tokens": 1, "stream": true}),
        ),
        (
            "invocations_completion",
            json!({"prompt": "Hello", "max_tokens": 1}),
        ),
        (
            "invocations_completion_stream",
            json!({"prompt": "Hello", "max_tokens": 1, "stream": true}),
        ),
        (
            "invocations_both",
            json!({"inputs": "Hello", "messages": messages}),
        ),
        ("invocations_none", json!({"stream": true})),
    ];
    for (name, body) in cases {
        post(&server, name, "/invocations", body).await;
    }
}
