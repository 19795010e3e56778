//! What the engine says about itself to routes, health and metrics.

use headrace_control::Progress;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Without a sign of life from the engine task for this long, it counts as stuck. It writes one every second
/// even when idle.
const ENGINE_WATCHDOG: Duration = Duration::from_secs(10);

/// Counts of the scheduler, as of its last change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineStats {
    /// Sequences in the queue.
    pub waiting: u64,
    /// Sequences in slots.
    pub running: u64,
    /// Sequences that wait for their readers.
    pub paused: u64,
    /// Tokens to compute for the waiting sequences.
    pub waiting_tokens: u64,
    /// KV blocks that hold nothing.
    pub free_blocks: u64,
    /// KV blocks of running sequences.
    pub owned_blocks: u64,
    /// KV blocks that only the prefix cache keeps.
    pub cached_blocks: u64,
    /// KV blocks of the group; 0 while none is up.
    pub total_blocks: u64,
    /// Sequences moved back to the queue for want of blocks, since the start.
    pub preemptions: u64,
    /// Sequences admitted before one in front of them that did not fit, since the start.
    pub skipped_ahead: u64,
    /// Sequences that waited for blocks which another was computing, since the start.
    pub deferrals: u64,
    /// Sequences whose deadline passed while they waited, since the start.
    pub deadlines_exceeded: u64,
    /// Sequences that may have killed the workers; 0: none is looked for.
    pub suspects: u64,
    /// Times that sequences were isolated after the workers died, since the start.
    pub isolations: u64,
    /// Prompt tokens looked up in the prefix cache, since the start.
    pub prefix_query_tokens: u64,
    /// Of those, found.
    pub prefix_hit_tokens: u64,
    /// Tokens computed a second time after a preemption, since the start.
    pub recomputed_tokens: u64,
    /// Most prefill tokens beside decoding rows in a step, by the target for its time; absent without one.
    pub prefill_share: Option<u64>,
    /// Steps sent and not answered.
    pub steps_in_flight: u64,
    /// Steps answered, since the start.
    pub steps_completed: u64,
    /// Sequences whose end has not been told yet.
    pub open_streams: u64,
    /// Ids that leave the queue in a second, of late; 0 while that is unknown.
    pub drained_tokens_per_second: u64,
}

/// What one sequence of the served model may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Prompt and output tokens at most: the smallest of the flag, the model's context and the pool.
    pub max_total_tokens: u32,
    /// Every id is below it.
    pub vocab_size: u32,
    /// Sequences that run at the same time at most.
    pub max_sequences: u32,
    /// Tokens computed in one step at most.
    pub max_batch_tokens: u32,
    /// Tokens that all KV blocks hold.
    pub pool_tokens: u64,
    /// Tokens a KV block.
    pub block_size: u32,
    /// The workers compute on GPUs.
    pub is_cuda: bool,
}

/// What `/health` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthVerdict {
    /// No worker group has been ready yet, and no router before this one was: 503.
    Starting,
    /// 200, through restarts and drain.
    Healthy,
    /// The engine task is stuck, or the restarts are spent: 503, with the cause for the log.
    Unhealthy(String),
}

/// A snapshot; cheap to make.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// A group is up, the services are built and no drain has begun.
    pub ready: bool,
    /// A group has been ready once.
    pub was_ready: bool,
    /// A drain has begun.
    pub draining: bool,
    /// What `/health` says.
    pub health: HealthVerdict,
    /// Last stage of a start, while there is one.
    pub progress: Option<Progress>,
    /// Why the last group went down; `None` while one is up.
    pub down_cause: Option<String>,
    /// The scheduler's counts.
    pub stats: EngineStats,
    /// Known once a group has been ready.
    pub limits: Option<ModelLimits>,
}

/// The part that the engine task writes and others read.
#[derive(Debug)]
pub(crate) struct SharedStatus {
    origin: Instant,
    /// Milliseconds after `origin` of the engine task's last sign of life.
    alive_ms: AtomicU64,
    /// Clients told to come back later.
    refusals: AtomicU64,
    board: Mutex<Board>,
}

/// What is written together.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "what has happened so far, each on its own"
)]
pub(crate) struct Board {
    pub(crate) group_up: bool,
    /// A group was up and requests could be validated.
    pub(crate) was_ready: bool,
    /// A router before this one was ready.
    pub(crate) is_successor: bool,
    pub(crate) draining: bool,
    /// Restarts are spent, or the engine task has ended.
    pub(crate) final_cause: Option<String>,
    pub(crate) progress: Option<Progress>,
    pub(crate) down_cause: Option<String>,
    pub(crate) stats: EngineStats,
    pub(crate) limits: Option<ModelLimits>,
    pub(crate) retry_after: Duration,
}

