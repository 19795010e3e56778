//! What one request may ask for.

use clap::Args;

/// Flags that bound requests.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits of a request")]
pub(crate) struct LimitFlags {
    /// Requests in the house at once; more are answered 429.
    #[arg(long, env, default_value_t = 128)]
    pub(crate) max_concurrent_requests: usize,

    /// `best_of` at most on TGI's own routes. On `/v1` routes `n` may be 8, or this if it is more.
    #[arg(long, env, default_value_t = 2)]
    pub(crate) max_best_of: u32,

    /// Stop strings at most on TGI's own routes. On `/v1` routes 16, or this if it is more.
    #[arg(long, env, default_value_t = 4)]
    pub(crate) max_stop_sequences: u32,

    /// `top_n_tokens` at most on TGI's own routes. On `/v1` routes 20 top logprobs, or this if it is more.
    #[arg(long, env, default_value_t = 5)]
    pub(crate) max_top_n_tokens: u32,

    /// Prompt tokens at most. Absent: one less than --max-total-tokens.
    #[arg(long, env)]
    pub(crate) max_input_tokens: Option<u32>,

    /// The old name of --max-input-tokens; giving both is an error.
    #[arg(long, env)]
    pub(crate) max_input_length: Option<u32>,

    /// Prompt and output tokens at most. Absent: what the model and the KV cache allow.
    #[arg(long, env)]
    pub(crate) max_total_tokens: Option<u32>,

    /// Prompts at most in one request: `/v1/completions` takes 64, or this if it is more.
    #[arg(long, env, default_value_t = 4)]
    pub(crate) max_client_batch_size: usize,

    /// Bytes of a request body at most.
    #[arg(long, env, default_value_t = 2_000_000)]
    pub(crate) payload_limit: usize,

    /// `max_tokens` of `/v1/completions` when a request has none (OpenAI: 16). Absent: to the context limit.
    #[arg(long, env)]
    pub(crate) completions_default_max_tokens: Option<u32>,
}
