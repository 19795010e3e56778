//! The routes over the real engine and a fake worker: who may do what, on what terms, and what is said about it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

mod abort;
mod abort_names;
mod about;
mod control;
mod extremes;
mod grammar;
mod heads;
mod leaving;
mod logprobs;
mod one_meaning;
mod platforms;
mod probes;
mod queue_time;
mod readers;
mod request_log;
#[path = "../routes_support/mod.rs"]
mod routes_support;
mod scoring;
mod shares;
mod suffix;
mod terms;
mod text_shape;
mod token_rules;
mod walk;
