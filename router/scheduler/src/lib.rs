//! headrace-scheduler: which tokens of which sequences run in the next step, and which KV blocks hold them.
//!
//! A pure state machine (sans-IO): no sockets, clock, randomness or text. Time comes in as an argument.

mod types;

pub use types::*;