impl SharedStatus {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            alive_ms: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            board: Mutex::new(Board {
                retry_after: Duration::from_secs(1),
                ..Board::default()
            }),
        }
    }

    /// Where the scheduler's time begins.
    pub(crate) fn origin(&self) -> Instant {
        self.origin
    }

    /// The engine task says that it lives.
    pub(crate) fn beat(&self) {
        self.alive_ms.store(self.elapsed_ms(), Ordering::Relaxed);
    }

    /// Changes what is shown. Held for nanoseconds only.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Board)) {
        change(&mut self.lock());
    }

    /// For one refused client, in whole seconds. Spread by up to a quarter, so that those who were refused together do
    /// not come back together; the n-th refusal always has the same place in that spread.
    pub(crate) fn retry_after(&self) -> Duration {
        let refusal = self.refusals.fetch_add(1, Ordering::Relaxed);
        spread(self.lock().retry_after, refusal)
    }

    pub(crate) fn limits(&self) -> Option<ModelLimits> {
        self.lock().limits
    }

    /// With the watchdog on the engine's own thread.
    pub(crate) fn snapshot(&self) -> EngineStatus {
        let silent = self
            .elapsed_ms()
            .saturating_sub(self.alive_ms.load(Ordering::Relaxed));
        self.snapshot_after(silent)
    }

    /// As it is when the engine's last sign of life was `silent` milliseconds ago.
    pub(crate) fn snapshot_after(&self, silent: u64) -> EngineStatus {
        let board = self.lock().clone();
        let health = if let Some(cause) = board.final_cause {
            HealthVerdict::Unhealthy(cause)
        } else if Duration::from_millis(silent) > ENGINE_WATCHDOG {
            HealthVerdict::Unhealthy(format!("the engine task has been silent for {silent} ms"))
        } else if board.was_ready || board.is_successor {
            HealthVerdict::Healthy
        } else {
            HealthVerdict::Starting
        };
        EngineStatus {
            ready: board.group_up && board.was_ready && !board.draining,
            was_ready: board.was_ready,
            draining: board.draining,
            health,
            progress: board.progress,
            down_cause: board.down_cause,
            stats: board.stats,
            limits: board.limits,
        }
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Board> {
        // Written whole under the lock by code that does not panic; a poisoned board is still a true one.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A refused client is told 1 to 120 seconds.
const LONGEST_RETRY: u64 = 120;

/// A whole number of seconds from `wait` to a quarter more; below the bound, if that would be above it.
fn spread(wait: Duration, refusal: u64) -> Duration {
    let wait = wait.as_secs().clamp(1, LONGEST_RETRY);
    let quarter = wait.div_ceil(4);
    let low = wait.min(LONGEST_RETRY - quarter);
    // Multiples of the golden ratio fill the span evenly, whatever number of them is looked at.
    let place = refusal.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    Duration::from_secs(low + ((place * (quarter + 1)) >> 32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{health, ready};
    use std::collections::BTreeMap;

    #[test]
    fn clients_refused_together_come_back_apart() {
        for (wait, from, to) in [
            (0, 1, 2),
            (1, 1, 2),
            (40, 40, 50),
            (120, 90, 120),
            (900, 90, 120),
        ] {
            let mut seen = BTreeMap::new();
            for refusal in 0..3100 {
                let told = spread(Duration::from_secs(wait), refusal);
                assert_eq!(told.subsec_nanos(), 0);
                *seen.entry(told.as_secs()).or_insert(0u32) += 1;
            }
            let (first, last) = (seen.keys().next().copied(), seen.keys().last().copied());
            assert_eq!((first, last), (Some(from), Some(to)), "{wait} s");
            let even = 3100 / u32::try_from(seen.len()).unwrap();
            assert!(
                seen.values().all(|count| count.abs_diff(even) <= even / 4),
                "{seen:?}"
            );
        }
    }

    /// (`/health`, `/ready`) when the engine has been silent for so long.
    fn probes(status: &SharedStatus, silent: u64) -> (u16, u16) {
        let status = status.snapshot_after(silent);
        (health(&status).status, ready(&status).status)
    }

    #[test]
    fn a_stuck_engine_is_unhealthy_until_it_beats_again() {
        let status = SharedStatus::new();
        assert_eq!(probes(&status, 0), (503, 503), "never ready");
        status.update(|board| {
            board.was_ready = true;
            board.group_up = true;
        });
        assert_eq!(probes(&status, 10_000), (200, 200));
        let stuck = status.snapshot_after(10_001);
        assert_eq!(
            stuck.health,
            HealthVerdict::Unhealthy("the engine task has been silent for 10001 ms".to_owned())
        );
        assert_eq!(health(&stuck).status, 503);
        assert_eq!(probes(&status, 3), (200, 200));
        status.update(|board| board.draining = true);
        assert_eq!(probes(&status, 0), (200, 503));
        status.update(|board| {
            board.draining = false;
            board.group_up = false;
        });
        assert_eq!(probes(&status, 0), (200, 503), "restarting");
        status.update(|board| board.final_cause = Some("spent".to_owned()));
        assert_eq!(probes(&status, 0), (503, 503));
    }
}
