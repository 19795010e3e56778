//! Heads of requests that are out of bounds or ask for what nothing here does.

use crate::routes_support::{Server, config, greeting, says};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends `text` and reads to the end of the connection: head and body.
async fn exchange(server: &Server, text: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.listen()).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn a_head_out_of_bounds_gets_431_and_the_bound() {
    let server = Server::start(config(), says(greeting())).await;
    let close = "connection: close\r\n\r\n";
    let many = "a: b\r\n".repeat(120);
    let long = format!("cookie: {}\r\n", "x".repeat(70_000));
    for (path, headers, due) in [
        (
            "/health",
            &many,
            "The request has 121 header fields; at most 100 are allowed",
        ),
        ("/health", &long, "bytes; at most 65536 are allowed"),
        ("/v1/models", &long, "bytes; at most 65536 are allowed"),
    ] {
        let (head, body) =
            exchange(&server, &format!("GET {path} HTTP/1.1\r\n{headers}{close}")).await;
        assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
        assert!(head.contains("content-type: application/json"), "{head}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let message = body["error"]["message"].as_str().or(body["error"].as_str());
        assert!(message.unwrap().contains(due), "{body}");
        assert_eq!(body["error_type"], "validation");
    }
    // At the bound.
    let headers = "a: b\r\n".repeat(99);
    let (head, _) = exchange(
        &server,
        &format!("GET /health HTTP/1.1\r\n{headers}{close}"),
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn connect_is_a_method_that_is_not_allowed() {
    let server = Server::start(config(), says(greeting())).await;
    let text =
        "CONNECT example.test:443 HTTP/1.1\r\nhost: example.test:443\r\nconnection: close\r\n\r\n";
    let (head, body) = exchange(&server, text).await;
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    assert!(head.contains("allow: GET,HEAD,POST,OPTIONS"), "{head}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({"error": "The method CONNECT is not allowed: this server is no proxy",
            "error_type": "method_not_allowed"})
    );
}
