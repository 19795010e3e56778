//! On what terms requests run: classes, whose cached prefixes they see, and how long they may wait.

use crate::routes_support::golden::{check, show};
use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Server, config, greeting, key, says};
use headrace_control::RouterConfig;
use headrace_fake_worker::Script;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Twelve ids: three blocks.
fn prompt() -> Value {
    json!({"prompt": [72, 73, 74, 75, 76, 77, 78, 79, 80, 81, 82, 83], "max_tokens": 1})
}

fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

async fn cached_tokens(server: &Server, name: Option<&str>, more: Value) -> u64 {
    let body = with(prompt(), &more);
    let answer = match name {
        Some(name) => server.post_as(name, "/v1/completions", &body).await,
        None => server.post("/v1/completions", &body).await,
    };
    assert_eq!(answer.status, 200, "{}", answer.body);
    server.wait_idle().await;
    answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap()
}

#[tokio::test]
async fn a_salt_hides_cached_prefixes_from_those_without_it() {
    let server = Server::start(config(), says(greeting())).await;
    let salt = |salt: &str| json!({ "cache_salt": salt });
    for (more, is_hit) in [
        (json!({}), false),
        (json!({}), true),
        (salt("a"), false),
        (salt("a"), true),
        (salt("b"), false),
        (salt("a "), false),
        (json!({}), true),
    ] {
        let cached = cached_tokens(&server, None, more.clone()).await;
        assert_eq!(cached > 0, is_hit, "{more}: {cached}");
    }
}

#[tokio::test]
async fn keys_see_their_own_cached_prefixes_only() {
    let config = RouterConfig {
        api_keys: vec![key("one", 0), key("two", 0)],
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    for (name, salt, is_hit) in [
        ("one", None, false),
        ("one", None, true),
        ("two", None, false),
        ("two", Some("x"), false),
        ("one", Some("x"), false),
        ("one", Some("x"), true),
        ("two", None, true),
    ] {
        let more = salt.map_or(json!({}), |salt| json!({ "cache_salt": salt }));
        let cached = cached_tokens(&server, Some(name), more).await;
        assert_eq!(cached > 0, is_hit, "{name} {salt:?}: {cached}");
    }
}

/// A model that talks for ever, a token every few milliseconds.
fn slow() -> Script {
    Script {
        step_micros: 4_000,
        ..says(bytes_of(&"abcdefgh".repeat(500)))
    }
}

/// One sequence runs at a time, and runs for long.
fn narrow() -> RouterConfig {
    RouterConfig {
        max_batch_size: Some(1),
        max_total_tokens: Some(1024),
        ..config()
    }
}

/// Sends requests while another one holds the only permit; gives their names in the order in which they ended.
async fn order_of(server: Server, requests: &[(&'static str, &'static str, Value)]) -> Vec<String> {
    let server = Arc::new(server);
    let first = tokio::spawn({
        let server = Arc::clone(&server);
        let body = json!({"prompt": "Hello", "max_tokens": 300});
        async move { server.post_as("plain", "/v1/completions", &body).await }
    });
    server
        .wait("running", |server| server.stats().running == 1)
        .await;
    let (ended, mut order) = mpsc::unbounded_channel();
    for (sent, (name, holder, more)) in (1..).zip(requests) {
        let body = with(json!({"prompt": "user", "max_tokens": 2}), more);
        let (server, ended) = (Arc::clone(&server), ended.clone());
        let (name, holder) = ((*name).to_owned(), *holder);
        let waiting = Arc::clone(&server);
        tokio::spawn(async move {
            let answer = server.post_as(holder, "/v1/completions", &body).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            ended.send(name).unwrap();
        });
        waiting
            .wait("queued", |server| server.stats().waiting == sent)
            .await;
    }
    drop(ended);
    first.abort();
    let mut names = Vec::new();
    while let Some(name) = order.recv().await {
        names.push(name);
    }
    names
}

#[tokio::test]
async fn lower_classes_run_first_whoever_came_before() {
    let server = Server::start(narrow(), slow()).await;
    let class = |class: i32| json!({ "priority": class });
    let order = order_of(
        server,
        &[
            ("late", "plain", class(100)),
            ("default", "plain", json!({})),
            ("first", "plain", class(-100)),
            ("named default", "plain", class(0)),
        ],
    )
    .await;
    assert_eq!(order, ["first", "default", "named default", "late"]);
}

#[tokio::test]
async fn a_keys_class_is_its_requests_class_and_they_may_only_step_back() {
    let config = RouterConfig {
        api_keys: vec![key("plain", 0), key("batch", 5), key("urgent", -5)],
        ..narrow()
    };
    let server = Server::start(config, slow()).await;
    let refused = server
        .post_as(
            "batch",
            "/v1/completions",
            &json!({"prompt": "x", "priority": 4}),
        )
        .await;
    check(
        "terms_priority_of_key",
        &show(
            "POST /v1/completions (a key of class 5)\n{\"prompt\":\"x\",\"priority\":4}",
            &refused,
        ),
    );
    let order = order_of(
        server,
        &[
            ("batch, back", "batch", json!({"priority": 50})),
            ("batch", "batch", json!({})),
            ("plain, back", "plain", json!({"priority": 6})),
            ("plain", "plain", json!({})),
            ("urgent", "urgent", json!({})),
            ("urgent, as named", "urgent", json!({"priority": -5})),
        ],
    )
    .await;
    assert_eq!(
        order,
        [
            "urgent",
            "urgent, as named",
            "plain",
            "batch",
            "plain, back",
            "batch, back"
        ]
    );
}

#[tokio::test]
async fn a_timeout_that_passes_in_the_queue_is_that_requests_end() {
    let server = Arc::new(Server::start(narrow(), slow()).await);
    let running = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.post("/generate", &json!({"inputs": "Hello"})).await }
    });
    server
        .wait("running", |server| server.stats().running == 1)
        .await;
    for (name, path, body) in [
        (
            "timeout_generate",
            "/generate",
            json!({"inputs": "x", "parameters": {"timeout": 0.1}}),
        ),
        (
            "timeout_generate_stream",
            "/generate_stream",
            json!({"inputs": "x", "parameters": {"timeout": 0.1}}),
        ),
        (
            "timeout_completion",
            "/v1/completions",
            json!({"prompt": "x", "timeout": 0.1}),
        ),
        (
            "timeout_chat_stream",
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "x"}], "timeout": 0.1, "stream": true}),
        ),
    ] {
        let answer = server.post(path, &body).await;
        check(name, &show(&format!("POST {path}\n{body}"), &answer));
    }
    // One that is over when the queue is reached is refused there and then.
    let body = json!({"prompt": "x", "timeout": 0.000_001});
    let answer = server.post("/v1/completions", &body).await;
    check(
        "timeout_over",
        &show(&format!("POST /v1/completions\n{body}"), &answer),
    );
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    server.wait_idle().await;
    // Time enough: it is answered.
    let body = json!({"inputs": "Hello", "parameters": {"timeout": 60, "max_new_tokens": 1}});
    assert_eq!(server.post("/generate", &body).await.status, 200);
}

