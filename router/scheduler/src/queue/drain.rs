//! How fast the queue empties.

use std::time::Duration;

use crate::types::Time;

/// The time that one sample is taken over.
const WINDOW: Duration = Duration::from_secs(1);

/// For how long a rate is good for refusing somebody: other requests come after that.
const RECENT: Duration = Duration::from_mins(1);

/// Ids that left the queue for a slot in a second, a mean that halves the weight of a sample with each later
/// one. Only times in which something waits count: without that, the queue could drain faster than it does.
#[derive(Debug, Default)]
pub(crate) struct DrainRate {
    since: Time,
    tokens: u64,
    rate: u64,
    /// When the last sample was taken.
    sampled: Time,
}

impl DrainRate {
    pub(crate) fn add(&mut self, tokens: u64) {
        self.tokens += tokens;
    }

    pub(crate) fn note_time(&mut self, now: Time, nothing_waits: bool) {
        let elapsed = now.0.saturating_sub(self.since.0);
        if nothing_waits {
            self.since = now;
            self.tokens = 0;
        } else if elapsed >= WINDOW {
            let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let sample = self.tokens.saturating_mul(1000) / milliseconds;
            self.rate = if self.rate == 0 {
                sample
            } else {
                u64::midpoint(self.rate, sample)
            };
            self.since = now;
            self.sampled = now;
            self.tokens = 0;
        }
    }

    /// The rate, if it was seen lately.
    pub(crate) fn of_late(&self, now: Time) -> Option<u64> {
        let age = now.0.saturating_sub(self.sampled.0);
        (age <= RECENT && self.rate > 0).then_some(self.rate)
    }

    pub(crate) fn tokens_per_second(&self) -> u64 {
        self.rate
    }
}
