//! headrace-fuzz: what comes from outside, made up and mutated, against what must always hold.
//!
//! A [`Target`] takes bytes and panics when something that must hold does not. The driver ([`campaign`]) makes inputs
//! up, mutates those that led somewhere new, and shrinks one that fails. It needs neither a nightly compiler nor
//! instrumented code: "somewhere new" is the target's own word for what the input met (a refusal, a branch, a
//! count). One seed gives one sequence of inputs.
//!
//! `make fuzz` runs every target for a minute; the crate's test runs each for about a second from a fixed seed.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a target fails by panicking"
)]

pub mod campaign;
mod input;
mod mutate;
mod random;
mod shrink;
mod targets;

pub use random::Random;
pub use targets::all;

/// One thing that is fed.
#[derive(Clone, Copy)]
pub struct Target {
    /// `bodies`.
    pub name: &'static str,
    /// Good inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// An input from nothing.
    pub fresh: fn(&mut Random) -> Vec<u8>,
    /// Panics if something does not hold; else says in a number what the input met.
    pub run: fn(&[u8]) -> u64,
    /// Words that mutations put in.
    pub words: &'static [&'static str],
    /// Inputs of the short run: about a second.
    pub short: u64,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}
