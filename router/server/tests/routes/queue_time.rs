//! `tgi_request_queue_duration`: what it holds, and what it does not.

use crate::platforms::metric;
use crate::routes_support::{Answer, Server, config, greeting, says};
use axum::body::Body;
use headrace_control::RouterConfig;
use headrace_fake_worker::Script;
use http::Request;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of the worker, for a token of a prompt.
const TOKEN: Duration = Duration::from_millis(20);

fn request(inputs: &str, max_new_tokens: u32) -> Request<Body> {
    let body = json!({"inputs": inputs, "parameters": {"max_new_tokens": max_new_tokens}});
    Request::post("/generate")
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap()
}

/// What the worker took for the prompt, at least.
fn prefill(answer: &Answer) -> f64 {
    assert_eq!(answer.status, 200);
    let tokens: u32 = answer.header("x-prompt-tokens").parse().unwrap();
    assert!(tokens > 1);
    (TOKEN * tokens).as_secs_f64()
}

async fn queued_and_total(server: &Server) -> (f64, f64) {
    (
        metric(server, "tgi_request_queue_duration_sum").await,
        metric(server, "tgi_request_duration_sum").await,
    )
}

/// Both bounds hold however slow the machine is: a wait is at least as long as what it waited for, and a request takes
/// at least its wait and what the worker computed for it.
#[tokio::test]
async fn the_queues_time_is_waiting_alone() {
    let config = RouterConfig {
        max_batch_size: Some(1),
        max_total_tokens: Some(2048),
        prefix_caching: false,
        ..config()
    };
    let script = Script {
        step_micros: 5_000,
        prefill_token_micros: u64::try_from(TOKEN.as_micros()).unwrap(),
        ..says(greeting().repeat(300))
    };
    let server = Arc::new(Server::start(config, script).await);
    let first = prefill(&server.send(request("abcdef", 1)).await);
    let (queued, total) = queued_and_total(&server).await;
    assert!(
        total - queued >= first,
        "{queued} s of {total} s waited, and {first} s were computed"
    );

    let in_the_way = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.send(request("abcdef", 1800)).await }
    });
    server.wait("running", |it| it.stats().running == 1).await;
    let waiting = tokio::spawn({
        let server = Arc::clone(&server);
        async move { server.send(request("ghijkl", 1)).await }
    });
    server.wait("waiting", |it| it.stats().waiting == 1).await;
    let begun = Instant::now();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!in_the_way.is_finished());
    let held = begun.elapsed().as_secs_f64();
    in_the_way.abort();
    let second = prefill(&waiting.await.unwrap());
    let (queued_by_now, total) = queued_and_total(&server).await;
    assert!(
        queued_by_now - queued >= held,
        "{queued_by_now} s less {queued} s, and it waited for {held} s"
    );
    assert!(
        total - queued_by_now >= first + second,
        "{queued_by_now} s of {total} s waited, and {first} and {second} s were computed"
    );
    server.wait_idle().await;
}
