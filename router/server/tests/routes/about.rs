//! What the server says about itself, its tokenizer and its tokens, as vLLM's and `SGLang`'s clients ask for it.

use crate::routes_support::tiny_tokenizer::{EOS, vocab_size, word};
use crate::routes_support::{Server, config, greeting, key, says};
use headrace_control::RouterConfig;
use serde_json::{Value, json};

#[tokio::test]
async fn the_remote_tokenizer_of_lm_eval_finds_what_it_asks_for() {
    let server = Server::start(config(), says(greeting())).await;
    let info = server.get("/tokenizer_info").await.json();
    // Its check: a map with `eos_token`.
    assert_eq!(info["eos_token"], "<|eos|>");
    assert_eq!(info["bos_token"], "<|bos|>");
    assert_eq!(info["pad_token"], Value::Null);
    assert!(info.as_object().unwrap().contains_key("unk_token"));
    assert!(
        info["chat_template"]
            .as_str()
            .unwrap()
            .contains("<|im_start|>")
    );
    assert!(info["tokenizer_class"].is_string());
    // Then a trial, ids of the end's text, and texts of ids.
    let ids = async |text: &str| {
        let body = json!({"prompt": text, "add_special_tokens": false});
        server.post("/tokenize", &body).await.json()["tokens"].clone()
    };
    assert!(ids("test").await.is_array());
    assert_eq!(ids("<|eos|>").await, json!([EOS]));
    for text in [
        "Hello w",
        " leading",
        "ö\n\u{1f600}",
        "<|eos|>Hello<|bos|>",
        "",
    ] {
        if text.is_empty() {
            continue;
        }
        let tokens = ids(text).await;
        for path in ["/detokenize", "/v1/detokenize"] {
            let answer = server.post(path, &json!({"tokens": tokens})).await;
            assert_eq!(answer.json(), json!({"prompt": text}), "{path}");
        }
    }
}

#[tokio::test]
async fn detokenize_shows_special_tokens_unless_told_otherwise() {
    let server = Server::start(config(), says(greeting())).await;
    let tokens = json!([EOS, word("Hello"), EOS]);
    for (skip, text) in [
        (Value::Null, "<|eos|>Hello<|eos|>"),
        (json!(false), "<|eos|>Hello<|eos|>"),
        (json!(true), "Hello"),
    ] {
        let body = json!({"tokens": tokens, "skip_special_tokens": skip});
        let answer = server.post("/detokenize", &body).await;
        assert_eq!(answer.json()["prompt"], text);
    }
    let empty = server.post("/detokenize", &json!({"tokens": []})).await;
    assert_eq!(empty.json(), json!({"prompt": ""}));
    // Half a character is replaced, and an id beyond the vocabulary refused.
    let body = json!({"tokens": [vocab_size()]});
    for (path, status) in [("/detokenize", 422), ("/v1/detokenize", 400)] {
        let answer = server.post(path, &body).await;
        assert_eq!(answer.status, status);
        assert!(
            answer.body.contains("`tokens`: token id"),
            "{}",
            answer.body
        );
    }
}

#[tokio::test]
async fn tokenize_has_one_shape_at_both_paths() {
    let server = Server::start(config(), says(greeting())).await;
    let body = json!({"model": "x", "prompt": "Hello w", "return_token_strs": true, "add_special_tokens": false});
    let plain = server.post("/tokenize", &body).await;
    let v1 = server.post("/v1/tokenize", &body).await;
    assert_eq!(plain.status, 200, "{}", plain.body);
    assert_eq!(plain.json(), v1.json());
    assert_eq!(plain.json()["count"], 2);
    assert_eq!(plain.json()["token_strs"].as_array().unwrap().len(), 2);
    assert_eq!(server.post("/tokenize", &json!({})).await.status, 422);
    let refused = server.post("/v1/tokenize", &json!({})).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"].is_object());
}

#[tokio::test]
async fn the_pace_is_shown_as_its_flag_is_given() {
    for (milliseconds, shown) in [
        (None, json!("auto")),
        (Some(0), json!("off")),
        (Some(40), json!(40)),
    ] {
        let config = RouterConfig {
            target_itl_ms: milliseconds,
            ..config()
        };
        let server = Server::start(config, says(greeting())).await;
        let info = server.get("/server_info").await.json();
        assert_eq!(info["flags"]["target_itl_ms"], shown);
    }
}

#[tokio::test]
async fn the_server_tells_no_secret() {
    let config = RouterConfig {
        api_keys: vec![key("a", 0)],
        admin_key: Some("the boss".to_owned()),
        cors_allow_origin: vec!["http://example.test".to_owned()],
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    for path in [
        "/server_info",
        "/get_server_info",
        "/model_info",
        "/get_model_info",
        "/version",
        "/load",
        "/tokenizer_info",
    ] {
        assert_eq!(server.get(path).await.status, 401, "{path}");
        let request = http::Request::get(path)
            .header("x-api-key", "key of a")
            .body(axum::body::Body::empty())
            .unwrap();
        let answer = server.send(request).await;
        assert_eq!(answer.status, 200, "{path}");
        for secret in ["key of", "the boss", "127.0.0.1"] {
            assert!(!answer.body.contains(secret), "{path}: {}", answer.body);
        }
    }
}

#[tokio::test]
async fn before_the_model_is_there_what_needs_it_is_503() {
    let server = Server::start_unready(config(), says(greeting()), false);
    for path in [
        "/server_info",
        "/model_info",
        "/tokenizer_info",
        "/v1/models",
        "/info",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 503, "{path}");
        assert!(answer.headers.contains_key("retry-after"), "{path}");
    }
    for path in ["/version", "/load"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    let answer = server.post("/detokenize", &json!({"tokens": [1]})).await;
    assert_eq!(answer.status, 503);
    let abort = server.post("/abort", &json!({"request_id": "x"})).await;
    assert_eq!(abort.json(), json!({"aborted": 0}));
}

#[tokio::test]
async fn a_model_is_found_by_its_whole_name() {
    let server = Server::start(config(), says(greeting())).await;
    let list = server.get("/v1/models").await.json();
    assert_eq!(list["data"][0]["max_model_len"], 64);
    for (path, status) in [
        ("/v1/models/org/tiny", 200),
        ("/v1/models/org%2Ftiny", 200),
        ("/v1/models/org", 404),
        ("/v1/models/org/tiny/", 404),
        ("/v1/models/org/tiny/x", 404),
        ("/v1/models/ORG/tiny", 404),
        ("/v1/models/%FF", 404),
        ("/v1/models/%0A", 404),
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        if status == 200 {
            assert_eq!(answer.json(), list["data"][0], "{path}");
        } else {
            assert_eq!(answer.json()["error"]["code"], "model_not_found", "{path}");
            assert_eq!(answer.json()["error"]["param"], "model", "{path}");
        }
    }
    let bare = server.get("/v1/models/").await;
    assert_eq!(bare.status, 404);
    assert!(bare.json()["error"].is_object());
}
