//! `/abort`: requests end in every state, for their own key's holder, once, and leave nothing behind.

use crate::routes_support::golden::{check, show};
use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Answer, Server, config, key, says};
use axum::body::Body;
use headrace_control::RouterConfig;
use headrace_fake_worker::Script;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// Long answers, a token every few milliseconds: they still run when a busy machine comes to abort them.
pub(super) fn slow() -> Script {
    Script {
        step_micros: 8_000,
        ..says(bytes_of(&"abcdefgh".repeat(500)))
    }
}

pub(super) fn roomy() -> RouterConfig {
    RouterConfig {
        max_total_tokens: Some(1024),
        ..config()
    }
}

pub(super) fn post(path: &str, headers: &[(&str, &str)], body: &Value) -> Request<Body> {
    let mut builder = Request::post(path).header("content-type", "application/json");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Body::from(body.to_string())).unwrap()
}

/// Sends in the background.
pub(super) fn begin(server: &Arc<Server>, request: Request<Body>) -> JoinHandle<Answer> {
    let server = Arc::clone(server);
    tokio::spawn(async move { server.send(request).await })
}

pub(super) async fn abort(server: &Server, body: &Value) -> u64 {
    let answer = server.post("/abort", body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()["aborted"].as_u64().unwrap()
}

pub(super) async fn wait_running(server: &Server, count: u64) {
    server
        .wait("running", |server| server.stats().running == count)
        .await;
}

#[tokio::test]
async fn an_aborted_request_ends_in_the_way_of_its_dialect_and_frees_its_blocks() {
    let server = Arc::new(Server::start(roomy(), slow()).await);
    let chat = json!([{"role": "user", "content": "x"}]);
    let message = "Request failed during generation: the request was aborted (aborted)";
    for (path, body, sequences, status) in [
        ("/generate", json!({"inputs": "Hello"}), 1, 424),
        ("/generate_stream", json!({"inputs": "Hello"}), 1, 200),
        ("/", json!({"inputs": "Hello"}), 1, 424),
        (
            "/v1/completions",
            json!({"prompt": ["a", "b"], "n": 2}),
            4,
            500,
        ),
        (
            "/v1/completions",
            json!({"prompt": "a", "stream": true}),
            1,
            200,
        ),
        ("/v1/chat/completions", json!({"messages": chat}), 1, 500),
        (
            "/v1/chat/completions",
            json!({"messages": chat, "stream": true, "n": 2}),
            2,
            200,
        ),
    ] {
        let request = post(path, &[("x-request-id", "one")], &body);
        let running = begin(&server, request);
        wait_running(&server, sequences).await;
        assert_eq!(abort(&server, &json!({"request_id": "one"})).await, 1);
        assert_eq!(abort(&server, &json!({"request_id": "one"})).await, 0);
        let answer = running.await.unwrap();
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert_eq!(answer.header("x-request-id"), "one");
        let is_v1 = path.starts_with("/v1/");
        let error = if status == 200 {
            let mut events = answer.events();
            if is_v1 {
                assert_eq!(events.pop().as_deref(), Some("[DONE]"), "{path}");
            }
            serde_json::from_str(&events.pop().unwrap()).unwrap()
        } else {
            assert_eq!(answer.header("x-should-retry"), "false");
            answer.json()
        };
        assert_eq!(error["error_type"], "generation", "{error}");
        if is_v1 {
            assert_eq!(error["error"]["code"], "aborted", "{error}");
            assert_eq!(error["error"]["message"], message);
        } else {
            assert_eq!(error["error"], message);
        }
        server.wait_idle().await;
    }
    let page = server.get("/metrics").await.body;
    assert!(
        page.contains("tgi_request_failure{err=\"dropped\"} 7"),
        "{page}"
    );
}

#[tokio::test]
async fn a_queued_and_a_prefilling_request_are_aborted_and_others_go_on() {
    let config = RouterConfig {
        max_batch_size: Some(1),
        max_batch_prefill_tokens: Some(4),
        ..roomy()
    };
    let server = Arc::new(Server::start(config, slow()).await);
    // 4 tokens a step: 900 tokens of prompt are 225 steps.
    let long = json!({"prompt": vec![70; 900], "request_id": "long"});
    let prefilling = begin(&server, post("/v1/completions", &[], &long));
    wait_running(&server, 1).await;
    let queued = json!({"inputs": "a", "parameters": {"request_id": "queued"}});
    let queued = begin(&server, post("/generate", &[], &queued));
    let other = json!({"prompt": "b", "max_tokens": 9, "rid": "other"});
    let other = begin(&server, post("/v1/completions", &[], &other));
    server
        .wait("queued", |server| server.stats().waiting == 2)
        .await;
    assert_eq!(abort(&server, &json!({"rid": "queued"})).await, 1);
    assert_eq!(queued.await.unwrap().status, 424);
    server
        .wait("gone", |server| server.stats().waiting == 1)
        .await;
    wait_running(&server, 1).await;
    assert_eq!(
        abort(&server, &json!({"request_ids": ["long", "nobody"]})).await,
        1
    );
    assert_eq!(prefilling.await.unwrap().status, 500);
    let other = other.await.unwrap();
    assert_eq!(other.status, 200, "{}", other.body);
    assert_eq!(other.header("x-request-id"), "other");
    assert_eq!(other.json()["choices"][0]["text"], "abcdefgha");
    server.wait_idle().await;
}

#[tokio::test]
async fn a_paused_sequence_is_aborted_while_nobody_reads() {
    let fast = says(bytes_of(&"abcdefgh".repeat(500)));
    let server = Server::start(roomy(), fast).await;
    let body = json!({"inputs": "Hello", "parameters": {"request_id": "unread"}});
    let response = server
        .app
        .clone()
        .oneshot(post("/generate_stream", &[], &body))
        .await
        .unwrap();
    server
        .wait("paused", |server| server.stats().paused == 1)
        .await;
    assert_eq!(abort(&server, &json!({"request_id": "unread"})).await, 1);
    // Though the answer is still there, and not read.
    server
        .wait("gone", |server| {
            let stats = server.stats();
            stats.paused == 0 && stats.owned_blocks == 0 && stats.open_streams == 0
        })
        .await;
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(text.to_vec()).unwrap();
    assert!(
        text.trim_end().ends_with("\"error_type\":\"generation\"}"),
        "{text}"
    );
    server.wait_idle().await;
}

#[tokio::test]
async fn a_key_ends_its_own_requests_and_the_admin_all() {
    let config = RouterConfig {
        api_keys: vec![key("a", 0), key("b", 0)],
        admin_key: Some("the boss".to_owned()),
        ..roomy()
    };
    let server = Arc::new(Server::start(config, slow()).await);
    let of = |name: &str| {
        let header = format!("Bearer key of {name}");
        let body = json!({"prompt": "a", "request_id": "same"});
        post("/v1/completions", &[("authorization", &header)], &body)
    };
    let as_key = async |key: &str, body: Value| {
        server
            .send(post(
                "/abort",
                &[("x-api-key", key), ("x-request-id", "test-id")],
                &body,
            ))
            .await
    };
    let (first, second) = (begin(&server, of("a")), begin(&server, of("b")));
    wait_running(&server, 2).await;
    let nobody = server.post("/abort", &json!({"abort_all": true})).await;
    assert_eq!(nobody.status, 401);
    let all = as_key("key of a", json!({"abort_all": true})).await;
    assert_eq!(all.status, 403, "{}", all.body);
    check(
        "abort_all_forbidden",
        &show(
            "POST /abort {\"abort_all\":true}, with an ordinary key",
            &all,
        ),
    );
    let own = as_key("key of a", json!({"request_id": "same"})).await;
    assert_eq!(own.json()["aborted"], 1);
    assert_eq!(first.await.unwrap().status, 500);
    wait_running(&server, 1).await;
    let other = as_key("the boss", json!({"rid": "same"})).await;
    assert_eq!(other.json()["aborted"], 1);
    assert_eq!(second.await.unwrap().status, 500);
    let both = [begin(&server, of("a")), begin(&server, of("b"))];
    wait_running(&server, 2).await;
    let all = as_key("the boss", json!({"rid": "", "abort_all": true})).await;
    assert_eq!(all.json()["aborted"], 2);
    for one in both {
        assert_eq!(one.await.unwrap().status, 500);
    }
    server.wait_idle().await;
}

#[tokio::test]
async fn without_any_key_all_may_be_ended_and_with_the_admins_alone_not() {
    for (admin_key, status) in [(None, 200), (Some("the boss".to_owned()), 403)] {
        let config = RouterConfig {
            admin_key,
            ..roomy()
        };
        let server = Server::start(config, slow()).await;
        for path in ["/abort", "/abort_request"] {
            let answer = server.post(path, &json!({"abort_all": true})).await;
            assert_eq!(answer.status, status, "{path}");
        }
    }
}

/// Numbers without a pattern (Knuth's multiplier), the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// Bug cases 7.5, 7.7 and 7.8: whatever ends a request, whenever, it ends once and leaves nothing behind.
/// 10,000 requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_aborts_and_departures_leaves_nothing_behind() {
    let config = RouterConfig {
        max_concurrent_requests: 64,
        ..roomy()
    };
    let script = Script {
        step_micros: 50,
        ..says(bytes_of(&"abcdefgh".repeat(20)))
    };
    let server = Arc::new(Server::start(config, script).await);
    let clients: Vec<_> = (0..24_u64)
        .map(|client| {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                let mut dice = Dice(client);
                for round in 0..417 {
                    storm_round(&server, &mut dice, client, round).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    server.wait_idle().await;
    assert_eq!(abort(&server, &json!({"abort_all": true})).await, 0);
    assert_eq!(server.get("/load").await.json()["server_load"], 0);
    let after = server
        .post(
            "/generate",
            &json!({"inputs": "Hello", "parameters": {"max_new_tokens": 8}}),
        )
        .await;
    assert_eq!(after.json()["generated_text"], "abcdefgh");
}

/// One request of the storm: read to its end, aborted by its id or by everybody's, or left by its client, after a while.
async fn storm_round(server: &Server, dice: &mut Dice, client: u64, round: u64) {
    let id = format!("{client}-{round}");
    let stream = dice.below(2) == 0;
    let body = match dice.below(3) {
        0 => json!({"prompt": ["a", "b"], "n": 2, "stream": stream, "request_id": id}),
        1 => json!({"prompt": vec![70; 200], "stream": stream, "rid": id}),
        _ => json!({"prompt": "a", "max_tokens": 4, "stream": stream, "request_id": id}),
    };
    let request = server.send(post("/v1/completions", &[], &body));
    let patience = Duration::from_micros(dice.below(6_000));
    match dice.below(4) {
        // A client that leaves.
        0 => drop(tokio::time::timeout(patience, request).await),
        kind => {
            let enders = async {
                tokio::time::sleep(patience).await;
                match kind {
                    1 | 2 => {
                        abort(server, &json!({"request_id": id})).await;
                    }
                    _ if dice.below(20) == 0 => {
                        abort(server, &json!({"abort_all": true})).await;
                    }
                    _ => {}
                }
            };
            let (answer, ()) = tokio::join!(request, enders);
            assert!(
                matches!(answer.status.as_u16(), 200 | 429 | 500),
                "{}: {}",
                answer.status,
                answer.body
            );
            if answer.status == 500 {
                assert_eq!(answer.json()["error"]["code"], "aborted", "{}", answer.body);
            }
            if answer.status == 200 && stream {
                let ends = answer.body.matches("[DONE]").count();
                assert_eq!(ends, 1, "{}", answer.body);
            }
        }
    }
}
