//! What one key holds of the house leaves room for another.

use crate::abort::{begin, post, roomy, slow, wait_running};
use crate::routes_support::{Server, key};
use headrace_control::RouterConfig;
use serde_json::json;
use std::sync::Arc;

#[tokio::test]
async fn a_key_that_sends_all_it_can_leaves_permits_to_another() {
    let config = RouterConfig {
        max_concurrent_requests: 8,
        api_keys: vec![key("alice", 0), key("bob", 0)],
        ..roomy()
    };
    let server = Arc::new(Server::start(config, slow()).await);
    let of = |name: &str, max_tokens: u32| {
        let bearer = format!("Bearer key of {name}");
        let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": max_tokens}});
        post("/generate", &[("authorization", &bearer)], &body)
    };
    let mut alices = Vec::new();
    for running in 1..=6 {
        alices.push(begin(&server, of("alice", 200)));
        wait_running(&server, running).await;
    }
    let refused = server.send(of("alice", 1)).await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.headers.contains_key("retry-after"));
    let bobs = server.send(of("bob", 1)).await;
    assert_eq!(bobs.status, 200, "{}", bobs.body);
    for alice in alices {
        assert_eq!(alice.await.unwrap().status, 200);
    }
    let again = server.send(of("alice", 1)).await;
    assert_eq!(again.status, 200, "{}", again.body);
}
