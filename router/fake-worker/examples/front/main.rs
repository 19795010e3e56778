//! How fast the front is: a router process with a fake worker behind it, and a load client, all on this machine.
//!
//! `front GGUF [throughput] [idle] [overload] [chat] [--peer ADDRESS,MODEL,PID]` prints Markdown tables; without names,
//! all of them. The tokenizer is that of the GGUF file. `make bench-front`, `make bench-chat` and `make bench-overload`
//! build what it needs and run it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    missing_debug_implementations,
    unreachable_pub,
    reason = "an example prints its figures and ends where something is wrong"
)]

mod accounts;
mod chat;
mod client;
mod idle;
mod overload;
mod probe;
mod rig;
mod throughput;

use std::path::PathBuf;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let gguf = PathBuf::from(
        arguments
            .next()
            .expect("front GGUF [throughput] [idle] [overload] [chat] [--peer ADDRESS,MODEL,PID]"),
    );
    let mut parts: Vec<String> = arguments.collect();
    let peer = parts.iter().position(|part| part == "--peer").map(|at| {
        let told = parts.drain(at..).nth(1);
        chat::Peer::parse(&told.expect("--peer ADDRESS,MODEL,PID"))
    });
    let wants = |name: &str| parts.is_empty() || parts.iter().any(|part| part == name);
    // One thread: the client is to take as little of the machine as it can.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    println!("{}\n", accounts::machine());
    if wants("throughput") {
        runtime.block_on(throughput::run(&gguf, 8.0));
        println!();
    }
    if wants("idle") {
        runtime.block_on(idle::run(&gguf, 10_000));
        println!();
    }
    if wants("chat") {
        runtime.block_on(chat::run(&gguf, 5.0, peer.as_ref()));
        println!();
    }
    if wants("overload") {
        runtime.block_on(overload::run(&gguf));
    }
}
