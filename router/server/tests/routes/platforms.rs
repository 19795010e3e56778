//! Vertex AI, `KServe` and `SageMaker`: who runs, in which order, under which bounds, and what their probes say.

use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Server, config, greeting, key, says};
use headrace_control::{RouterConfig, ToRouter};
use headrace_fake_worker::Script;
use http::{Method, Request};
use serde_json::json;
use std::sync::Arc;

/// One number of the metrics page.
pub(crate) async fn metric(server: &Server, name: &str) -> f64 {
    let page = server.get("/metrics").await.body;
    let line = page
        .lines()
        .find(|line| {
            line.rsplit_once(' ')
                .is_some_and(|(found, _)| found == name)
        })
        .unwrap_or_else(|| panic!("no {name}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test]
async fn predictions_stand_in_the_order_of_their_instances_and_run_together() {
    let script = Script {
        step_micros: 4_000,
        ..says(bytes_of("abcdefghijklmnopqrstuvwxyz"))
    };
    let server = Server::start(config(), script).await;
    let of = |tokens: u32| json!({"inputs": "Hello", "parameters": {"max_new_tokens": tokens}});
    let body = json!({"instances": [of(25), of(20), of(22)]});
    let answer = server.post("/vertex", &body).await;
    assert_eq!(
        answer.json(),
        json!({"predictions": [
            "abcdefghijklmnopqrstuvwxy", "abcdefghijklmnopqrst", "abcdefghijklmnopqrstuv"
        ]})
    );
    let steps = server.stats().steps_completed;
    assert!(steps < 25 + 20 + 22, "{steps} steps: one after the other");
    server.wait_idle().await;
    assert!((metric(&server, "tgi_request_count").await - 1.0).abs() < 1e-9);
    assert!((metric(&server, "tgi_request_success").await - 1.0).abs() < 1e-9);
    assert!((metric(&server, "tgi_request_generated_tokens_sum").await - 67.0).abs() < 1e-9);
    assert!((metric(&server, "tgi_request_input_length_sum").await - 6.0).abs() < 1e-9);
}

/// TGI counts chats, completions and predictions twice.
#[tokio::test]
async fn case_9_9_a_generation_is_counted_once_whatever_the_route() {
    let server = Server::start(config(), says(greeting())).await;
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let tensor = json!({"name": "a", "shape": [2], "datatype": "BYTES", "data": ["Hello", "user"]});
    let instance = json!({"inputs": "Hello"});
    let mut requests = 0.0;
    for (path, body) in [
        ("/", json!({"inputs": "Hello"})),
        ("/generate", json!({"inputs": "Hello"})),
        ("/generate_stream", json!({"inputs": "Hello"})),
        ("/invocations", json!({"inputs": "Hello"})),
        ("/invocations", json!({"messages": messages})),
        ("/vertex", json!({"instances": [instance, instance]})),
        ("/v2/models/m/infer", json!({"inputs": [tensor]})),
        (
            "/v1/completions",
            json!({"prompt": ["Hello", "user"], "n": 2}),
        ),
        ("/v1/chat/completions", json!({"messages": messages})),
        (
            "/v1/chat/completions",
            json!({"messages": messages, "stream": true}),
        ),
    ] {
        assert_eq!(server.post(path, &body).await.status, 200, "{path}");
        server.wait_idle().await;
        // Refused ones count too, and as failed.
        assert_ne!(server.post(path, &json!({})).await.status, 200, "{path}");
        requests += 1.0;
        for (name, expected) in [
            ("tgi_request_count", 2.0 * requests),
            ("tgi_request_success", requests),
            ("tgi_request_failure{err=\"validation\"}", requests),
            ("tgi_request_duration_count", requests),
        ] {
            let found = metric(&server, name).await;
            assert!((found - expected).abs() < 1e-9, "{path} {name}: {found}");
        }
    }
    for path in ["/tokenize", "/chat_tokenize"] {
        let body = json!({"messages": messages});
        assert_eq!(server.post(path, &body).await.status, 200, "{path}");
    }
    let found = metric(&server, "tgi_request_count").await;
    assert!(
        (found - 2.0 * requests).abs() < 1e-9,
        "they generate nothing"
    );
}

#[tokio::test]
async fn one_refused_instance_refuses_the_request_and_runs_nothing() {
    let server = Server::start(config(), says(greeting())).await;
    let good = json!({"inputs": "Hello"});
    let long = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 63}});
    let answer = server
        .post("/vertex", &json!({"instances": [good, long]}))
        .await;
    assert_eq!(answer.status, 422, "the true status, where TGI has 500");
    assert_eq!(answer.json()["error_type"], "validation");
    server.wait_idle().await;
    assert!((metric(&server, "tgi_request_failure{err=\"validation\"}").await - 1.0).abs() < 1e-9);
    assert!((metric(&server, "tgi_request_success").await).abs() < 1e-9);
}

