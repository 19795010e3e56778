//! A walk along the table of routes: keys, methods, bodies and paths, the same for each.

use crate::routes_support::{Answer, Server, config, greeting, key, says};
use axum::body::Body;
use headrace_control::RouterConfig;
use headrace_router::{Access, Route, routes};
use http::Request;
use std::collections::BTreeSet;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "DELETE", "PATCH"];

/// The page's paths are the library's.
const PAGE: [&str; 2] = ["/docs", "/docs/"];

/// A path that a route answers at.
fn concrete(route: &Route) -> String {
    let path = route
        .path
        .replace("{*id}", "org/tiny")
        .replace("{model}", "any")
        .replace("{version}", "1");
    assert!(
        !path.contains('{'),
        "{path}: say here what stands for its part"
    );
    path
}

fn request(method: &str, path: &str, key: Option<(&str, &str)>) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path);
    if let Some((name, value)) = key {
        builder = builder.header(name, value);
    }
    builder
        .header("content-type", "application/json")
        .body(Body::from("{}"))
        .unwrap()
}

/// One line, in the error shape of the path's dialect.
fn check_error(path: &str, answer: &Answer, error_type: &str) {
    assert_eq!(answer.header("content-type"), "application/json", "{path}");
    let body = answer.json();
    assert_eq!(body["error_type"], error_type, "{path}: {body}");
    let is_v1 = path.starts_with("/v1/");
    assert_eq!(body["error"].is_object(), is_v1, "{path}: {body}");
    let message = if is_v1 {
        assert!(body["error"]["type"].is_string(), "{path}: {body}");
        &body["error"]["message"]
    } else {
        &body["error"]
    };
    let message = message.as_str().unwrap();
    assert!(
        !message.is_empty() && !message.contains('\n'),
        "{path}: {message}"
    );
}

fn with_keys(guard: bool) -> RouterConfig {
    RouterConfig {
        api_keys: vec![key("first", 0), key("second", 0)],
        guard_info_and_metrics: guard,
        ..config()
    }
}

/// All ways in with and without a key.
async fn check_keys(server: &Server, method: &str, path: &str, open: bool) {
    for wrong in [
        None,
        Some(("authorization", "Bearer KEY OF FIRST")),
        Some(("authorization", "key of first")),
        Some(("x-api-key", "key of firs")),
        Some(("cookie", "key of first")),
    ] {
        let answer = server.send(request(method, path, wrong)).await;
        assert_eq!(
            answer.status == 401,
            !open,
            "{method} {path} {wrong:?}: {}",
            answer.status
        );
        if !open && method != "HEAD" {
            check_error(path, &answer, "unauthorized");
            assert_eq!(answer.header("www-authenticate"), "Bearer", "{path}");
            if path.starts_with("/v1/") {
                assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
            }
        }
    }
    for right in [
        ("authorization", "Bearer key of second"),
        ("x-api-key", "key of first"),
    ] {
        let answer = server.send(request(method, path, Some(right))).await;
        assert_ne!(answer.status, 401, "{method} {path}");
        assert!(
            answer.status.as_u16() < 500,
            "{method} {path}: {}",
            answer.body
        );
    }
}

#[tokio::test]
async fn keys_guard_every_route_but_the_open_ones() {
    for guard in [false, true] {
        let server = Server::start(with_keys(guard), says(greeting())).await;
        for route in routes() {
            let path = concrete(route);
            let open = match route.access {
                Access::Open => true,
                Access::Closable => !guard,
                // Without an admin key the control routes are not there, which only who has a key may find out.
                Access::Keyed | Access::Admin => false,
            };
            check_keys(&server, route.method, &path, open).await;
            if route.method == "GET" {
                check_keys(&server, "HEAD", &path, open).await;
            }
        }
        for path in PAGE {
            check_keys(&server, "GET", path, false).await;
        }
        // Whatever is not there is not told apart from what is.
        for (method, path) in [
            ("GET", "/nothing"),
            ("POST", "/v1/nothing"),
            ("DELETE", "/v1/models"),
            ("POST", "/health"),
            ("GET", "/health/"),
        ] {
            check_keys(&server, method, path, false).await;
        }
    }
}

#[tokio::test]
async fn without_keys_nothing_asks_for_one() {
    let server = Server::start(config(), says(greeting())).await;
    for route in routes() {
        let answer = server
            .send(request(route.method, &concrete(route), None))
            .await;
        assert_ne!(answer.status, 401, "{route:?}");
        if route.access == Access::Admin {
            assert_eq!(answer.status, 404, "{route:?}");
        }
    }
}

