//! Keys, limits, drain, CORS, and clients that leave.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

mod routes_support;

use axum::body::Body;
use headrace_control::{ApiKey, RouterConfig, ToRouter};
use headrace_fake_worker::Script;
use http::{Method, Request};
use routes_support::tiny_tokenizer::bytes_of;
use routes_support::{Server, config, greeting, says};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn key(key: &str) -> ApiKey {
    ApiKey {
        name: format!("of {key}"),
        key: key.to_owned(),
        priority: 0,
    }
}

#[tokio::test]
async fn preflight_mirrors_headers_and_needs_no_key() {
    let config = RouterConfig {
        api_keys: vec![key("key")],
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    let preflight = Request::builder()
        .method(Method::OPTIONS)
        .uri("/v1/chat/completions")
        .header("origin", "http://example.test")
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization,x-stainless-os",
        )
        .body(Body::empty())
        .unwrap();
    let answer = server.send(preflight).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    assert_eq!(
        answer.header("access-control-allow-headers"),
        "authorization,x-stainless-os"
    );
    assert_eq!(
        answer.header("access-control-allow-methods"),
        "GET,POST,DELETE"
    );
    let refused = Request::get("/v1/models")
        .header("origin", "http://example.test")
        .body(Body::empty())
        .unwrap();
    let refused = server.send(refused).await;
    assert_eq!(refused.status, 401);
    assert!(
        refused
            .header("access-control-expose-headers")
            .contains("x-request-id")
    );
    // What no browser sent has no use for a list of headers that scripts may read.
    let plain = server.get("/health").await;
    assert_eq!(plain.status, 200);
    assert!(!plain.headers.contains_key("access-control-expose-headers"));
    assert_eq!(plain.header("access-control-allow-origin"), "*", "as TGI");
}

#[tokio::test]
async fn packed_bodies_are_refused_in_one_line() {
    let server = Server::start(config(), says(greeting())).await;
    for (path, encoding, status) in [
        ("/generate", "gzip", 415),
        ("/v1/completions", "br", 415),
        ("/tokenize", "zstd", 415),
        ("/generate", "identity", 200),
    ] {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .header("content-encoding", encoding)
            .body(Body::from(json!({"inputs": "Hello"}).to_string()))
            .unwrap();
        let answer = server.send(request).await;
        assert_eq!(answer.status, status, "{path} {}", answer.body);
        if status == 415 {
            let words = format!("`Content-Encoding: {encoding}` is not supported");
            assert!(answer.body.contains(&words), "{}", answer.body);
        }
    }
}

#[tokio::test]
async fn before_ready_and_while_draining_requests_get_503() {
    let generate = json!({"inputs": "Hello"});
    let server = Server::start_unready(config(), says(greeting()), false);
    for path in ["/generate", "/v1/completions"] {
        let answer = server.post(path, &generate).await;
        assert_eq!(answer.status, 503, "{path}");
        assert_eq!(answer.header("connection"), "close");
        let wait: u32 = answer.header("retry-after").parse().unwrap();
        assert!((1..=120).contains(&wait));
    }
    assert_eq!(server.get("/health").await.status, 503);
    assert_eq!(server.get("/ready").await.status, 503);

    let server = Server::start(config(), says(greeting())).await;
    server
        .control
        .send(ToRouter::Drain { grace_seconds: 5 })
        .unwrap();
    server
        .wait("draining", |server| server.state.engine().status().draining)
        .await;
    let answer = server.post("/generate", &generate).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["error"], "The server is shutting down");
}

/// A model that talks for ever, a token every few milliseconds.
fn slow() -> Script {
    Script {
        step_micros: 4_000,
        ..says(bytes_of(&"abcdefgh".repeat(500)))
    }
}

fn roomy() -> RouterConfig {
    RouterConfig {
        max_total_tokens: Some(1024),
        ..config()
    }
}

