//! Routes that generate nothing, and bodies that are refused before they are read.

use crate::routes_support::golden::{check, show};
use crate::routes_support::{Server, config, greeting, says};
use crate::{get, post};
use serde_json::json;

#[tokio::test]
async fn other_routes() {
    let server = Server::start(config(), says(greeting())).await;
    let messages = json!([{"role": "user", "content": "é <|im_end|>"}]);
    let cases = [
        ("tokenize", "/tokenize", json!({"inputs": "Hello é<|eos|>"})),
        (
            "tokenize_prompt",
            "/tokenize",
            json!({"prompt": "Hello", "return_token_strs": true}),
        ),
        (
            "tokenize_messages",
            "/tokenize",
            json!({"messages": messages}),
        ),
        (
            "tokenize_both",
            "/tokenize",
            json!({"inputs": "a", "prompt": "b"}),
        ),
        (
            "chat_tokenize",
            "/chat_tokenize",
            json!({"messages": messages}),
        ),
        ("not_found", "/v1/nothing", json!({})),
        ("method_not_allowed", "/health", json!({})),
    ];
    for (name, path, body) in cases {
        post(&server, name, path, body).await;
    }
    for (name, path) in [
        ("info", "/info"),
        ("models", "/v1/models"),
        ("model", "/v1/models/org/tiny"),
        ("model_unknown", "/v1/models/other"),
        ("health", "/health"),
        ("root", "/"),
        ("ping", "/ping"),
        ("ready", "/ready"),
        ("native_not_found", "/nothing"),
    ] {
        get(&server, name, path).await;
    }
}

#[tokio::test]
async fn routes_of_peers() {
    let server = Server::start(config(), says(greeting())).await;
    for (name, path) in [
        ("version", "/version"),
        ("load", "/load"),
        ("server_info", "/server_info"),
        ("model_info", "/model_info"),
        ("tokenizer_info", "/tokenizer_info"),
    ] {
        get(&server, name, path).await;
    }
    for (name, path, body) in [
        ("detokenize", "/detokenize", json!({"tokens": [72, 101]})),
        (
            "detokenize_bad_id",
            "/v1/detokenize",
            json!({"tokens": [1, 9_999]}),
        ),
        (
            "tokenize_v1",
            "/v1/tokenize",
            json!({"prompt": "Hello", "return_token_strs": true}),
        ),
        ("abort", "/abort", json!({"request_id": "nobody"})),
        (
            "abort_request",
            "/abort_request",
            json!({"rid": "nobody", "abort_all": false}),
        ),
        (
            "abort_requests",
            "/abort_requests",
            json!({"request_ids": ["nobody"]}),
        ),
        ("abort_nothing", "/abort", json!({})),
    ] {
        post(&server, name, path, body).await;
    }
}

#[tokio::test]
async fn bodies() {
    let server = Server::start(config(), says(greeting())).await;
    for (name, path, body) in [
        ("malformed_native", "/generate", "{\"inputs\": "),
        ("malformed_v1", "/v1/completions", "nonsense"),
        (
            "duplicate_key",
            "/generate",
            r#"{"inputs":"a","inputs":"b"}"#,
        ),
    ] {
        let answer = server.post_text(path, body).await;
        check(name, &show(&format!("POST {path}\n{body}"), &answer));
    }
    let large = format!("{{\"inputs\":\"{}\"}}", "x".repeat(30_000));
    for (name, path) in [
        ("too_large", "/generate"),
        ("too_large_v1", "/v1/completions"),
    ] {
        let answer = server.post_text(path, &large).await;
        check(name, &show(&format!("POST {path}\n(30 kB)"), &answer));
    }
    for (name, path) in [
        ("media_type", "/v1/chat/completions"),
        ("media_type_native", "/generate"),
    ] {
        let request = http::Request::post(path)
            .header("content-type", "text/plain")
            .header("x-request-id", "test-id")
            .body(axum::body::Body::from("{}"))
            .unwrap();
        let answer = server.send(request).await;
        check(name, &show(&format!("POST {path}\n(text/plain)"), &answer));
    }
    let missing = server.post_text("/v1/completions", "{}").await;
    check("missing_v1", &show("POST /v1/completions\n{}", &missing));
    let request = http::Request::get("/chat_tokenize")
        .header("content-type", "application/json")
        .header("x-request-id", "test-id")
        .body(axum::body::Body::from(
            r#"{"messages":[{"role":"user","content":"a"}]}"#,
        ))
        .unwrap();
    let answer = server.send(request).await;
    check(
        "chat_tokenize_get",
        &show("GET /chat_tokenize\n(messages)", &answer),
    );
}
