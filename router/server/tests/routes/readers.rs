//! Clients that are there and read nothing.

use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Server, config, says};
use headrace_control::RouterConfig;
use headrace_fake_worker::Script;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;

#[tokio::test]
async fn a_client_that_stops_reading_loses_its_permit_and_its_connection() {
    let config = RouterConfig {
        max_concurrent_requests: 1,
        max_total_tokens: Some(2048),
        stall_timeout_seconds: 1,
        ..config()
    };
    let script = Script {
        step_micros: 500,
        ..says(bytes_of(&"abcdefgh".repeat(250)))
    };
    let server = Server::start(config, script).await;
    let address = server.listen();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut unread = socket.connect(address).await.unwrap();
    let body = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 2000}}).to_string();
    let request = format!(
        "POST /generate_stream HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    unread.write_all(request.as_bytes()).await.unwrap();
    server
        .wait("paused", |server| server.stats().paused == 1)
        .await;
    let other = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 1}});
    assert_eq!(server.post("/generate", &other).await.status, 429);
    let begun = Instant::now();
    while server.post("/generate", &other).await.status != 200 {
        assert!(begun.elapsed() < Duration::from_secs(20), "no permit");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.wait_idle().await;
    // What was sent can be read, and then the connection is gone.
    let mut sent = Vec::new();
    let read = unread.read_to_end(&mut sent);
    let _closed = tokio::time::timeout(Duration::from_secs(10), read)
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&sent);
    assert!(!text.contains("generated_text\":\""), "{text}");
}
