//! Tests of the kernels, on every kernel set that the CPU has.

mod attention;
mod linear;
mod row_ops;
mod support;
