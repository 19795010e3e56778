//! The inter-token guard: what steps took of late bounds the prefill tokens of a step in which sequences decode.
//!
//! With several steps in flight a step's own time runs from its sending, or from the answer before it when that
//! came later, to its answer. Kept are
//! - what a step of decoding rows alone takes, for each power of two of rows;
//! - what a prefill token adds beside decoding rows, and, until that is known, what one takes in a step of prefills
//!   alone, which is more.
//!
//! Each is the median of the last five samples: one or two odd steps change nothing, and a lasting change is followed
//! within three. What is left of the target after the decoding rows, divided by what a token adds, is the bound. An
//! error in the first figure is made up for by the second, so the share settles where steps take the target even
//! when every step has prefills and the first figure is old.

use std::time::Duration;

use super::StepRecord;
use crate::types::Time;

/// Samples of each figure: the median passes over two odd ones.
const SAMPLES: usize = 5;

/// Prefill blocks beside decoding rows while no step tells what a token costs.
const CAUTIOUS_BLOCKS: usize = 4;

/// Between one sample and the next the share grows by this factor at most.
const GROWTH: usize = 2;

/// Powers of two of rows that are told apart.
const ROW_CLASSES: usize = usize::BITS as usize;

/// The last few values of a figure.
#[derive(Debug, Default)]
struct Recent {
    values: [u64; SAMPLES],
    count: usize,
    next: usize,
}

impl Recent {
    fn add(&mut self, value: u64) {
        self.values[self.next] = value;
        self.next = (self.next + 1) % SAMPLES;
        self.count = (self.count + 1).min(SAMPLES);
    }

    /// Of two middle ones the larger.
    fn median(&self) -> Option<u64> {
        let mut sorted = self.values;
        let known = &mut sorted[..self.count];
        known.sort_unstable();
        known.get(self.count / 2).copied()
    }

    fn largest(&self) -> Option<u64> {
        self.values[..self.count].iter().max().copied()
    }
}

/// See the module. Times are nanoseconds.
#[derive(Debug)]
pub(super) struct Pace {
    target: Option<u64>,
    block_size: usize,
    last_answer: Time,
    /// Steps of decoding rows alone, by the power of two of their number.
    decode_steps: [Recent; ROW_CLASSES],
    /// What a prefill token added to a step with decoding rows.
    added: Recent,
    /// How many prefill tokens those steps had.
    taken: Recent,
    /// What a token took in a step of prefills alone.
    alone: Recent,
    /// What bounded the last step that had decoding rows.
    last_bound: Option<usize>,
}

impl Pace {
    pub(super) fn new(target: Option<Duration>, block_size: usize) -> Self {
        Self {
            target: target.map(nanoseconds),
            block_size,
            last_answer: Time::default(),
            decode_steps: std::array::from_fn(|_| Recent::default()),
            added: Recent::default(),
            taken: Recent::default(),
            alone: Recent::default(),
            last_bound: None,
        }
    }

    /// A step has answered; `succeeded`: it did its work.
    pub(super) fn note(&mut self, now: Time, record: &StepRecord, succeeded: bool) {
        let began = record.sent_at.max(self.last_answer);
        self.last_answer = now;
        if !succeeded || self.target.is_none() {
            return;
        }
        let took = nanoseconds(now.0.saturating_sub(began.0));
        let (rows, tokens) = (record.decode_rows, record.prefill_tokens);
        // A few tokens tell little about one.
        let tells = tokens >= self.block_size;
        if rows == 0 {
            if tells {
                self.alone.add(took / tokens as u64);
            }
        } else if tokens == 0 {
            self.decode_steps[row_class(rows)].add(took);
        } else {
            let base = self.decode_time(rows);
            // Without its prefills it would not have taken longer.
            if took < base {
                self.decode_steps[row_class(rows)].add(took);
            }
            if tells {
                self.added
                    .add(took.saturating_sub(base).div_ceil(tokens as u64));
                self.taken.add(tokens as u64);
            }
        }
    }

    /// Most prefill tokens in a step with `rows` decoding rows: at least one block, so that prefills go on. No
    /// bound without decoding rows or without a target.
    pub(super) fn bound(&mut self, rows: usize) -> usize {
        let Some(target) = self.target.filter(|_| rows > 0) else {
            return usize::MAX;
        };
        let left = target.saturating_sub(self.decode_time(rows));
        let fits = |cost: u64| usize::try_from(left / cost.max(1)).unwrap_or(usize::MAX);
        let cautious = CAUTIOUS_BLOCKS * self.block_size;
        let bound = match (self.added.median(), self.taken.largest()) {
            (Some(cost), Some(taken)) => {
                let taken = usize::try_from(taken).unwrap_or(usize::MAX);
                fits(cost).min(taken.saturating_mul(GROWTH).max(cautious))
            }
            _ => self.alone.median().map_or(cautious, fits),
        };
        let bound = bound.max(self.block_size);
        self.last_bound = Some(bound);
        bound
    }

    /// The bound of the last step that had decoding rows, for the metrics.
    pub(super) fn last_bound(&self) -> Option<usize> {
        self.last_bound
    }

    /// What a step of that many decoding rows takes alone: known for about so many, else for the next fewer, else
    /// for the next more; 0 while nothing is known.
    fn decode_time(&self, rows: usize) -> u64 {
        let class = row_class(rows);
        let fewer = self.decode_steps[..=class].iter().rev();
        let more = self.decode_steps[class + 1..].iter();
        fewer.chain(more).find_map(Recent::median).unwrap_or(0)
    }
}

/// `rows` is not 0.
fn row_class(rows: usize) -> usize {
    rows.ilog2() as usize
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
