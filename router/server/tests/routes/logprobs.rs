//! Logprobs on both `/v1` routes, stream and not.

use crate::routes_support::{Server, config, greeting, says};
use serde_json::{Value, json};

/// Bytes of entries of a chat's `content`, special tokens left out.
fn bytes(entries: &Value) -> Vec<u8> {
    let entries = entries.as_array().unwrap().iter();
    entries
        .filter(|entry| !entry["token"].as_str().unwrap().starts_with("<|"))
        .flat_map(|entry| entry["bytes"].as_array().unwrap())
        .map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap())
        .collect()
}

#[tokio::test]
async fn case_3_1_and_3_3_entries_have_their_bytes_and_go_with_their_text() {
    let server = Server::start(config(), says(greeting())).await;
    // One stop holds text back, so that chunks cover several tokens; the character in the middle takes two.
    let mut body = json!({"messages": [{"role": "user", "content": "x"}], "logprobs": true, "top_logprobs": 2,
        "stop": [" wörx"]});
    let whole = server.post("/v1/chat/completions", &body).await.json();
    let choice = &whole["choices"][0];
    let entries = &choice["logprobs"]["content"];
    assert_eq!(
        entries.as_array().unwrap().len(),
        9,
        "the end id has one, too"
    );
    assert_eq!(whole["usage"]["completion_tokens"], 9);
    assert_eq!(bytes(entries), "Hello wörld!".as_bytes());
    let tokens: Vec<&str> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["token"].as_str().unwrap())
        .collect();
    // A token's text is its own: no piece of the one before, and spaces are spaces.
    let half = "\u{fffd}";
    assert_eq!(
        tokens,
        ["Hello", " w", half, half, "r", "l", "d", "!", "<|eos|>"]
    );
    for entry in entries.as_array().unwrap() {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 2);
        // The scripted model's choice is the likeliest, and no two places have the same.
        assert_eq!(top[0]["token"], entry["token"]);
        assert_eq!(top[0]["bytes"], entry["bytes"]);
        assert_ne!(top[1]["bytes"], entry["bytes"]);
    }
    body["stream"] = json!(true);
    let chunks = server
        .post("/v1/chat/completions", &body)
        .await
        .event_json();
    let mut streamed = Vec::new();
    for chunk in &chunks {
        let choice = &chunk["choices"][0];
        let of_chunk = &choice["logprobs"]["content"];
        streamed.extend(of_chunk.as_array().unwrap().clone());
        let text = String::from_utf8(bytes(of_chunk)).unwrap();
        assert_eq!(
            choice["delta"]["content"], text,
            "a chunk has the entries of its text"
        );
    }
    assert_eq!(json!(streamed), *entries);
    assert!(chunks.len() < 9, "one chunk had several");
    server.wait_idle().await;
}

#[tokio::test]
async fn case_3_4_completions_have_them_stream_and_not() {
    let server = Server::start(config(), says(greeting())).await;
    let mut body = json!({"prompt": "Hello", "logprobs": 1, "n": 2, "max_tokens": 5});
    let whole = server.post("/v1/completions", &body).await.json();
    body["stream"] = json!(true);
    let chunks = server.post("/v1/completions", &body).await.event_json();
    for index in 0..2 {
        let lists = &whole["choices"][index]["logprobs"];
        for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let list = lists[name].as_array().unwrap();
            assert_eq!(list.len(), 5, "{name}");
            let streamed: Vec<Value> = chunks
                .iter()
                .map(|chunk| &chunk["choices"][0])
                .filter(|choice| choice["index"] == index)
                .flat_map(|choice| choice["logprobs"][name].as_array().unwrap().clone())
                .collect();
            assert_eq!(streamed, *list, "{name}");
        }
    }
    server.wait_idle().await;
}
