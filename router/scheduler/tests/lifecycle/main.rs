//! One behaviour a test, by the interface alone: masks, pauses, crashes and who is preempted.

#![expect(
    clippy::unwrap_used,
    reason = "a test crate; the functions beside the tests are tests as well"
)]

mod cache;
mod crashes;
mod figures;
mod immunity;
mod masks;
mod pause;
mod scene;
#[path = "../support/mod.rs"]
mod support;
mod two_groups;
