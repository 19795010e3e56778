//! The one log line of a request: what is in it, and what never is.

use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Answer, Server, config, greeting, key, says};
use axum::body::Body;
use headrace_control::RouterConfig;
use headrace_fake_worker::{Fault, FaultKind, Script, Trigger};
use headrace_router::logging;
use http::Request;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tower::ServiceExt;

/// What stands for a client's words; it may be in no line.
const PROMPT: &str = "the quick brown secret";

/// The log of this process, as the launcher would read it.
fn log() -> &'static Arc<Mutex<Vec<u8>>> {
    static LOG: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();
    LOG.get_or_init(|| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&log);
        let writer = move || Sink(Arc::clone(&sink));
        tracing::subscriber::set_global_default(logging::subscriber("info", writer)).unwrap();
        log
    })
}

struct Sink(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The line of a request; there is one, and it is JSON.
async fn line_of(id: &str) -> Map<String, Value> {
    for _ in 0..400 {
        let text = String::from_utf8(log().lock().unwrap().clone()).unwrap();
        let needle = format!("\"request_id\":\"{id}\"");
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(&needle)).collect();
        if let [line] = lines[..] {
            assert!(!line.contains(PROMPT), "{line}");
            assert!(!line.contains("key of "), "{line}");
            return serde_json::from_str(line).unwrap();
        }
        assert!(lines.is_empty(), "{lines:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no line for {id}");
}

async fn post(server: &Server, id: &str, path: &str, body: &Value) -> Answer {
    let request = Request::post(path)
        .header("content-type", "application/json")
        .header("x-request-id", id)
        .header("x-api-key", "key of web")
        .body(Body::from(body.to_string()))
        .unwrap();
    server.send(request).await
}

async fn server_with(script: Script) -> Server {
    log();
    let config = RouterConfig {
        api_keys: vec![key("web", 0)],
        ..config()
    };
    Server::start(config, script).await
}

#[tokio::test]
async fn a_generation_says_how_it_ended_for_whom_and_what_it_cost() {
    let server = server_with(says(greeting())).await;
    let body = json!({"inputs": PROMPT, "parameters": {"max_new_tokens": 3}});
    for (id, path) in [
        ("log-whole", "/generate"),
        ("log-stream", "/generate_stream"),
    ] {
        assert_eq!(post(&server, id, path, &body).await.status, 200);
        let line = line_of(id).await;
        let fields: BTreeSet<&str> = line.keys().map(String::as_str).collect();
        assert_eq!(
            fields,
            BTreeSet::from([
                "timestamp",
                "level",
                "target",
                "message",
                "request_id",
                "key",
                "route",
                "status",
                "end",
                "prompt_tokens",
                "cached_tokens",
                "generated_tokens",
                "total_ms",
                "validation_ms",
                "queue_ms",
                "inference_ms",
            ])
        );
        for (field, value) in [
            ("level", json!("INFO")),
            ("message", json!("request ended")),
            ("key", json!("web")),
            ("route", json!(path)),
            ("status", json!(200)),
            ("end", json!("length")),
            ("generated_tokens", json!(3)),
        ] {
            assert_eq!(line[field], value, "{field}");
        }
    }
}

#[tokio::test]
async fn a_failure_says_what_the_client_was_told() {
    let script = Script {
        faults: vec![Fault {
            when: Trigger::Step(3),
            what: FaultKind::RowError(0),
        }],
        ..says(greeting())
    };
    let server = server_with(script).await;
    let body = json!({"inputs": PROMPT});
    let answer = post(&server, "log-failed", "/generate", &body).await;
    assert_eq!(answer.status, 424);
    let line = line_of("log-failed").await;
    assert_eq!(line["end"], "error");
    assert_eq!(line["status"], 424);
    assert_eq!(line["detail"], answer.json()["error"]);
    assert_eq!(line["generated_tokens"], 2);
}

#[tokio::test]
async fn a_refusal_names_the_field_and_quotes_nothing() {
    let server = server_with(says(greeting())).await;
    let body = json!({"inputs": "x", "parameters": {"adapter_id": PROMPT}});
    assert_eq!(
        post(&server, "log-refused", "/generate", &body)
            .await
            .status,
        422
    );
    let line = line_of("log-refused").await;
    assert_eq!(line["detail"], "validation: adapter_id");
    let request = Request::post("/generate")
        .header("x-request-id", "log-no-key")
        .header("x-api-key", PROMPT)
        .body(Body::empty())
        .unwrap();
    assert_eq!(server.send(request).await.status, 401);
    let line = line_of("log-no-key").await;
    assert_eq!(
        (&line["status"], &line["end"]),
        (&json!(401), &json!("error"))
    );
    assert!(
        line["detail"]
            .as_str()
            .unwrap()
            .starts_with("A valid API key")
    );
    assert!(!line.contains_key("key"), "nobody's");
}

#[tokio::test]
async fn no_client_can_end_a_line() {
    let server = server_with(says(greeting())).await;
    let odd = "/%0d%0a%7B%22request_id%22%3A%22forged%22%7D";
    let request = Request::post(odd)
        .header("x-request-id", "log-odd")
        .header("x-api-key", "key of web")
        .body(Body::empty())
        .unwrap();
    assert_eq!(server.send(request).await.status, 404);
    assert_eq!(line_of("log-odd").await["route"], odd);
    // A name of its own that may not stand in a log is replaced.
    let request = Request::post("/generate")
        .header("x-request-id", "\",\"end\":\"forged")
        .body(Body::empty())
        .unwrap();
    let id = server.send(request).await.header("x-request-id").to_owned();
    assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_eq!(line_of(&id).await["status"], 401);
    let text = String::from_utf8(log().lock().unwrap().clone()).unwrap();
    assert!(!text.contains("forged\"}") && !text.contains("\"end\":\"forged"));
}

#[tokio::test]
async fn a_client_that_left_has_its_line() {
    let script = Script {
        step_micros: 4_000,
        ..says(bytes_of(&"abcdefgh".repeat(100)))
    };
    let server = Arc::new(server_with(script).await);
    let running = tokio::spawn({
        let server = Arc::clone(&server);
        async move { post(&server, "log-left", "/generate", &json!({"inputs": PROMPT})).await }
    });
    server
        .wait("running", |server| server.stats().running == 1)
        .await;
    running.abort();
    let line = line_of("log-left").await;
    assert_eq!(
        (&line["status"], &line["end"]),
        (&json!(499), &json!("client_left"))
    );
    server.wait_idle().await;
}

/// The engine knows sequences; whoever reads the log looks for requests.
#[tokio::test]
async fn the_line_of_a_stalled_sequence_names_its_request() {
    log();
    let config = RouterConfig {
        max_total_tokens: Some(2048),
        stall_timeout_seconds: 1,
        ..config()
    };
    let script = Script {
        step_micros: 200,
        ..says(bytes_of(&"abcdefgh".repeat(250)))
    };
    let server = Server::start(config, script).await;
    let body = json!({"inputs": PROMPT, "parameters": {"max_new_tokens": 2000}});
    let request = Request::post("/generate_stream")
        .header("content-type", "application/json")
        .header("x-request-id", "log-stalled")
        .body(Body::from(body.to_string()))
        .unwrap();
    // Held and never read.
    let _unread = server.app.clone().oneshot(request).await.unwrap();
    server
        .wait("paused", |server| server.stats().paused == 1)
        .await;
    server.wait_idle().await;
    let text = String::from_utf8(log().lock().unwrap().clone()).unwrap();
    let lines = text.lines().filter(|line| line.contains("log-stalled"));
    let lines: Vec<Map<String, Value>> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Map<String, Value>| line["message"] == "dropped: its client reads nothing")
        .collect();
    let [line] = &lines[..] else {
        panic!("{lines:?}");
    };
    assert_eq!(line["request_id"], "log-stalled");
    assert_eq!(line["level"], "WARN");
    assert!(line["sequence"].is_u64());
}

