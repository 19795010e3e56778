//! Command entry point.
fn main() {}
