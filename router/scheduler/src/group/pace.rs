//! The inter-token guard: what steps took of late bounds the prefill tokens of a step in which sequences decode.
//!
//! With several steps in flight a step's own time runs from its sending, or from the answer before it when that
//! came later, to its answer. Kept are
//! - what a step of decoding rows alone takes, for each number of rows, or for about so many;
//! - what a prefill token adds beside decoding rows, and, until that is known, what one takes in a step of prefills
//!   alone, which is more; both for tokens with and without logprobs of the prompt.
//!
//! Each is the median of the last samples: a few odd steps change nothing, and a lasting change is followed soon. What
//! is left of the target after the decoding rows, divided by what a token adds, is the bound. An error in the first
//! figure is made up for by the second, so the share settles where steps take the target even when every step has
//! prefills and the first figure is old.
//!
//! A shared pace's target is a multiple of the first figure, so there it has to be right: while steps have prefills, one
//! goes without now and then, when the figure is old.

use std::collections::BTreeMap;
use std::time::Duration;

use super::StepRecord;
use super::costs::{PrefillTokens, Recent, TokenCosts, Weight};
use crate::policy::StepPace;
use crate::types::Time;

/// Prefill tokens in a step at least: fewer tell nothing of what one costs, and a prompt would hardly go on.
const LEAST_TOKENS: usize = 4;

/// Prefill blocks beside decoding rows while no step tells what a token costs.
const CAUTIOUS_BLOCKS: usize = 4;

/// Between one sample and the next the share grows by this factor at most.
const GROWTH: usize = 2;

/// Numbers of rows up to this one are told apart each, those above in this many parts of a power of two.
const EXACT_ROWS: usize = 16;
const PARTS: usize = 8;

/// Beside many decoding rows a step takes this many fifths of what they take alone.
const LEAST_FIFTHS: u64 = 7;

/// A step that is not made shorter for those who read.
const UNSEEN: u64 = 20_000_000;

/// Steps with prefills between two without, at least.
const PROBE_PERIOD: u64 = 16;

/// A figure of decoding rows is old after so many steps with such rows.
const OLD: u64 = 64;

/// What decoding rows of one number took alone.
#[derive(Debug, Default)]
struct DecodeSteps {
    took: Recent,
    /// Which of the steps with decoding rows gave the last sample.
    sampled_at: u64,
}

/// The prefills that would be in a step if it had room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Started ones, and those that wait and could have a slot.
    pub(super) prefills: usize,
    /// The first one waits for longer than anybody should.
    pub(super) is_overdue: bool,
}

/// See the module. Times are nanoseconds.
#[derive(Debug)]
pub(super) struct Pace {
    rule: StepPace,
    block_size: usize,
    last_answer: Time,
    /// By the class of the number of rows.
    decode_steps: BTreeMap<usize, DecodeSteps>,
    /// Answered steps with decoding rows.
    answered: u64,
    /// Those with prefills too, since one had none.
    mixed: u64,
    /// What a prefill token added to a step with decoding rows.
    added: TokenCosts,
    /// How many prefill tokens those steps had, counted as plain ones.
    taken: Recent,
    /// What a token took in a step of prefills alone.
    alone: TokenCosts,
    /// What bounded the last step that had decoding rows.
    last_bound: Option<usize>,
}

impl Pace {
    pub(super) fn new(rule: StepPace, block_size: usize) -> Self {
        Self {
            rule,
            block_size,
            last_answer: Time::default(),
            decode_steps: BTreeMap::new(),
            answered: 0,
            mixed: 0,
            added: TokenCosts::default(),
            taken: Recent::default(),
            alone: TokenCosts::default(),
            last_bound: None,
        }
    }

    /// Whether there are bounds at all.
    pub(super) fn is_bounding(&self) -> bool {
        self.rule != StepPace::Unbounded
    }

    /// A step has answered; `succeeded`: it did its work.
    pub(super) fn note(&mut self, now: Time, record: &StepRecord, succeeded: bool) {
        let began = record.sent_at.max(self.last_answer);
        self.last_answer = now;
        if !succeeded || !self.is_bounding() {
            return;
        }
        let took = nanoseconds(now.0.saturating_sub(began.0));
        let (rows, tokens) = (record.decode_rows, record.prefill_tokens);
        let count = self.count(tokens);
        // A few tokens tell little about one.
        let tells = count >= LEAST_TOKENS;
        if rows == 0 {
            if tells {
                self.alone.note(took, tokens);
            }
            return;
        }
        self.answered += 1;
        if count == 0 {
            self.mixed = 0;
            self.add_decode_step(rows, took);
            return;
        }
        self.mixed += 1;
        let base = self.decode_time(rows);
        // Without its prefills it would not have taken longer.
        if took < base {
            self.add_decode_step(rows, took);
        }
        if tells {
            self.added.note(took.saturating_sub(base), tokens);
            self.taken.add(count as u64);
        }
    }

