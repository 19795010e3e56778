//! Every target for about a second, from a fixed seed.

#![allow(clippy::panic, reason = "a test ends by panicking")]

use headrace_fuzz::campaign::{Budget, run};

const SEED: u64 = 20_261_130;

#[test]
fn every_target_holds() {
    for target in headrace_fuzz::all() {
        if let Err(failure) = run(target, SEED, Budget::Inputs(target.short), None) {
            panic!(
                "{}: {}\ninput: {:?}",
                target.name,
                failure.message,
                String::from_utf8_lossy(&failure.input)
            );
        }
    }
}

#[test]
fn one_seed_gives_one_sequence_of_inputs() {
    for target in headrace_fuzz::all() {
        let few = Budget::Inputs(200);
        let kept = |seed| run(target, seed, few, None).map(|report| report.kept);
        assert_eq!(kept(7).ok(), kept(7).ok(), "{}", target.name);
    }
}
