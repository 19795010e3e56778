//! The names that `/abort` finds a request by: of its header and its body, of its parts, on every route.

use crate::abort::{abort, begin, post, roomy, slow, wait_running};
use crate::routes_support::Server;
use serde_json::json;
use std::sync::Arc;

#[tokio::test]
async fn both_requests_of_one_id_are_meant_and_every_name_of_a_request_finds_it() {
    let server = Arc::new(Server::start(roomy(), slow()).await);
    let body = json!({"prompt": "a", "request_id": "from-body"});
    let twins: Vec<_> = (0..2)
        .map(|_| {
            let headers = [("x-request-id", "from-header")];
            begin(&server, post("/v1/completions", &headers, &body))
        })
        .collect();
    wait_running(&server, 2).await;
    assert_eq!(
        abort(&server, &json!({"request_id": "from"})).await,
        0,
        "whole ids"
    );
    assert_eq!(
        abort(&server, &json!({"request_id": "from-header"})).await,
        2
    );
    for twin in twins {
        let answer = twin.await.unwrap();
        assert_eq!(answer.json()["error"]["code"], "aborted");
        assert_eq!(answer.header("x-request-id"), "from-body");
    }
    let again = begin(&server, post("/v1/completions", &[], &body));
    wait_running(&server, 1).await;
    assert_eq!(abort(&server, &json!({"rid": "from-body"})).await, 1);
    assert_eq!(again.await.unwrap().status, 500);
    // A refused request has its id too, and one that is no id is refused.
    let refused = json!({"prompt": "", "request_id": "refused"});
    let refused = server.post("/v1/completions", &refused).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.header("x-request-id"), "refused");
    let bad = server
        .post(
            "/generate",
            &json!({"inputs": "x", "parameters": {"rid": "a b"}}),
        )
        .await;
    assert_eq!(bad.status, 422);
    assert!(
        bad.body.contains("`rid` must have 1 to 128"),
        "{}",
        bad.body
    );
    server.wait_idle().await;
}

#[tokio::test]
async fn vertex_requests_have_a_name_and_each_instance_another() {
    let server = Arc::new(Server::start(roomy(), slow()).await);
    let chat = json!([{"role": "user", "content": "x"}]);
    let body = json!({"request_id": "all", "instances": [
        {"inputs": "a", "request_id": "first"},
        {"inputs": "a", "parameters": {"rid": "second"}},
        {"messages": chat, "request_id": "third"},
        {"inputs": "a"},
    ]});
    for name in ["from-header", "all", "first", "second", "third"] {
        let headers = [("x-request-id", "from-header")];
        let running = begin(&server, post("/vertex", &headers, &body));
        wait_running(&server, 4).await;
        assert_eq!(abort(&server, &json!({"rid": "nobody"})).await, 0);
        assert_eq!(abort(&server, &json!({"rid": name})).await, 1, "{name}");
        // One that ends takes the others with it: the answer has all or none.
        let answer = running.await.unwrap();
        assert_eq!(answer.status, 424, "{name}: {}", answer.body);
        assert!(answer.body.contains("aborted"), "{}", answer.body);
        assert_eq!(answer.header("x-request-id"), "all");
        assert!(!answer.headers.contains_key("x-headrace-ignored"));
        server.wait_idle().await;
        assert_eq!(abort(&server, &json!({"rid": name})).await, 0, "{name}");
    }
}

#[tokio::test]
async fn kserve_requests_are_found_by_their_id() {
    let server = Arc::new(Server::start(roomy(), slow()).await);
    let tensor = json!({"name": "a", "shape": [2], "datatype": "BYTES", "data": ["a", "b"]});
    for (path, more, name, answered) in [
        ("/v2/models/m/infer", json!({"id": "one"}), "one", "one"),
        (
            "/v2/models/m/versions/1/infer",
            json!({"id": "one"}),
            "one",
            "one",
        ),
        (
            "/v2/models/m/infer",
            json!({"request_id": "two"}),
            "two",
            "two",
        ),
        (
            "/v2/models/m/infer",
            json!({"id": "one", "parameters": {"rid": "two"}}),
            "one",
            "two",
        ),
        (
            "/v2/models/m/infer",
            json!({"id": "two words"}),
            "from-header",
            "from-header",
        ),
    ] {
        let mut body = json!({"inputs": [tensor]});
        let members = more.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(members);
        let headers = [("x-request-id", "from-header")];
        let running = begin(&server, post(path, &headers, &body));
        wait_running(&server, 2).await;
        let ended = abort(&server, &json!({"request_id": name})).await;
        assert_eq!(ended, 1, "{body}");
        let answer = running.await.unwrap();
        assert_eq!(answer.status, 424, "{body}: {}", answer.body);
        assert_eq!(answer.header("x-request-id"), answered, "{body}");
        assert!(!answer.headers.contains_key("x-headrace-ignored"));
        server.wait_idle().await;
    }
}

#[tokio::test]
async fn invocations_have_the_names_of_the_request_that_they_carry() {
    let server = Arc::new(Server::start(roomy(), slow()).await);
    let chat = json!([{"role": "user", "content": "x"}]);
    for (body, status) in [
        (json!({"inputs": "a", "request_id": "mine"}), 424),
        (json!({"inputs": "a", "parameters": {"rid": "mine"}}), 424),
        (json!({"messages": chat, "rid": "mine"}), 500),
        (json!({"prompt": "a", "request_id": "mine"}), 500),
    ] {
        let running = begin(&server, post("/invocations", &[], &body));
        wait_running(&server, 1).await;
        assert_eq!(abort(&server, &json!({"rid": "mine"})).await, 1, "{body}");
        let answer = running.await.unwrap();
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        assert_eq!(answer.header("x-request-id"), "mine");
        server.wait_idle().await;
    }
}
