//! How things stand, for routes, metrics and the launcher.

use super::{EngineCore, GROUP};
use crate::engine::status::EngineStats;
use headrace_control::ToLauncher;
use std::time::Duration;

/// A refused client stays away for so long at most: some clients give up above it.
const LONGEST_RETRY: u64 = 120;

/// While nothing is known of how fast the queue drains.
const UNKNOWN_RETRY: Duration = Duration::from_secs(5);

impl EngineCore {
    pub(super) fn publish(&mut self) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let stats = scheduler.stats();
        if stats.running == 0 && stats.steps_in_flight == 0 {
            self.metrics.idle();
        }
        let retry_after = retry_after(stats.waiting_tokens, stats.drained_tokens_per_second);
        let stats = EngineStats {
            waiting: stats.waiting as u64,
            running: stats.running as u64,
            paused: self.streams.paused() as u64,
            waiting_tokens: stats.waiting_tokens,
            free_blocks: stats.free_blocks as u64,
            owned_blocks: stats.owned_blocks as u64,
            cached_blocks: stats.cached_blocks as u64,
            total_blocks: stats.total_blocks as u64,
            preemptions: stats.preemptions,
            skipped_ahead: stats.skipped_ahead,
            deferrals: stats.deferrals,
            deadlines_exceeded: stats.deadlines_exceeded,
            suspects: stats.suspects as u64,
            isolations: stats.isolations,
            prefix_query_tokens: stats.prefix_query_tokens,
            prefix_hit_tokens: stats.prefix_hit_tokens,
            recomputed_tokens: stats.recomputed_tokens,
            prefill_share: stats.prefill_share.map(|tokens| tokens as u64),
            steps_in_flight: stats.steps_in_flight as u64,
            steps_completed: self.steps_completed,
            open_streams: self.streams.len() as u64,
            drained_tokens_per_second: stats.drained_tokens_per_second,
        };
        self.status.update(|board| {
            board.stats = stats;
            board.retry_after = retry_after;
        });
        self.report_isolation(stats.suspects);
    }

    /// The launcher does not count restarts while it is being found out which sequence kills the workers.
    pub(super) fn report_isolation(&mut self, suspects: u64) {
        let isolates = suspects > 0;
        if isolates != self.isolates {
            self.isolates = isolates;
            self.send(ToLauncher::Isolation {
                group: GROUP.0,
                suspects: u32::try_from(suspects).unwrap_or(u32::MAX),
            });
        }
    }
}

/// When the queue is through, at the rate of late.
fn retry_after(waiting_tokens: u64, drained_per_second: u64) -> Duration {
    if waiting_tokens == 0 {
        return Duration::from_secs(1);
    }
    match waiting_tokens.checked_div(drained_per_second) {
        Some(seconds) => Duration::from_secs(seconds.clamp(1, LONGEST_RETRY)),
        None => UNKNOWN_RETRY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_stay_away_until_the_queue_is_through() {
        let seconds = |waiting, rate| retry_after(waiting, rate).as_secs();
        assert_eq!(seconds(0, 0), 1);
        assert_eq!(seconds(0, 100), 1);
        assert_eq!(seconds(50, 100), 1);
        assert_eq!(seconds(1000, 100), 10);
        assert_eq!(seconds(1_000_000, 1), 120);
        assert_eq!(seconds(1000, 0), 5);
    }
}
