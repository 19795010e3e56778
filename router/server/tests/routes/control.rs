//! Control routes: there only with an admin key, and only for its holder.

use crate::routes_support::golden::{check, show};
use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Answer, Server, config, greeting, key, says};
use axum::body::Body;
use headrace_control::{RouterConfig, ToLauncher, ToRouter};
use headrace_fake_worker::Script;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Every control route.
const CONTROL: [(&str, &str); 4] = [
    ("POST", "/drain"),
    ("POST", "/flush_cache"),
    ("GET", "/flush_cache"),
    ("POST", "/reset_prefix_cache"),
];

fn with_admin() -> RouterConfig {
    RouterConfig {
        admin_key: Some("the boss".to_owned()),
        ..config()
    }
}

async fn send(server: &Server, method: &str, path: &str, key: Option<(&str, &str)>) -> Answer {
    let mut builder = Request::builder()
        .method(method)
        .uri(path)
        .header("x-request-id", "test-id");
    if let Some((name, value)) = key {
        builder = builder.header(name, value);
    }
    server.send(builder.body(Body::empty()).unwrap()).await
}

const ADMIN: Option<(&str, &str)> = Some(("authorization", "Bearer the boss"));

#[tokio::test]
async fn without_an_admin_key_there_are_none() {
    for api_keys in [Vec::new(), vec![key("a", 0)]] {
        let config = RouterConfig {
            api_keys,
            ..config()
        };
        let server = Server::start(config, says(greeting())).await;
        for (method, path) in CONTROL {
            let known = ("x-api-key", "key of a");
            let answer = send(&server, method, path, Some(known)).await;
            let unknown = send(&server, method, "/nothing", Some(known)).await;
            assert_eq!(answer.status, 404, "{path}");
            assert_eq!(answer.body, unknown.body.replace("/nothing", path));
        }
    }
}

#[tokio::test]
async fn only_the_admin_key_opens_them() {
    for api_keys in [Vec::new(), vec![key("a", 0)]] {
        let has_keys = !api_keys.is_empty();
        let config = RouterConfig {
            api_keys,
            ..with_admin()
        };
        let server = Server::start(config, says(greeting())).await;
        for (method, path) in CONTROL {
            for wrong in [
                None,
                Some(("authorization", "Bearer THE BOSS")),
                Some(("authorization", "the boss")),
                Some(("x-api-key", "")),
            ] {
                let answer = send(&server, method, path, wrong).await;
                assert_eq!(answer.status, 401, "{path} {wrong:?}");
                assert_eq!(answer.json()["error_type"], "unauthorized");
            }
            let ordinary = send(&server, method, path, Some(("x-api-key", "key of a"))).await;
            assert_eq!(ordinary.status, if has_keys { 403 } else { 401 }, "{path}");
            if has_keys {
                check(
                    "control_forbidden",
                    &show("a control route, with an ordinary key", &ordinary),
                );
            }
            for other in ["PUT", "DELETE", "PATCH"] {
                assert_eq!(send(&server, other, path, ADMIN).await.status, 405);
            }
            for form in [ADMIN, Some(("x-api-key", "the boss"))] {
                let answer = send(&server, method, path, form).await;
                assert!(answer.status.is_success(), "{path}: {}", answer.body);
            }
        }
        // Names that only look like theirs are ordinary unknown paths.
        for odd in ["/drain/", "//drain", "/v1/drain", "/DRAIN"] {
            assert_eq!(send(&server, "POST", odd, ADMIN).await.status, 404, "{odd}");
        }
    }
}