    fn add_decode_step(&mut self, rows: usize, took: u64) {
        let steps = self.decode_steps.entry(row_class(rows)).or_default();
        steps.took.add(took);
        steps.sampled_at = self.answered;
    }

    /// How many plain tokens a scored one counts for: beside decoding rows, or as in steps of prefills alone.
    pub(super) fn weight(&self) -> Weight {
        let known = self.added.weight().or_else(|| self.alone.weight());
        known.unwrap_or(Weight::ASSUMED)
    }

    /// These tokens, counted as plain ones.
    fn count(&self, tokens: PrefillTokens) -> usize {
        tokens.plain + self.weight().count(tokens.scored)
    }

    /// Most prefill tokens in a step with `rows` decoding rows, counted as plain ones: a few at least, so that prefills
    /// go on; now and then none, to see what the rows take alone. No bound without decoding rows.
    pub(super) fn bound(&mut self, rows: usize, line: Line) -> usize {
        if rows == 0 {
            return usize::MAX;
        }
        let base = self.decode_time(rows);
        let target = match self.rule {
            StepPace::Unbounded => return usize::MAX,
            StepPace::Target(target) => nanoseconds(target),
            StepPace::Shared => {
                if line.prefills > 0 && self.is_probe_due(rows) {
                    self.mixed = 0;
                    return 0;
                }
                shared_target(base, rows, line)
            }
        };
        let left = target.saturating_sub(base);
        let fits = |cost: u64| usize::try_from(left / cost.max(1)).unwrap_or(usize::MAX);
        let cautious = CAUTIOUS_BLOCKS * self.block_size;
        let bound = match (self.added.plain(), self.taken.largest()) {
            (Some(cost), Some(taken)) => {
                let taken = usize::try_from(taken).unwrap_or(usize::MAX);
                fits(cost).min(taken.saturating_mul(GROWTH).max(cautious))
            }
            _ => self.alone.plain().map_or(cautious, fits),
        };
        let bound = bound.max(LEAST_TOKENS);
        self.last_bound = Some(bound);
        bound
    }

    /// The bound of the last step that had decoding rows, for the metrics.
    pub(super) fn last_bound(&self) -> Option<usize> {
        self.last_bound
    }

    /// What a step of that many decoding rows takes alone: known for so many, else for the nearest number; 0 while
    /// nothing is known.
    fn decode_time(&self, rows: usize) -> u64 {
        let class = row_class(rows);
        let fewer = self.decode_steps.range(..=class).next_back();
        let more = self.decode_steps.range(class..).next();
        let nearest = fewer.into_iter().chain(more);
        let nearest = nearest.min_by_key(|(known, _)| known.abs_diff(class));
        nearest
            .and_then(|(_, steps)| steps.took.median())
            .unwrap_or(0)
    }

    /// Whether a step should go without prefills: all had some of late, and what so many rows take alone is not
    /// known, or was seen long ago.
    fn is_probe_due(&self, rows: usize) -> bool {
        let known = self.decode_steps.get(&row_class(rows));
        let is_old = known.is_none_or(|steps| self.answered - steps.sampled_at >= OLD);
        is_old && self.mixed >= PROBE_PERIOD
    }
}

/// What a step may take so that all share its time alike; see [`StepPace::Shared`].
fn shared_target(base: u64, rows: usize, line: Line) -> u64 {
    let (rows, prefills) = (rows as u64, line.prefills as u64);
    let alike = base.saturating_mul(rows.saturating_add(prefills)) / rows;
    let least = if line.is_overdue {
        base.saturating_mul(2)
    } else {
        base.saturating_mul(LEAST_FIFTHS) / 5
    };
    alike.max(least).max(UNSEEN)
}

/// `rows` is not 0.
fn row_class(rows: usize) -> usize {
    if rows < EXACT_ROWS {
        return rows;
    }
    // From 16 on: the power of two and the three bits behind the first.
    let power = rows.ilog2() as usize;
    let part = (rows >> (power - 3)) % PARTS;
    EXACT_ROWS + (power - 4) * PARTS + part
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::row_class;

    /// Up to 16 rows each number has a class of its own; above, those of a class differ by an eighth at most, and none
    /// lies between those of another.
    #[test]
    fn numbers_of_rows_that_take_about_as_long_share_a_class() {
        let mut first_of_class = 1;
        for rows in 2..5000 {
            let (class, before) = (row_class(rows), row_class(rows - 1));
            assert!(class == before || class == before + 1, "{rows}");
            if class != before {
                first_of_class = rows;
            }
            let width = rows - first_of_class;
            assert!(width * 8 <= first_of_class, "{first_of_class} and {rows}");
            assert!(rows > 16 || width == 0, "{rows}");
        }
    }
}
