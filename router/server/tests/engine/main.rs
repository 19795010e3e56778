//! The engine against fake workers over real sockets: right ids, exact ends, full books, in every kind of trouble.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

#[path = "../engine_support/mod.rs"]
mod engine_support;

#[path = "../../../dialect/tests/tiny_tokenizer/mod.rs"]
mod tiny_tokenizer;

mod faults;
mod ids;
mod lifecycle;
mod masks;
mod queue;
mod ranks;
mod readers;
mod scoring;