#[tokio::test]
async fn terms_are_bounded_alike_in_every_dialect() {
    let server = Server::start(config(), says(greeting())).await;
    for (field, value) in [
        ("priority", json!(101)),
        ("priority", json!("high")),
        ("cache_salt", json!("")),
        ("cache_salt", json!("x".repeat(1025))),
        ("prompt_cache_retention", json!("7d")),
        ("timeout", json!(0)),
        ("timeout", json!(1e9)),
    ] {
        let native = json!({"inputs": "x", "parameters": {field: value}});
        let native = server.post("/generate", &native).await;
        assert_eq!(native.status, 422, "{field}: {}", native.body);
        let completion = json!({"prompt": "x", field: value});
        let completion = server.post("/v1/completions", &completion).await;
        let chat = json!({"messages": [{"role": "user", "content": "x"}], field: value});
        let chat = server.post("/v1/chat/completions", &chat).await;
        for answer in [completion, chat] {
            assert_eq!(answer.status, 400, "{field}");
            assert_eq!(answer.json()["error"]["param"], field);
            let message = answer.json()["error"]["message"]
                .as_str()
                .unwrap()
                .to_owned();
            let said = native.json()["error"].as_str().unwrap().to_owned();
            assert_eq!(message, said.replace("parameters.", ""));
        }
    }
    let body = json!({"prompt": "x", "max_tokens": 1, "prompt_cache_retention": "24h", "priority": 3,
        "cache_salt": "s", "timeout": 30.5});
    let answer = server.post("/v1/completions", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.headers.contains_key("x-headrace-ignored"));
}