#[tokio::test]
async fn the_admin_key_opens_the_ordinary_routes_too() {
    let generate =
        json!({"inputs": "Hello", "parameters": {"max_new_tokens": 1, "priority": -100}});
    let request = |key: Option<&str>| {
        let mut builder = Request::post("/generate").header("content-type", "application/json");
        if let Some(key) = key {
            builder = builder.header("x-api-key", key);
        }
        builder.body(Body::from(generate.to_string())).unwrap()
    };
    let server = Server::start(
        RouterConfig {
            api_keys: vec![key("a", 0)],
            ..with_admin()
        },
        says(greeting()),
    )
    .await;
    assert_eq!(server.send(request(Some("the boss"))).await.status, 200);
    assert_eq!(server.send(request(None)).await.status, 401);
    // Above its class.
    assert_eq!(server.send(request(Some("key of a"))).await.status, 422);
    // An admin key alone closes nothing else.
    let server = Server::start(with_admin(), says(greeting())).await;
    for key in [None, Some("anything"), Some("the boss")] {
        assert_eq!(server.send(request(key)).await.status, 200, "{key:?}");
    }
}

#[tokio::test]
async fn a_flush_empties_the_cache_and_leaves_running_sequences_alone() {
    let config = RouterConfig {
        max_total_tokens: Some(1024),
        ..with_admin()
    };
    let script = Script {
        step_micros: 3_000,
        ..says(bytes_of(&"abcdefgh".repeat(100)))
    };
    let server = Server::start(config, script).await;
    let prompt = json!({"prompt": vec![72; 12], "max_tokens": 1});
    let cached = async || {
        let answer = server.post("/v1/completions", &prompt).await.json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(cached().await, 0);
    assert!(cached().await > 0);
    server.wait_idle().await;
    let held = server.stats().cached_blocks;
    let answer = send(&server, "POST", "/flush_cache", ADMIN).await;
    check("control_flush_cache", &show("POST /flush_cache", &answer));
    assert_eq!(answer.json()["freed_blocks"], held);
    server
        .wait("empty", |server| server.stats().cached_blocks == 0)
        .await;
    assert_eq!(cached().await, 0, "nothing is found any more");

    // One that runs goes on to its end. The request above is gone first, and of this one's stream nothing more is read
    // during the flush: it says more than its buffer holds, so it cannot be over by then.
    server.wait_idle().await;
    let body = json!({"prompt": vec![72; 12], "max_tokens": 800, "stream": true});
    let request = Request::post("/v1/completions")
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let mut long = server
        .app
        .clone()
        .oneshot(request)
        .await
        .unwrap()
        .into_body();
    let first = long.frame().await.unwrap().unwrap().into_data().unwrap();
    let flushed = send(&server, "GET", "/flush_cache", ADMIN).await;
    assert_eq!(flushed.status, 200);
    assert!(flushed.json()["kept_blocks"].as_u64().unwrap() > 0);
    let rest = long.collect().await.unwrap().to_bytes();
    assert_eq!(said([first, rest].concat()), "abcdefgh".repeat(100));
    server.wait_idle().await;
}

/// The text of a completion's stream.
fn said(stream: Vec<u8>) -> String {
    String::from_utf8(stream)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter(|data| *data != "[DONE]")
        .map(|data| {
            let event: Value = serde_json::from_str(data).unwrap();
            event["choices"][0]["text"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[tokio::test]
async fn drain_asks_the_launcher_and_goes_on_as_it_says() {
    let mut server = Server::start(with_admin(), says(greeting())).await;
    while server.launcher.try_recv().is_ok() {}
    let answer = send(&server, "POST", "/drain", ADMIN).await;
    check("control_drain", &show("POST /drain", &answer));
    let asked = server.launcher.recv().await;
    assert!(
        matches!(asked, Some(ToLauncher::DrainRequested)),
        "{asked:?}"
    );
    // What the launcher does then.
    server
        .control
        .send(ToRouter::Drain { grace_seconds: 5 })
        .unwrap();
    server
        .wait("draining", |server| server.state.engine().status().draining)
        .await;
    assert_eq!(server.get("/ready").await.status, 503);
    assert_eq!(server.get("/health").await.status, 200);
    let body = json!({"inputs": "Hello"});
    let refused = server.post("/generate", &body).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("connection"), "close");
}