#[tokio::test]
async fn other_methods_are_405_and_say_which_are_allowed() {
    let config = RouterConfig {
        admin_key: Some("the boss".to_owned()),
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    let paths: BTreeSet<&str> = routes().iter().map(|route| route.path).collect();
    for path in paths {
        let of_path = || routes().iter().filter(|route| route.path == path);
        let concrete = concrete(of_path().next().unwrap());
        for method in METHODS {
            if of_path().any(|route| route.method == method) {
                continue;
            }
            let answer = server
                .send(request(method, &concrete, Some(("x-api-key", "the boss"))))
                .await;
            assert_eq!(answer.status, 405, "{method} {path}");
            check_error(&concrete, &answer, "method_not_allowed");
            let allowed: BTreeSet<&str> = answer.header("allow").split(',').collect();
            for route in of_path() {
                assert!(allowed.contains(route.method), "{path}: {allowed:?}");
            }
        }
    }
    for path in ["/nothing", "/v1/nothing", "/generate/", "//generate", "/V1"] {
        for method in METHODS {
            let answer = server.send(request(method, path, None)).await;
            assert_eq!(answer.status, 404, "{method} {path}");
            check_error(path, &answer, "not_found");
        }
    }
}

#[tokio::test]
async fn every_body_is_declared_bounded_and_well_formed() {
    let server = Server::start(config(), says(greeting())).await;
    let limit = config().payload_limit;
    let deep = format!(r#"{{"inputs":{}{}}}"#, "[".repeat(65), "]".repeat(65));
    let large = format!(r#"{{"inputs":"{}"}}"#, "x".repeat(limit));
    for route in routes().iter().filter(|route| route.takes_body) {
        let path = concrete(route);
        let send = async |content_type: Option<&str>, body: &str| {
            let mut builder = Request::builder().method(route.method).uri(&path);
            if let Some(content_type) = content_type {
                builder = builder.header("content-type", content_type);
            }
            let request = builder.body(Body::from(body.to_owned())).unwrap();
            server.send(request).await
        };
        let json = Some("application/json");
        for (content_type, body, status, words) in [
            (None, "{}", 415, "Content-Type: application/json"),
            (
                Some("text/plain"),
                "{}",
                415,
                "Content-Type: application/json",
            ),
            (
                Some("multipart/form-data; boundary=x"),
                "--x",
                415,
                "Content-Type",
            ),
            (json, "", 400, "EOF"),
            (json, "{", 400, "EOF"),
            (json, "{\"inputs\": 1e400}", 400, "number out of range"),
            (json, "{\"inputs\": NaN}", 400, "expected value"),
            (json, "{\"inputs\": \"\\ud800\"}", 400, "escape"),
            (json, "{} {}", 400, "trailing"),
            (json, &deep, 400, "nested deeper than 64 levels"),
            (json, &large, 413, "length limit exceeded"),
        ] {
            let answer = send(content_type, body).await;
            let head: String = body.chars().take(40).collect();
            assert_eq!(answer.status, status, "{path} {head}: {}", answer.body);
            check_error(&path, &answer, "validation");
            assert!(
                answer.body.contains(words),
                "{path} {head}: {}",
                answer.body
            );
        }
        for body in ["[]", "7", "null", "\"x\"", "[1,2]"] {
            let answer = send(json, body).await;
            assert!(
                matches!(answer.status.as_u16(), 400 | 422),
                "{path} {body}: {}",
                answer.body
            );
            check_error(&path, &answer, "validation");
        }
    }
}

/// On a connection of its own; the first line of the answer.
async fn status_line(address: std::net::SocketAddr, head: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn heads_out_of_bounds_are_431_and_the_server_lives() {
    let server = Server::start(config(), says(greeting())).await;
    let address = server.listen();
    let many: Vec<String> = (0..300).map(|number| format!("a{number}: b\r\n")).collect();
    let large = format!("a: {}\r\n", "x".repeat(1 << 20));
    for headers in [many.concat(), large] {
        let head = format!("GET /health HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        let line = status_line(address, &head).await;
        assert!(line.starts_with("HTTP/1.1 431 "), "{line}");
    }
    let path = "/x".repeat(40_000);
    let line = status_line(address, &format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
    assert!(
        line.starts_with("HTTP/1.1 414 ") || line.starts_with("HTTP/1.1 431 "),
        "{line}"
    );
    assert_eq!(server.get("/health").await.status, 200);
}
