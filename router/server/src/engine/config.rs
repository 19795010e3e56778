//! What the engine is told at start.

use headrace_control::{RouterConfig, SchedulePolicy};
use headrace_dialect::bounds::{Bounds, Flags};
use headrace_dialect::refusal::Dialect;
use headrace_scheduler::{PolicyConfig, QueueOrder, SchedulerConfig, StepPace};
use std::time::Duration;

/// Tokens computed in one step unless told otherwise: a CPU's answer to "how long may decoding rows wait".
const DEFAULT_BATCH_TOKENS: u32 = 512;

/// Sequences that run at the same time unless told otherwise.
const DEFAULT_SEQUENCES: u32 = 64;

/// Prompt tokens that may wait: 64 MiB of ids.
const MAX_WAITING_TOKENS: u64 = 16 << 20;

/// Sequences that may wait, whatever the number of requests: some hundred MiB of state. One request in bounds goes
/// before it.
const MAX_WAITING_SEQUENCES: usize = 1 << 18;

/// Limits and times, from the launcher's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// Tokens a KV block.
    pub block_size: u32,
    /// Most tokens computed in one step.
    pub max_batch_tokens: u32,
    /// Slots.
    pub max_sequences: u32,
    /// The flag's bound on prompt and output.
    pub max_total_tokens: Option<u32>,
    /// The flag's bound on the prompt.
    pub max_input_tokens: Option<u32>,
    /// KV blocks to use at most.
    pub max_blocks: Option<u32>,
    /// KV cache bytes a rank; absent: measured.
    pub kv_cache_bytes: Option<u64>,
    /// Fill fresh blocks with NaN.
    pub poison_fresh_blocks: bool,
    /// Off only for measurements.
    pub prefix_caching: bool,
    /// Sequences that may wait.
    pub max_waiting_sequences: usize,
    /// Prompt tokens that may wait.
    pub max_waiting_tokens: u64,
    /// Steps sent before the first has answered, if the workers can.
    pub max_steps_in_flight: u32,
    /// The rules of the queue.
    pub policy: PolicyConfig,
    /// How long a paused sequence waits for a reader that reads nothing.
    pub stall_timeout: Duration,
    /// When a group counts as hung.
    pub watchdog: Watchdog,
}

/// When a group counts as hung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// Without any message from one rank. Heartbeats come once a second from a side thread, so a long step does not
    /// trip this; a stopped process does.
    pub silence: Duration,
    /// For one step, however alive the ranks seem; or twenty times the longest step so far, if that is more. It has
    /// to be longer than the slowest machine's largest prefill.
    pub step: Duration,
    /// Without progress from a start of the group. Loading shows its bytes; this is longer than the largest step, which
    /// shows nothing, takes anywhere.
    pub start_silence: Duration,
    /// How often to look.
    pub period: Duration,
}

impl Default for Watchdog {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(30),
            step: Duration::from_mins(10),
            start_silence: Duration::from_mins(10),
            period: Duration::from_secs(1),
        }
    }
}

impl Watchdog {
    /// The bound on one step when the longest so far took `longest`.
    pub(super) fn step_limit(&self, longest: Duration) -> Duration {
        self.step.max(longest.saturating_mul(20))
    }
}

/// The flags that bound requests.
pub(crate) fn bound_flags(config: &RouterConfig) -> Flags {
    Flags {
        max_best_of: config.max_best_of,
        max_stop_sequences: config.max_stop_sequences,
        max_top_n_tokens: config.max_top_n_tokens,
        max_client_batch_size: config.max_client_batch_size,
    }
}

/// The most sequences that one request in bounds may be: prompts times choices. A queue that holds fewer would refuse it
/// for ever, however idle the server.
fn largest_request(config: &RouterConfig) -> usize {
    let flags = bound_flags(config);
    [Dialect::Native, Dialect::OpenAi]
        .map(|dialect| {
            let bounds = Bounds::of(dialect, flags);
            let choices = usize::try_from(bounds.choices).unwrap_or(usize::MAX);
            bounds.prompts.saturating_mul(choices)
        })
        .into_iter()
        .fold(1, usize::max)
}

fn policy(config: &RouterConfig) -> PolicyConfig {
    PolicyConfig {
        order: match config.schedule_policy {
            SchedulePolicy::Fcfs => QueueOrder::Fcfs,
            SchedulePolicy::Lpm => QueueOrder::Lpm,
        },
        pace: match config.target_itl_ms {
            None => StepPace::Shared,
            Some(0) => StepPace::Unbounded,
            Some(millis) => StepPace::Target(Duration::from_millis(millis.into())),
        },
        ..PolicyConfig::default()
    }
}

impl EngineConfig {
    /// Flags, with defaults for what they leave open.
    pub fn new(config: &RouterConfig) -> Self {
        let largest = largest_request(config);
        let most_sequences = config
            .max_concurrent_requests
            .saturating_mul(largest)
            .min(MAX_WAITING_SEQUENCES)
            .max(largest);
        let block_size = config.block_size.max(1);
        Self {
            block_size,
            max_batch_tokens: config
                .max_batch_prefill_tokens
                .unwrap_or(DEFAULT_BATCH_TOKENS)
                .max(1),
            max_sequences: config.max_batch_size.unwrap_or(DEFAULT_SEQUENCES).max(1),
            max_total_tokens: config.max_total_tokens,
            max_input_tokens: config.max_input_tokens,
            max_blocks: config
                .max_batch_total_tokens
                .map(|tokens| tokens.div_ceil(block_size).max(1)),
            kv_cache_bytes: config.kv_cache_bytes,
            poison_fresh_blocks: config.poison_fresh_blocks,
            prefix_caching: config.prefix_caching,
            max_waiting_sequences: most_sequences,
            max_waiting_tokens: config.max_queued_tokens.unwrap_or(MAX_WAITING_TOKENS),
            max_steps_in_flight: 2,
            policy: policy(config),
            stall_timeout: Duration::from_secs(config.stall_timeout_seconds),
            watchdog: Watchdog::default(),
        }
    }

    /// The longest sequence before the pool is known.
    pub(super) fn longest_sequence(&self, max_position_embeddings: u32) -> u32 {
        self.max_total_tokens
            .map_or(max_position_embeddings, |most| {
                most.min(max_position_embeddings)
            })
            .max(2)
    }

    pub(super) fn scheduler(&self, max_position_embeddings: u32) -> SchedulerConfig {
        SchedulerConfig {
            block_size: self.block_size,
            max_batch_tokens: self.max_batch_tokens,
            max_sequences: self.max_sequences,
            max_total_tokens: self.longest_sequence(max_position_embeddings),
            prefix_caching: self.prefix_caching,
            max_waiting_sequences: self.max_waiting_sequences,
            max_waiting_tokens: self.max_waiting_tokens,
            max_steps_in_flight: self.max_steps_in_flight,
            policy: self.policy.clone(),
        }
    }
}
