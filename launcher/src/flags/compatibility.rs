//! TGI's flags that do nothing here, so that command lines written for it go on working.

use clap::Args;
use std::path::PathBuf;

/// Accepted. Those that could be mistaken for working say at start that they have no effect.
#[derive(Debug, Args)]
#[command(next_help_heading = "Accepted for TGI's sake")]
pub(crate) struct CompatibilityFlags {
    /// No effect: decodes always run first and prompts are computed in pieces, so nothing waits for a batch.
    #[arg(long, env, default_value_t = 20)]
    pub(crate) max_waiting_tokens: u32,

    /// No effect, for the same reason.
    #[arg(long, env, default_value_t = 0.3)]
    pub(crate) waiting_served_ratio: f32,

    /// No effect: prompt logprobs (`decoder_input_details`) are always there.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) enable_prefill_logprobs: bool,

    /// No effect: nothing is ever sent.
    #[arg(long, env, default_value = "off", value_parser = ["on", "off", "no-stack"])]
    pub(crate) usage_stats: String,

    /// No effect yet, and says so: no CUDA graphs.
    #[arg(long, env)]
    pub(crate) cuda_graphs: Option<String>,

    /// No effect, and says so: kernels are chosen for the machine.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) disable_custom_kernels: bool,

    /// Share of a GPU's memory. No effect on the CPU, and says so; on CUDA a value other than 1 is refused (use
    /// --kv-cache-memory).
    #[arg(long, env, default_value_t = 1.0)]
    pub(crate) cuda_memory_fraction: f32,

    /// No effect, and says so: the workers' sockets are in a private directory.
    #[arg(long, env)]
    pub(crate) shard_uds_path: Option<PathBuf>,

    /// No effect, and says so: all workers are on this machine and meet in a private directory.
    #[arg(long, env)]
    pub(crate) master_addr: Option<String>,

    /// No effect, and says so, like --master-addr.
    #[arg(long, env)]
    pub(crate) master_port: Option<u16>,

    /// No effect yet, and says so: traces are not exported.
    #[arg(long, env)]
    pub(crate) otlp_endpoint: Option<String>,

    /// No effect yet, and says so, like --otlp-endpoint.
    #[arg(long, env)]
    pub(crate) otlp_service_name: Option<String>,

    /// No effect, and says so: requests with `watermark` are refused.
    #[arg(long, env)]
    pub(crate) watermark_gamma: Option<f32>,

    /// No effect, and says so, like --watermark-gamma.
    #[arg(long, env)]
    pub(crate) watermark_delta: Option<f32>,

    /// No effect, and says so: no tunnel is opened.
    #[arg(long, env, value_parser = clap::builder::BoolishValueParser::new())]
    pub(crate) ngrok: bool,

    /// No effect, and says so, like --ngrok.
    #[arg(long, env, hide_env_values = true)]
    pub(crate) ngrok_authtoken: Option<String>,

    /// No effect, and says so, like --ngrok.
    #[arg(long, env)]
    pub(crate) ngrok_edge: Option<String>,
}