/// A raw request on a connection of its own.
async fn connect(address: std::net::SocketAddr, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_in_decode() {
    let server = Server::start(roomy(), slow()).await;
    let address = server.listen();
    for (path, body) in [
        ("/generate", json!({"inputs": "Hello"})),
        ("/generate_stream", json!({"inputs": "Hello"})),
        (
            "/v1/completions",
            json!({"prompt": ["Hello", "user"], "n": 2}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "x"}], "stream": true}),
        ),
    ] {
        let mut stream = connect(address, path, &body).await;
        server
            .wait("decoding", |server| server.stats().running > 0)
            .await;
        if path == "/generate_stream" {
            let mut first = [0_u8; 64];
            stream.read_exact(&mut first).await.unwrap();
        }
        drop(stream);
        server.wait_idle().await;
    }
    let page = server.get("/metrics").await.body;
    assert!(
        page.contains("tgi_request_failure{err=\"dropped\"} 4"),
        "{page}"
    );
    assert!(page.contains("tgi_request_count 4"));
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_while_queued_and_in_prefill() {
    let config = RouterConfig {
        max_batch_size: Some(1),
        max_batch_prefill_tokens: Some(4),
        ..roomy()
    };
    let server = Server::start(config, slow()).await;
    let address = server.listen();
    // 4 tokens a step: 900 tokens of prompt are 225 steps.
    let long = json!({"prompt": vec![70; 900]});
    let prefilling = connect(address, "/v1/completions", &long).await;
    server
        .wait("prefilling", |server| server.stats().running == 1)
        .await;
    let queued = connect(address, "/generate_stream", &json!({"inputs": "Hello"})).await;
    server
        .wait("queued", |server| server.stats().waiting == 1)
        .await;
    drop(queued);
    server
        .wait("the queued one gone", |server| server.stats().waiting == 0)
        .await;
    assert_eq!(server.stats().running, 1);
    drop(prefilling);
    server.wait_idle().await;
}

#[tokio::test]
async fn over_the_house_limit_requests_get_429() {
    let config = RouterConfig {
        max_concurrent_requests: 1,
        ..roomy()
    };
    let server = Server::start(config, slow()).await;
    let address = server.listen();
    let first = connect(address, "/generate", &json!({"inputs": "Hello"})).await;
    server
        .wait("running", |server| server.stats().running == 1)
        .await;
    let answer = server.post("/generate", &json!({"inputs": "Hello"})).await;
    assert_eq!(answer.status, 429);
    assert_eq!(
        answer.body,
        r#"{"error":"Model is overloaded","error_type":"overloaded"}"#
    );
    let wait: u32 = answer.header("retry-after").parse().unwrap();
    assert!((1..=120).contains(&wait));
    let answer = server
        .post(
            "/v1/completions",
            &json!({"prompt": "Hello", "stream": true}),
        )
        .await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded");
    drop(first);
    server.wait_idle().await;
    // The permit is free again.
    let answer = server
        .post(
            "/generate",
            &json!({"inputs": "Hello", "parameters": {"max_new_tokens": 1}}),
        )
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn in_a_full_house_bodies_are_read_and_not_parsed() {
    let config = RouterConfig {
        max_concurrent_requests: 1,
        payload_limit: 1_000_000,
        ..roomy()
    };
    let server = Server::start(config, slow()).await;
    let address = server.listen();
    let first = connect(address, "/generate", &json!({"inputs": "Hello"})).await;
    server
        .wait("running", |server| server.stats().running == 1)
        .await;
    // Far more than the connection's buffers hold, and no JSON.
    let length = 600_000;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for path in ["/generate", "/v1/completions", "/v1/chat/completions"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![b'!'; length]).await.unwrap();
        let mut answer = vec![0; 4096];
        let count = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..count]);
        // The connection goes on, so the whole body was taken.
        assert!(answer.starts_with("HTTP/1.1 429 "), "{path}: {answer}");
        assert!(answer.contains("retry-after: "), "{path}: {answer}");
    }
    drop(first);
    server.wait_idle().await;
}

