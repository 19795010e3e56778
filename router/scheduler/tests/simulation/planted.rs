//! Every planted mistake is found, each within a minute.

#![expect(
    clippy::disallowed_types,
    reason = "the clock bounds the search, not the scheduler"
)]

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::time::{Duration, Instant};

use headrace_scheduler::planted::{Bug, select};

use crate::{cache, fairness, run};

const BOUND: Duration = Duration::from_mins(1);

/// The words of the first check that fails; `None`: none does.
fn one_seed(seed: u64) -> Option<String> {
    let worlds = AssertUnwindSafe(|| {
        run::run(seed);
        if seed.is_multiple_of(16) {
            fairness::run(seed);
            cache::run(seed);
        }
    });
    let panic = catch_unwind(worlds).err()?;
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    Some(text.unwrap_or_default())
}

#[test]
fn every_planted_bug_is_found() {
    let hook = take_hook();
    set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    println!("{:<26} {:>7} {:>8}  found by", "bug", "seeds", "seconds");
    for &bug in Bug::ALL {
        select(Some(bug));
        let start = Instant::now();
        let mut seeds = 0;
        let found = loop {
            seeds += 1;
            let found = one_seed(seeds);
            if found.is_some() || start.elapsed() > BOUND {
                break found;
            }
        };
        let name = format!("{bug:?}");
        let seconds = start.elapsed().as_secs_f64();
        let words: String = found
            .as_deref()
            .unwrap_or("NOT FOUND")
            .chars()
            .take(60)
            .collect();
        println!(
            "{name:<26} {seeds:>7} {seconds:>8.2}  {}",
            words.replace('\n', " ")
        );
        if found.is_none() {
            missed.push(bug);
        }
    }
    select(None);
    set_hook(hook);
    assert!(missed.is_empty(), "not found: {missed:?}");
}
