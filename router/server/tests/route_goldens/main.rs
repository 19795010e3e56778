//! Every route's answer, byte for byte, against files under `golden/`. `UPDATE_GOLDEN=1` writes them; they are then read
//! by a person against the reference.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

mod failures;
mod native;
mod openai;
mod other;
mod platforms;
#[path = "../routes_support/mod.rs"]
mod routes_support;
mod templates;

use routes_support::Server;
use routes_support::golden::{check, show};
use serde_json::{Value, json};

async fn post(server: &Server, name: &str, path: &str, body: Value) {
    let answer = server.post(path, &body).await;
    check(name, &show(&format!("POST {path}\n{body}"), &answer));
    server.wait_idle().await;
}

async fn get(server: &Server, name: &str, path: &str) {
    let mut answer = server.get(path).await;
    answer.headers.remove("x-request-id");
    check(name, &show(&format!("GET {path}"), &answer));
}

fn tensor(text: &str) -> Value {
    json!({"name": "in", "shape": [1, text.len()], "datatype": "BYTES", "data": text.as_bytes()})
}
