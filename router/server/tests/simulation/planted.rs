//! Every planted mistake of the engine is found, each within a minute.

use crate::clock_free::rate;
use crate::world;
use headrace_router::engine::planted::{Bug, select};
use std::panic::{catch_unwind, set_hook, take_hook};

/// Worlds that each may take; a minute on one core is some times as many.
const MOST_SEEDS: u64 = 20_000;

/// The words of the check that fails.
fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    text.unwrap_or_default()
}

#[test]
fn every_planted_bug_is_found() {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    println!("{:<26} {:>7} {:>8}  found by", "bug", "seeds", "seconds");
    for &bug in Bug::ALL {
        select(Some(bug));
        let (seconds, found) = rate(|| {
            (1..=MOST_SEEDS).find_map(|seed| {
                let panic = catch_unwind(|| world::run(seed)).err()?;
                Some((seed, words(&*panic)))
            })
        });
        let name = format!("{bug:?}");
        let (seed, by) = found.unwrap_or_else(|| {
            missed.push(bug);
            (MOST_SEEDS, "NOT FOUND".to_owned())
        });
        let by: String = by.chars().take(60).collect();
        println!(
            "{name:<26} {seed:>7} {seconds:>8.2}  {}",
            by.replace('\n', " ")
        );
    }
    select(None);
    set_hook(hook);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
