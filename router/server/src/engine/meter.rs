//! Where the engine thread's time goes, step by step.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the engine's thread does with an answer, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The answer into the books.
    Complete,
    /// The next steps.
    Plan,
    /// Their messages, handed to the connection.
    Encode,
    /// The connection puts them on the wire (protobuf, HTTP/2, the system's write).
    Send,
    /// Tokens to their streams, and the status.
    Tell,
}

impl Work {
    /// All, with their names.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Complete, "complete"),
        (Self::Plan, "plan"),
        (Self::Encode, "encode"),
        (Self::Send, "send"),
        (Self::Tell, "tell"),
    ];
}

/// Sums over all answered steps since the start.
#[derive(Debug, Default)]
pub struct StepMeter {
    nanoseconds: [AtomicU64; Work::ALL.len()],
    answers: AtomicU64,
}

impl StepMeter {
    /// Time spent on it.
    pub fn spent(&self, work: Work) -> Duration {
        let sum = self.nanoseconds.get(work as usize);
        Duration::from_nanos(sum.map_or(0, |sum| sum.load(Ordering::Relaxed)))
    }

    /// Answers that the sums are over.
    pub fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    fn add(&self, work: Work, time: Duration) {
        if let Some(sum) = self.nanoseconds.get(work as usize) {
            let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            sum.fetch_add(time, Ordering::Relaxed);
        }
    }
}

/// Takes the time between marks of one turn of the loop.
#[derive(Debug)]
pub(super) struct Lap<'a> {
    meter: &'a StepMeter,
    at: Instant,
    counts: bool,
}

impl<'a> Lap<'a> {
    pub(super) fn begin(meter: &'a StepMeter) -> Self {
        Self {
            meter,
            at: Instant::now(),
            counts: false,
        }
    }

    /// This turn is about an answer: the times from here on count.
    pub(super) fn is_about_an_answer(&mut self) {
        self.counts = true;
        self.meter.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// What was done since the last mark.
    pub(super) fn mark(&mut self, work: Work) {
        if self.counts {
            let now = Instant::now();
            self.meter.add(work, now - self.at);
            self.at = now;
        }
    }
}
