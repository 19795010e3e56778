//! Batches and the KV cache.

use std::num::NonZeroU32;
use std::str::FromStr;

use crate::byte_size::ByteSize;
use clap::{Args, ValueEnum};
use headrace_control::SchedulePolicy;

/// Flags of the scheduler and its memory.
#[derive(Debug, Args)]
#[command(next_help_heading = "Batching and memory")]
pub(crate) struct BatchingFlags {
    /// Tokens computed in one step at most: one for each running sequence that is past its prompt, and pieces of prompts
    /// in what is left. A longer prompt takes several steps. Absent: 512 on the CPU, 4096 on CUDA.
    #[arg(long, env)]
    pub(crate) max_batch_prefill_tokens: Option<u32>,

    /// Tokens of the KV cache that are used at most, rounded up to whole blocks: all running sequences together, and
    /// what is kept of others gives way to them. A request may not be longer. Absent, and at most: what the KV cache
    /// holds (--kv-cache-memory says how much memory that takes).
    #[arg(long, env)]
    pub(crate) max_batch_total_tokens: Option<u32>,

    /// Sequences that run at once at most; each prompt of a request and each of its choices is one. Others wait.
    /// Absent: 64 on the CPU, 256 on CUDA.
    #[arg(long, env)]
    pub(crate) max_batch_size: Option<u32>,

    /// Prompt tokens that wait at most, of all requests together; more are answered 429. Absent: 16777216.
    #[arg(long, env)]
    pub(crate) max_queued_tokens: Option<u64>,

    /// Which waiting request of a priority class is next.
    #[arg(long, env, value_enum, default_value_t = Policy::Fcfs)]
    pub(crate) schedule_policy: Policy,

    /// What long prompts may do to running streams. `auto`: all share the time of a step, so beside many streams a
    /// prompt makes their pauses about 1.4 times as long. Milliseconds: a step takes only as many prompt tokens as fit
    /// into this time, but at least a few. `off`: a step is filled up to --max-batch-prefill-tokens, prompts are done
    /// soonest and streams freeze meanwhile.
    #[arg(
        long,
        env,
        default_value = "auto",
        value_name = "auto|off|MILLISECONDS"
    )]
    pub(crate) target_itl_ms: InterTokenTarget,

    /// Memory of a worker's KV cache: bytes, or with a unit (`4GiB`, `500MB`); refused if the workers together have not
    /// that much, or if it holds less than one block or than --max-total-tokens and --max-input-tokens promise to a
    /// request. Absent: measured.
    #[arg(long, env)]
    pub(crate) kv_cache_memory: Option<ByteSize>,

    /// Tokens of a KV block; on the CPU a multiple of 8.
    #[arg(long, env = "HEADRACE_BLOCK_SIZE", default_value_t = 16,
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) block_size: u32,

    /// Compute every prompt anew, for measurements. TGI's PREFIX_CACHING=0 does the same.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) disable_prefix_caching: bool,

    /// Fill fresh KV blocks with NaN, for tests.
    #[arg(long, env, hide = true, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) poison_fresh_blocks: bool,

    /// Threads that tokenise prompts.
    #[arg(long, env, default_value_t = 2)]
    pub(crate) validation_workers: usize,
}

/// What bounds the time of a step in which streams run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InterTokenTarget {
    Auto,
    Off,
    Milliseconds(NonZeroU32),
}

impl FromStr for InterTokenTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" | "0" => Ok(Self::Off),
            _ => match text.parse() {
                Ok(milliseconds) => Ok(Self::Milliseconds(milliseconds)),
                Err(_) => Err("`auto`, `off` or whole milliseconds".to_owned()),
            },
        }
    }
}

impl InterTokenTarget {
    /// As the router takes it: absent by itself, 0 for none.
    pub(crate) fn milliseconds(self) -> Option<u32> {
        match self {
            Self::Auto => None,
            Self::Off => Some(0),
            Self::Milliseconds(milliseconds) => Some(milliseconds.get()),
        }
    }
}

/// Orders of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// That of the API key that had least so far, the oldest first.
    Fcfs,
    /// The one with the longest cached prefix, which may pass an older one a few times.
    Lpm,
}

impl From<Policy> for SchedulePolicy {
    fn from(policy: Policy) -> Self {
        match policy {
            Policy::Fcfs => Self::Fcfs,
            Policy::Lpm => Self::Lpm,
        }
    }
}
