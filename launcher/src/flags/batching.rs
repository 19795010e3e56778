//! Batches and the KV cache.

use crate::byte_size::ByteSize;
use clap::Args;

/// Flags of the scheduler and its memory.
#[derive(Debug, Args)]
#[command(next_help_heading = "Batching and memory")]
pub(crate) struct BatchingFlags {
    /// Tokens computed in one step at most; long prompts are computed in pieces. Absent: 512 on the CPU, 4096 on CUDA.
    #[arg(long, env)]
    pub(crate) max_batch_prefill_tokens: Option<u32>,

    /// Tokens of all running requests together at most, rounded up to whole KV blocks. Absent: what the KV cache holds.
    #[arg(long, env)]
    pub(crate) max_batch_total_tokens: Option<u32>,

    /// Running requests at most. Absent: 64 on the CPU, 256 on CUDA.
    #[arg(long, env)]
    pub(crate) max_batch_size: Option<u32>,

    /// Memory of a worker's KV cache: bytes, or with a unit (`4GiB`, `500MB`); refused if the workers together have not
    /// that much. Absent: measured.
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
