//! How long a refused client should stay away.

use super::EngineCore;
use super::phase::since;
use headrace_scheduler::Time;
use std::time::Duration;

/// Shorter spans than this say little about a rate.
const SHORTEST_SPAN: Duration = Duration::from_millis(500);

/// Sequences that end per second, smoothed.
#[derive(Debug, Default)]
pub(super) struct DrainRate {
    per_second: f64,
    ended: u64,
    at: Time,
}

impl EngineCore {
    /// Clients that come back when the queue is through find room.
    pub(super) fn update_retry_after(&mut self, now: Time) {
        let span = since(now, self.drain_rate.at);
        if span < SHORTEST_SPAN {
            return;
        }
        let total = self.streams.ended();
        let rate = (total - self.drain_rate.ended) as f64 / span.as_secs_f64();
        self.drain_rate = DrainRate {
            per_second: 0.7 * self.drain_rate.per_second + 0.3 * rate,
            ended: total,
            at: now,
        };
        let waiting = self
            .scheduler
            .as_ref()
            .map_or(0, |scheduler| scheduler.stats().waiting);
        let estimate = if waiting == 0 {
            1.0
        } else {
            waiting as f64 / self.drain_rate.per_second.max(0.01)
        };
        let retry_after = Duration::from_secs_f64(estimate.clamp(1.0, 60.0).ceil());
        self.status.update(|board| board.retry_after = retry_after);
    }
}
