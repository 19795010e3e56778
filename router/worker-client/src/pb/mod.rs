//! Code generated from `proto/headrace/worker/v1/worker.proto`; `tests/codegen.rs` keeps it in step.

#![allow(
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]

include!("headrace.worker.v1.rs");