#[tokio::test]
async fn strict_names_and_request_ids() {
    let config = RouterConfig {
        strict_model_name: true,
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    for (name, status) in [
        (Value::Null, 200),
        (json!(""), 200),
        (json!("tgi"), 200),
        (json!("dummy"), 200),
        (json!("http://127.0.0.1:3000/v1"), 200),
        (json!("org/tiny"), 200),
        (json!("gpt-4"), 404),
    ] {
        let answer = server
            .post(
                "/v1/completions",
                &json!({"model": name, "prompt": "x", "max_tokens": 1}),
            )
            .await;
        assert_eq!(answer.status, status, "{name}");
    }
    assert_eq!(
        server
            .post("/generate", &json!({}))
            .await
            .header("x-request-id"),
        "test-id"
    );
    let odd = Request::get("/health")
        .header("x-request-id", "not one id")
        .body(Body::empty())
        .unwrap();
    assert_eq!(server.send(odd).await.header("x-request-id").len(), 32);
}

#[tokio::test]
async fn several_choices_stream_apart_and_equal_the_whole_answer() {
    let server = Server::start(config(), says(greeting())).await;
    let body = |stream: bool| json!({"prompt": ["Hello", "user"], "n": 2, "seed": 3, "stream": stream, "stop": "d"});
    let whole = server.post("/v1/completions", &body(false)).await.json();
    let streamed = server.post("/v1/completions", &body(true)).await;
    let mut texts = vec![String::new(); 4];
    let mut finishes = [0; 4];
    for chunk in streamed.event_json() {
        for choice in chunk["choices"].as_array().unwrap() {
            let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
            texts[index].push_str(choice["text"].as_str().unwrap());
            finishes[index] += usize::from(choice["finish_reason"] == "stop");
        }
    }
    assert_eq!(streamed.events().last().unwrap(), "[DONE]");
    assert_eq!(finishes, [1; 4]);
    for (index, text) in texts.iter().enumerate() {
        assert_eq!(whole["choices"][index]["index"], index);
        assert_eq!(whole["choices"][index]["text"], **text);
        assert_eq!(text, "Hello wörl");
    }
    assert_eq!(whole["usage"]["completion_tokens"], 4 * 7);
    server.wait_idle().await;
}

#[tokio::test]
async fn keep_alive_is_quiet_and_documents_are_served() {
    let server = Server::start(config(), says(greeting())).await;
    let document = server.get("/api-doc/openapi.json").await;
    assert_eq!(document.status, 200);
    assert_eq!(document.json(), server.get("/openapi.json").await.json());
    let page = server.get("/docs/").await;
    assert_eq!(page.status, 200);
    assert!(
        page.body.contains("<title>headrace</title>"),
        "{}",
        page.body
    );
    assert!(page.body.contains("swagger-ui.css"), "{}", page.body);
    let script = server.get("/docs/swagger-initializer.js").await;
    assert!(script.body.contains("/api-doc/openapi.json"));
    let metrics = server.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("text/plain"));
    assert!(metrics.body.contains("tgi_queue_size 0"));
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// `/v1` allows 64 prompts and 8 choices, whatever the native bounds.
#[tokio::test]
async fn the_largest_request_in_bounds_fits_the_queue() {
    let config = RouterConfig {
        max_concurrent_requests: 1,
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    let body = json!({"prompt": vec!["a"; 64], "n": 8, "max_tokens": 1});
    let answer = server.post("/v1/completions", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.json()["choices"].as_array().unwrap().len(), 512);
    server.wait_idle().await;
}

#[tokio::test]
async fn hopeless_prompts_are_refused_before_they_are_tokenised() {
    let config = RouterConfig {
        payload_limit: 2_000_000,
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    let long = "Hello ".repeat(100_000);
    for (path, body) in [
        ("/generate", json!({"inputs": long})),
        ("/v1/completions", json!({"prompt": long})),
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": long}]}),
        ),
    ] {
        let answer = server.post(path, &body).await;
        assert!(answer.status.is_client_error(), "{path}");
        assert!(answer.body.contains("Given: at least "), "{}", answer.body);
    }
    // Cut to size it fits.
    let body = json!({"inputs": long, "parameters": {"truncate": 8, "max_new_tokens": 1}});
    let answer = server.post("/generate", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}
