//! Clients that leave, whatever they sent after their request.

use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Server, config, says};
use headrace_control::RouterConfig;
use headrace_fake_worker::Script;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What may be in the socket behind a request.
const AFTERWARDS: [(&str, &str); 4] = [
    ("nothing", ""),
    ("a stray line end", "\r\n"),
    (
        "a second request",
        "GET /health HTTP/1.1\r\nhost: x\r\n\r\n",
    ),
    ("no request", "????"),
];

/// A text of a thousand tokens, one a step.
fn long_text() -> Script {
    Script {
        step_micros: 20_000,
        ..says(bytes_of(&"abcdefgh".repeat(125)))
    }
}

fn request(path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn server(max_batch_size: u32) -> Server {
    let config = RouterConfig {
        max_total_tokens: Some(2048),
        max_batch_size: Some(max_batch_size),
        ..config()
    };
    Server::start(config, long_text()).await
}

#[tokio::test]
async fn one_that_leaves_is_noticed_whatever_is_unread_behind_its_request() {
    let server = server(8).await;
    let address = server.listen();
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 1000}});
    for path in ["/generate", "/generate_stream"] {
        for (what, afterwards) in AFTERWARDS {
            let mut client = TcpStream::connect(address).await.unwrap();
            let text = request(path, &body) + afterwards;
            client.write_all(text.as_bytes()).await.unwrap();
            server
                .wait("running", |server| server.stats().running == 1)
                .await;
            drop(client);
            let left = Instant::now();
            server.wait_idle().await;
            // Of twenty seconds.
            let took = left.elapsed();
            assert!(took < Duration::from_secs(8), "{path}, {what}: {took:?}");
        }
    }
}

#[tokio::test]
async fn one_that_leaves_the_queue_is_noticed_too() {
    let server = server(1).await;
    let address = server.listen();
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 1000}});
    let mut first = TcpStream::connect(address).await.unwrap();
    let text = request("/generate_stream", &body);
    first.write_all(text.as_bytes()).await.unwrap();
    server
        .wait("running", |server| server.stats().running == 1)
        .await;
    for (what, afterwards) in AFTERWARDS {
        let mut client = TcpStream::connect(address).await.unwrap();
        let text = request("/generate", &body) + afterwards;
        client.write_all(text.as_bytes()).await.unwrap();
        server
            .wait("queued", |server| server.stats().waiting == 1)
            .await;
        drop(client);
        let gone = |server: &Server| server.stats().waiting == 0;
        server.wait(what, gone).await;
        assert_eq!(server.stats().running, 1, "{what}");
    }
    drop(first);
    server.wait_idle().await;
}

#[tokio::test]
async fn requests_sent_ahead_by_one_that_stays_are_answered_in_order() {
    let config = config();
    let server = Server::start(config, says(bytes_of("abcd"))).await;
    let mut client = TcpStream::connect(server.listen()).await.unwrap();
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 4}});
    let text = request("/generate", &body).repeat(2)
        + "\r\nGET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    client.write_all(text.as_bytes()).await.unwrap();
    let mut answers = String::new();
    let read = client.read_to_string(&mut answers);
    let read = tokio::time::timeout(Duration::from_secs(20), read).await;
    read.unwrap().unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3, "{answers}");
    assert_eq!(answers.matches("\"generated_text\":\"abcd\"").count(), 2);
}
