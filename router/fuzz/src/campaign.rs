//! Many inputs for one target, under one seed.

use crate::Target;
use crate::mutate::mutate;
use crate::random::Random;
use crate::shrink::shrink;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

/// Inputs kept for mutation at most.
const MOST_KEPT: usize = 4096;

/// An input that takes longer hangs, whatever the machine: the others take well under a thousandth of it.
const HANG: Duration = Duration::from_secs(20);

/// As the router's threads have it: what is nested must not need more.
const STACK_BYTES: usize = 2 << 20;

/// When a campaign is over.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// So many inputs.
    Inputs(u64),
    /// So long.
    Time(Duration),
}

/// A campaign in which everything held.
#[derive(Clone, Debug)]
pub struct Report {
    /// Inputs run.
    pub inputs: u64,
    /// Over all.
    pub elapsed: Duration,
    /// Inputs that met something new.
    pub kept: usize,
    /// The slowest input took so long.
    pub slowest: Duration,
}

/// Something did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The shortest input found that fails.
    pub input: Vec<u8>,
    /// What was said.
    pub message: String,
}

/// Runs a target on a thread with a router thread's stack. With a `journal`, each input is written there before it is
/// run, so that one that ends the process is known.
pub fn run(
    target: Target,
    seed: u64,
    budget: Budget,
    journal: Option<&File>,
) -> Result<Report, Failure> {
    on_router_stack(|| fuzz(target, seed, budget, journal))
}

/// Runs one input.
pub fn replay(target: Target, input: &[u8]) -> Result<(), Failure> {
    on_router_stack(|| {
        attempt(target, input)
            .map(|_| ())
            .map_err(|message| Failure {
                input: input.to_vec(),
                message,
            })
    })
}

fn on_router_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, work)
            .expect("a thread")
            .join()
            .expect("a campaign catches what its target throws")
    })
}

fn fuzz(
    target: Target,
    seed: u64,
    budget: Budget,
    journal: Option<&File>,
) -> Result<Report, Failure> {
    let mut random = Random::new(seed);
    let mut kept = (target.seeds)();
    let mut seeds = kept.clone().into_iter();
    let mut met = HashSet::new();
    let started = Instant::now();
    let mut report = Report {
        inputs: 0,
        elapsed: Duration::ZERO,
        kept: 0,
        slowest: Duration::ZERO,
    };
    loop {
        let is_over = match budget {
            Budget::Inputs(most) => report.inputs >= most,
            Budget::Time(limit) => started.elapsed() >= limit,
        };
        if is_over {
            break;
        }
        let seeded = seeds.next();
        let is_seed = seeded.is_some();
        let input = seeded.unwrap_or_else(|| {
            if kept.is_empty() || random.percent(25) {
                return (target.fresh)(&mut random);
            }
            let first = random.below(kept.len());
            let second = random.below(kept.len());
            mutate(&mut random, &kept[first], &kept[second], target.words)
        });
        if let Some(journal) = journal {
            // A journal that cannot be written costs only the input of a crash.
            let _ = journal.set_len(input.len() as u64);
            let _ = journal.write_all_at(&input, 0);
        }
        let start = Instant::now();
        let outcome = attempt(target, &input);
        let took = start.elapsed();
        report.inputs += 1;
        report.slowest = report.slowest.max(took);
        if took > HANG {
            return Err(Failure {
                input,
                message: format!("it took {} s", took.as_secs()),
            });
        }
        match outcome {
            Ok(what) => {
                if met.insert(what) && !is_seed {
                    if kept.len() < MOST_KEPT {
                        kept.push(input);
                    } else {
                        let place = random.below(kept.len());
                        kept[place] = input;
                    }
                }
            }
            Err(_) => return Err(explain(target, &input)),
        }
    }
    report.elapsed = started.elapsed();
    report.kept = met.len();
    Ok(report)
}

fn explain(target: Target, input: &[u8]) -> Failure {
    let input = shrink(input, |shorter| attempt(target, shorter).is_err());
    let message = attempt(target, &input)
        .err()
        .unwrap_or_else(|| "it failed once and not again".to_owned());
    Failure { input, message }
}

thread_local! {
    static WORDS: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs an input; a panic's words and place are the error.
fn attempt(target: Target, input: &[u8]) -> Result<u64, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let caught = WORDS.with_borrow_mut(|words| match words {
                Some(words) => {
                    *words = panic.to_string();
                    true
                }
                None => false,
            });
            if !caught {
                usual(panic);
            }
        }));
    });
    WORDS.set(Some(String::new()));
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let words = WORDS.take().unwrap_or_default();
    outcome.map_err(|_| words)
}
