//! `/health` and `/ready` in every state of the server, from what the engine last wrote down.

use crate::routes_support::golden::{check, show};
use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Server, config, greeting, says};
use axum::body::Body;
use headrace_control::{Progress, RouterConfig, ToRouter};
use headrace_fake_worker::Script;
use http::Request;
use serde_json::json;
use std::sync::Arc;

/// Paths that answer with the same verdict.
const HEALTH: [&str; 3] = ["/health", "/", "/ping"];

async fn expect(server: &Server, health: u16, ready: u16) {
    for path in HEALTH {
        assert_eq!(server.get(path).await.status, health, "{path}");
    }
    assert_eq!(server.get("/ready").await.status, ready, "/ready");
}

/// A probe's whole answer.
async fn check_probe(server: &Server, name: &str, path: &str) {
    let mut answer = server.get(path).await;
    answer.headers.remove("x-request-id");
    check(name, &show(&format!("GET {path}"), &answer));
}

fn down(is_final: bool) -> ToRouter {
    ToRouter::GroupDown {
        group: 0,
        cause: "rank 0 was killed by signal 9".to_owned(),
        is_final,
    }
}

#[tokio::test]
async fn before_the_first_ready_both_are_503_and_ready_says_what_is_waited_for() {
    let server = Server::start_unready(config(), says(greeting()), false);
    expect(&server, 503, 503).await;
    check_probe(&server, "health_starting", "/health").await;
    server
        .control
        .send(ToRouter::Progress(Progress {
            stage: "download".to_owned(),
            done: 3,
            total: 7,
            unit: "files".to_owned(),
        }))
        .unwrap();
    server
        .wait("progress", |server| {
            server.state.engine().status().progress.is_some()
        })
        .await;
    check_probe(&server, "ready_starting", "/ready").await;
    server.group_up(1);
    server.wait_ready().await;
    expect(&server, 200, 200).await;
}

#[tokio::test]
async fn through_a_restart_health_is_200_and_requests_wait() {
    let server = Arc::new(Server::start(config(), says(greeting())).await);
    server.control.send(down(false)).unwrap();
    server
        .wait("down", |server| !server.state.engine().status().ready)
        .await;
    expect(&server, 200, 503).await;
    check_probe(&server, "ready_restarting", "/ready").await;
    let waiting = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.post("/generate", &json!({"inputs": "Hello"})).await }
    });
    server
        .wait("queued", |server| server.stats().waiting == 1)
        .await;
    expect(&server, 200, 503).await;
    server.group_up(2);
    let answer = waiting.await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["generated_text"], "Hello wörld!");
    expect(&server, 200, 200).await;
}

#[tokio::test]
async fn while_draining_only_ready_is_503() {
    let script = Script {
        step_micros: 4_000,
        ..says(bytes_of(&"abcdefgh".repeat(100)))
    };
    let server = Arc::new(Server::start(config(), script).await);
    let running = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.post("/generate", &json!({"inputs": "Hello"})).await }
    });
    server
        .wait("running", |server| server.stats().running == 1)
        .await;
    server
        .control
        .send(ToRouter::Drain { grace_seconds: 30 })
        .unwrap();
    server
        .wait("draining", |server| server.state.engine().status().draining)
        .await;
    expect(&server, 200, 503).await;
    check_probe(&server, "ready_draining", "/ready").await;
    assert_eq!(
        running.await.unwrap().status,
        200,
        "what is admitted ends well"
    );
}

#[tokio::test]
async fn when_the_restarts_are_spent_both_are_503() {
    let server = Server::start(config(), says(greeting())).await;
    server.control.send(down(true)).unwrap();
    server
        .wait("given up", |server| !server.state.engine().status().ready)
        .await;
    server
        .wait("unhealthy", |server| {
            server.state.engine().status().health != headrace_router::engine::HealthVerdict::Healthy
        })
        .await;
    expect(&server, 503, 503).await;
    check_probe(&server, "health_spent", "/health").await;
    check_probe(&server, "ready_spent", "/ready").await;
    let refused = server.post("/generate", &json!({"inputs": "Hello"})).await;
    assert_eq!(refused.status, 503);
}

#[tokio::test]
async fn a_full_house_and_queue_change_neither() {
    let config = RouterConfig {
        max_concurrent_requests: 1,
        max_batch_size: Some(1),
        max_total_tokens: Some(1024),
        ..config()
    };
    let script = Script {
        step_micros: 4_000,
        ..says(bytes_of(&"abcdefgh".repeat(100)))
    };
    let server = Arc::new(Server::start(config, script).await);
    let running = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.post("/generate", &json!({"inputs": "Hello"})).await }
    });
    server
        .wait("running", |server| server.stats().running == 1)
        .await;
    for _ in 0..50 {
        let refused = server.post("/generate", &json!({"inputs": "Hello"})).await;
        assert_eq!(refused.status, 429);
        expect(&server, 200, 200).await;
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    server.wait_idle().await;
}

/// Scrapers offer several formats; the one that all of them read is what they get.
#[tokio::test]
async fn case_9_7_metrics_are_text_0_0_4_whatever_a_scraper_offers() {
    let server = Server::start(config(), says(greeting())).await;
    for accept in [
        None,
        Some("text/plain"),
        Some("application/openmetrics-text; version=1.0.0, text/plain; version=0.0.4; q=0.5"),
        Some("application/openmetrics-text; version=1.0.0"),
    ] {
        let mut request = Request::get("/metrics");
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let answer = server.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, 200, "{accept:?}");
        let content_type = answer.header("content-type");
        assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
        assert!(!answer.body.contains("# EOF"), "OpenMetrics ends so");
    }
}