/// What was told of an unknown field, by its name.
fn told_of(field: &str) -> Vec<Map<String, Value>> {
    let text = String::from_utf8(log().lock().unwrap().clone()).unwrap();
    let lines = text.lines().filter(|line| line.contains("unknown field"));
    let lines = lines.map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &Map<String, Value>| line.get("field").is_some_and(|it| it == field))
        .collect()
}

#[tokio::test]
async fn an_unknown_field_is_told_once_for_each_route_with_what_may_be_meant() {
    let server = server_with(says(greeting())).await;
    for (path, body) in [
        (
            "/v1/completions",
            json!({"prompt": "Hello", "max_tokes": 2, "max_tokens": 1}),
        ),
        (
            "/v1/completions",
            json!({"prompt": "Hello", "max_tokes": 3, "max_tokens": 1}),
        ),
        (
            "/generate",
            json!({"inputs": "Hello", "max_new_tokens": 2, "nobody_knows": 1}),
        ),
        (
            "/generate",
            json!({"inputs": "Hello", "parameters": {"temprature": 2, "max_new_tokens": 1}}),
        ),
        (
            "/v1/chat/completions",
            json!({"max_tokes": 1, "max_tokens": 1, "messages": [
            {"role": "user", "content": "x", "contnet": 1}, {"role": "user", "content": "x", "contnet": 1}]}),
        ),
    ] {
        assert_eq!(post(&server, "log-unknown", path, &body).await.status, 200);
    }
    let lines = told_of("max_tokes");
    let routes: Vec<&Value> = lines.iter().map(|line| &line["route"]).collect();
    assert_eq!(routes, ["/v1/completions", "/v1/chat/completions"]);
    assert_eq!(lines[0]["level"], "WARN");
    assert_eq!(
        lines[0]["message"],
        "unknown field `max_tokes` of requests to /v1/completions is ignored: is `max_tokens` meant?"
    );
    for (field, route, meant) in [
        (
            "max_new_tokens",
            "/generate",
            Some("parameters.max_new_tokens"),
        ),
        ("nobody_knows", "/generate", None),
        (
            "parameters.temprature",
            "/generate",
            Some("parameters.temperature"),
        ),
        (
            "messages[].contnet",
            "/v1/chat/completions",
            Some("messages[].content"),
        ),
    ] {
        let lines = told_of(field);
        let [line] = &lines[..] else {
            panic!("{field}: {lines:?}");
        };
        assert_eq!(line["route"], route);
        assert_eq!(line.get("meant").and_then(Value::as_str), meant);
    }
}
