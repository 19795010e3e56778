//! Tests of the kernels, on every kernel set that the CPU has.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod attention;
mod linear;
mod row_ops;
mod support;