#[tokio::test]
async fn a_full_house_and_a_leaving_client_are_as_on_every_route() {
    let config = RouterConfig {
        max_concurrent_requests: 1,
        max_total_tokens: Some(1024),
        ..config()
    };
    let script = Script {
        step_micros: 4_000,
        ..says(bytes_of(&"abcdefgh".repeat(100)))
    };
    let server = Arc::new(Server::start(config, script).await);
    let instances = json!({"instances": [{"inputs": "Hello"}, {"inputs": "user"}]});
    let running = tokio::spawn({
        let (server, body) = (Arc::clone(&server), instances.clone());
        async move { server.post("/vertex", &body).await }
    });
    // One request, though of two sequences, takes one permit.
    server
        .wait("running", |server| server.stats().running == 2)
        .await;
    let tensor = json!({"name": "a", "shape": [1], "datatype": "BYTES", "data": ["Hello"]});
    for (path, body) in [
        ("/vertex", instances),
        ("/v2/models/m/infer", json!({"inputs": [tensor]})),
        ("/invocations", json!({"inputs": "Hello"})),
    ] {
        let refused = server.post(path, &body).await;
        assert_eq!(refused.status, 429, "{path}");
        assert_eq!(
            refused.json(),
            json!({"error": "Model is overloaded", "error_type": "overloaded"})
        );
        refused.header("retry-after");
    }
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    server.wait_idle().await;
}

/// Vertex AI's own paths: under `/v1`, but answered in TGI's shapes.
const HEALTH: &str = "/v1/endpoints/1/deployedModels/2";
const PREDICT: &str = "/v1/endpoints/1/deployedModels/2:predict";

#[tokio::test]
async fn the_paths_of_vertex_ai_are_served() {
    let config = RouterConfig {
        api_keys: vec![key("web", 0)],
        aip_predict_route: Some(PREDICT.to_owned()),
        aip_health_route: Some(HEALTH.to_owned()),
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    let health = server.get(HEALTH).await;
    assert_eq!((health.status.as_u16(), health.body.as_str()), (200, ""));
    let body = json!({"instances": [{"inputs": "Hello", "parameters": {"max_new_tokens": 1}}]});
    let refused = server.post(PREDICT, &body).await;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.json()["error_type"], "unauthorized");
    assert!(refused.json()["error"].is_string(), "TGI's shape");
    let answer = server.post_as("web", PREDICT, &body).await;
    assert_eq!(answer.json(), json!({"predictions": ["Hello"]}));
    assert_eq!(
        server.post(HEALTH, &body).await.status,
        401,
        "only reading is open"
    );
}

#[tokio::test]
async fn without_the_variables_their_paths_are_not_there() {
    let server = Server::start(config(), says(greeting())).await;
    assert_eq!(server.get(HEALTH).await.status, 404);
    assert_eq!(server.post(PREDICT, &json!({})).await.status, 404);
}

/// tgi-surface row 37: TGI's answer is always true.
#[tokio::test]
async fn kserves_probes_tell_the_truth() {
    let server = Server::start_unready(config(), says(greeting()), false);
    let model = "/v2/models/any/versions/1/ready";
    for path in ["/v2/health/live", "/v2/health/ready", model] {
        assert_eq!(server.get(path).await.status, 503, "{path}");
    }
    assert_eq!(
        server.get("/v2/health/live").await.json(),
        json!({"live": false, "error": "unhealthy", "error_type": "healthcheck"})
    );
    assert_eq!(server.get("/v2").await.status, 200);
    assert_eq!(server.get("/v2/models/any").await.status, 503);
    server.group_up(1);
    server.wait_ready().await;
    for path in ["/v2/health/live", "/v2/health/ready", model] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.json()["live"], true, "{path}");
    }
    let down = ToRouter::GroupDown {
        group: 0,
        cause: "rank 0 was killed by signal 9".to_owned(),
        is_final: false,
    };
    server.control.send(down).unwrap();
    server
        .wait("down", |server| !server.state.engine().status().ready)
        .await;
    assert_eq!(server.get("/v2/health/live").await.status, 200);
    let ready = server.get(model).await;
    assert_eq!(ready.status, 503);
    assert_eq!(
        ready.json(),
        json!({"name": "any", "ready": false, "error": "restarting: rank 0 was killed by signal 9",
            "error_type": "not_ready"})
    );
}

#[tokio::test]
async fn a_strict_server_has_no_other_models() {
    let config = RouterConfig {
        strict_model_name: true,
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    for path in ["/v2/models/other", "/v2/models/other/versions/1/ready"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(
            answer.json(),
            json!({"error": "The model `other` does not exist.", "error_type": "not_found"})
        );
    }
    let tensor = json!({"name": "a", "shape": [1], "datatype": "BYTES", "data": ["Hello"]});
    let body = json!({"inputs": [tensor]});
    assert_eq!(
        server.post("/v2/models/other/infer", &body).await.status,
        404
    );
    let path = "/v2/models/org%2Ftiny/infer";
    assert_eq!(server.post(path, &body).await.status, 200);
    let chat =
        json!({"instances": [{"model": "other", "messages": [{"role": "user", "content": "x"}]}]});
    assert_eq!(server.post("/vertex", &chat).await.status, 422);
}

#[tokio::test]
async fn a_path_that_is_no_text_is_not_found_in_json() {
    let server = Server::start(config(), says(greeting())).await;
    let request = Request::builder()
        .method(Method::GET)
        .uri("/v2/models/%FF")
        .body(axum::body::Body::empty())
        .unwrap();
    let answer = server.send(request).await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["error_type"], "not_found");
}
