//! What a chat costs the front: validation, template, tokenising, one token; and `/tokenize`. A peer that listens already
//! can be asked the same beside it.

use crate::accounts::Account;
use crate::client::{Connection, Words, post};
use crate::rig::{Rig, Setup};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Another server, told as `ADDRESS,MODEL,PID`: where it listens, the name it serves, and the process of its front,
/// whose CPU time is counted.
pub struct Peer {
    address: SocketAddr,
    model: String,
    front: u32,
}

impl Peer {
    pub fn parse(text: &str) -> Self {
        let parts: Vec<&str> = text.split(',').collect();
        let [address, model, front] = parts[..] else {
            panic!("--peer ADDRESS,MODEL,PID")
        };
        Self {
            address: address.parse().expect("--peer: ADDRESS is no address"),
            model: model.to_owned(),
            front: front.parse().expect("--peer: PID is no number"),
        }
    }
}

/// One kind of request, and how many connections send it.
struct Load {
    what: &'static str,
    path: &'static str,
    connections: usize,
    /// Output tokens of each request, where these are counted instead of requests.
    tokens: Option<u32>,
    body: fn(&str, usize) -> serde_json::Value,
}

fn chat(
    model: &str,
    index: usize,
    words: usize,
    max_tokens: u32,
    stream: bool,
) -> serde_json::Value {
    serde_json::json!({
        "model": model,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": Words::new(index, words).text()},
        ],
        "max_tokens": max_tokens, "temperature": 0, "ignore_eos": true, "stream": stream,
    })
}

const TOKENIZE: Load = Load {
    what: "`/tokenize`, 1,000 tokens",
    path: "/tokenize",
    connections: 16,
    tokens: None,
    body: |model, index| serde_json::json!({"model": model, "prompt": Words::new(index, 1000).text()}),
};

const LONG_CHAT: Load = Load {
    what: "chat, 1,000 tokens in, 1 out",
    path: "/v1/chat/completions",
    connections: 16,
    tokens: None,
    body: |model, index| chat(model, index, 1000, 1, false),
};

const SHORT_CHAT: Load = Load {
    what: "chat, 32 tokens in, 1 out",
    path: "/v1/chat/completions",
    connections: 64,
    tokens: None,
    body: |model, index| chat(model, index, 32, 1, false),
};

const STREAM: Load = Load {
    what: "16 streamed chats, a token",
    path: "/v1/chat/completions",
    connections: 16,
    tokens: Some(256),
    body: |model, index| chat(model, index, 32, 256, true),
};

pub async fn run(gguf: &Path, seconds: f64, peer: Option<&Peer>) {
    println!("| server | load | a second | front's CPU, µs for each |\n| --- | --- | --- | --- |");
    let rig = Rig::start(
        gguf,
        &Setup {
            max_concurrent_requests: 4096,
            max_batch_size: 512,
            step_micros: 0,
        },
    );
    for load in [&TOKENIZE, &LONG_CHAT, &SHORT_CHAT, &STREAM] {
        measure(
            "headrace",
            rig.address,
            "fake",
            rig.router_pid(),
            load,
            seconds,
        )
        .await;
    }
    drop(rig);
    let Some(peer) = peer else { return };
    for load in [&TOKENIZE, &LONG_CHAT, &SHORT_CHAT, &STREAM] {
        measure("peer", peer.address, &peer.model, peer.front, load, seconds).await;
    }
}

/// Prints one row. The first second warms pages, pools and connections and is not counted.
async fn measure(
    server: &str,
    address: SocketAddr,
    model: &str,
    front: u32,
    load: &Load,
    seconds: f64,
) {
    let requests: Arc<Vec<Vec<u8>>> = Arc::new(
        (0..1024)
            .map(|index| post(load.path, &(load.body)(model, index)))
            .collect(),
    );
    let next = Arc::new(AtomicUsize::new(0));
    hammer(address, load.connections, &requests, &next, 1.0).await;
    let before = Account::of(front);
    let begun = Instant::now();
    let done = hammer(address, load.connections, &requests, &next, seconds).await;
    let elapsed = begun.elapsed().as_secs_f64();
    let spent = &Account::of(front) - &before;
    let units = done as f64 * f64::from(load.tokens.unwrap_or(1));
    let unit = if load.tokens.is_some() {
        "tokens"
    } else {
        "requests"
    };
    println!(
        "| {server} | {} | {:.0} {unit} | {:.1} |",
        load.what,
        units / elapsed,
        spent.total() / units * 1e6
    );
}

/// Whole answers over kept-alive connections, one after the other on each.
async fn hammer(
    address: SocketAddr,
    connections: usize,
    requests: &Arc<Vec<Vec<u8>>>,
    next: &Arc<AtomicUsize>,
    seconds: f64,
) -> usize {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let tasks: Vec<_> = (0..connections)
        .map(|_| {
            let (next, requests) = (Arc::clone(next), Arc::clone(requests));
            tokio::spawn(async move {
                let mut connection = Connection::open(address).await.unwrap();
                let mut done = 0usize;
                while Instant::now() < until {
                    let index = next.fetch_add(1, Ordering::Relaxed) % requests.len();
                    let answer = connection.ask(&requests[index]).await.unwrap();
                    assert_eq!(answer.status, 200, "{}", answer.fields);
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await.unwrap();
    }
    done
}
