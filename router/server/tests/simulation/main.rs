//! The engine's core against made-up workers, launcher and clients, under one seed: arrivals, leavers in every state,
//! slow readers, deadlines, failed, skipped, out-of-memory and non-finite answers, dead and hung groups, starts that
//! fail, late and double answers, drains. What is open must end exactly once, with the ids of an undisturbed run.
//!
//! `HEADRACE_SIMULATION_SEEDS=n` runs more seeds; `HEADRACE_SIMULATION_FIRST=s` begins at another one.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test crate; the functions beside the tests are tests as well"
)]

mod client;
mod clock_free;
mod grammars;
mod launcher;
#[cfg(feature = "planted-bugs")]
mod planted;
#[allow(dead_code, reason = "shared with the scheduler's simulation")]
#[path = "../../../scheduler/tests/simulation/random.rs"]
mod random;
mod totals;
mod worker;
mod world;

use clock_free::rate;
use totals::Totals;

const SEEDS: u64 = 30_000;
/// Seeds run twice to compare their traces.
const REPLAYED: u64 = 100;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
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
fn every_request_ends_once_whatever_happens() {
    let first = setting("HEADRACE_SIMULATION_FIRST", 1);
    let seeds = setting("HEADRACE_SIMULATION_SEEDS", SEEDS);
    let mut totals = Totals::default();
    let (seconds, ()) = rate(|| {
        for seed in first..first + seeds {
            let _seed = Seed(seed);
            totals.add(&world::run(seed));
        }
    });
    println!(
        "{seeds} seeds, {} steps, {:.0} steps a second: {totals:?}",
        totals.steps,
        totals.steps as f64 / seconds
    );
    if seeds >= SEEDS {
        // A simulation in which something never happens proves nothing about it.
        totals.assert_all_happened();
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in 1..=REPLAYED {
        assert_eq!(
            world::run(seed).trace,
            world::run(seed).trace,
            "seed {seed}"
        );
    }
    assert_ne!(world::run(1).trace, world::run(2).trace);
}
