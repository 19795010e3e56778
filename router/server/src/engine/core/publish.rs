//! How things stand, for routes and metrics.

use super::EngineCore;
use crate::engine::status::EngineStats;

impl EngineCore {
    pub(super) fn publish(&mut self) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let stats = scheduler.stats();
        if stats.running == 0 && stats.steps_in_flight == 0 {
            self.metrics.idle();
        }
        let stats = EngineStats {
            waiting: stats.waiting as u64,
            running: stats.running as u64,
            waiting_tokens: stats.waiting_tokens,
            free_blocks: stats.free_blocks as u64,
            owned_blocks: stats.owned_blocks as u64,
            cached_blocks: stats.cached_blocks as u64,
            total_blocks: stats.total_blocks as u64,
            preemptions: stats.preemptions,
            prefix_query_tokens: stats.prefix_query_tokens,
            prefix_hit_tokens: stats.prefix_hit_tokens,
            recomputed_tokens: stats.recomputed_tokens,
            steps_in_flight: stats.steps_in_flight as u64,
            steps_completed: self.steps_completed,
            open_streams: self.streams.len() as u64,
            paused: stats.paused as u64,
            drained_tokens_per_second: stats.drained_tokens_per_second,
            prefill_share: stats.prefill_share.map(|tokens| tokens as u64),
            skipped_ahead: stats.skipped_ahead,
            deferrals: stats.deferrals,
            deadlines_exceeded: stats.deadlines_exceeded,
        };
        self.status.update(|board| board.stats = stats);
    }
}
