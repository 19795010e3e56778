//! The scheduler against a made-up worker that keeps KV contents, under one seed: arrivals, cancels at every
//! state, tiny pools and budgets, failed, out-of-memory, non-finite and skipped answers, bad answers, dead
//! groups. Every sequence must end exactly once with the ids of an undisturbed run.
//!
//! `HEADRACE_SIMULATION_SEEDS=n` runs more seeds; `HEADRACE_SIMULATION_FIRST=s` begins at another one.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test crate; the functions beside the tests are tests as well"
)]

mod cache;
mod client;
mod fairness;
mod faults;
mod owners;
#[cfg(feature = "planted-bugs")]
mod planted;
mod random;
mod run;
#[path = "../support/mod.rs"]
mod support;
mod totals;
mod watch;
mod worker;
mod world;

use totals::Totals;

const SEEDS: u64 = 20_000;
/// Seeds run twice to compare their traces.
const REPLAYED: u64 = 200;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// So many, or fewer where the setting asks for fewer seeds than usual.
fn fewer(usual: u64) -> u64 {
    let seeds = setting("HEADRACE_SIMULATION_SEEDS", SEEDS);
    (usual * seeds.min(SEEDS)).div_ceil(SEEDS)
}

/// Says which seed failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            println!("failing: HEADRACE_SIMULATION_FIRST={seed} HEADRACE_SIMULATION_SEEDS=1");
        }
    }
}

#[test]
#[expect(
    clippy::disallowed_types,
    reason = "the clock tells how fast this is, not what happens"
)]
fn every_sequence_ends_once_with_the_undisturbed_ids() {
    let first = setting("HEADRACE_SIMULATION_FIRST", 1);
    let seeds = setting("HEADRACE_SIMULATION_SEEDS", SEEDS);
    let mut totals = Totals::default();
    let start = std::time::Instant::now();
    for seed in first..first + seeds {
        let _seed = Seed(seed);
        totals.add(&run::run(seed));
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{seeds} seeds from {first}: {}", totals.speed(seconds));
    println!("{totals:?}");
    if seeds >= SEEDS {
        // A simulation in which something never happens proves nothing about it.
        totals.assert_all_happened();
    }
}

#[test]
fn two_waiting_tenants_are_never_further_apart_than_stated() {
    let (mut measured, mut widest) = (0, 0);
    let seeds = fewer(300);
    for seed in 0..seeds {
        let (gaps, gap) = fairness::run(seed);
        measured += gaps;
        widest = widest.max(gap);
    }
    assert!(measured > 300 * seeds, "hardly anybody waits: {measured}");
    assert!(
        widest > 60 || seeds < 300,
        "the bound is not tried: {widest}"
    );
}

#[test]
fn blocks_leave_the_cache_by_retention_and_last_use() {
    let seeds = fewer(2000);
    let evicted: u64 = (0..seeds).map(cache::run).sum();
    assert!(evicted > 5 * seeds, "the pool is never short: {evicted}");
}

/// Seeds that once failed and are rare.
#[test]
fn seeds_that_failed_before() {
    // A prefill that asks for prompt logprobs held twins of its blocks, and with them the whole pool.
    run::run(1_109_698);
    // What a plan without a step had preempted was taken for younger than it was, by the check of the order.
    run::run(65_019);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..=fewer(REPLAYED) {
        assert_eq!(run::run(seed).trace, run::run(seed).trace, "seed {seed}");
    }
    assert_ne!(run::run(1).trace, run::run(2).trace);
}
