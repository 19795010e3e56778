//! The control socket between `launcher` and `router`: JSON lines over an inherited socket pair.
//!
//! The launcher starts the router first, before any download, and passes it one end (its file descriptor
//! number in the environment variable [`CONTROL_FD_VARIABLE`]). Each side ends when the pair closes.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Environment variable with the file descriptor of the router's end.
pub const CONTROL_FD_VARIABLE: &str = "HEADRACE_CONTROL_FD";

/// Launcher to router.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToRouter {
    /// How to serve. Sent first, before any download.
    Configure(Box<RouterConfig>),
    /// This router takes the place of one that was ready and died: `/health` is 200 from the start, for a probe that ends
    /// the whole server would cost more than the restart. Sent after `Configure`.
    Successor,
    /// What is served. Sent once, after downloads and header checks.
    Model(Box<ModelDocument>),
    /// The workers of a group listen. One address a rank, in rank order: `unix:///path`.
    GroupUp {
        /// Which group.
        group: u32,
        /// Grows with every start of the group.
        epoch: u64,
        /// URIs.
        addresses: Vec<String>,
    },
    /// A group is gone; its unfinished sequences go back to the queue.
    GroupDown {
        /// Which group.
        group: u32,
        /// For the log and for `/health`.
        cause: String,
        /// No more restarts: `/health` turns 503.
        is_final: bool,
    },
    /// What the launcher is doing, for `/ready`'s 503 body and the log.
    Progress(Progress),
    /// Stop admitting, finish within the grace time, exit 0.
    Drain {
        /// Seconds.
        grace_seconds: u64,
    },
}

/// Router to launcher.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToLauncher {
    /// The port is bound.
    Listening {
        /// `127.0.0.1:3000`.
        address: String,
    },
    /// A group answered `Prepare`: requests are served, or served again.
    Ready {
        /// For the closing lines on the terminal.
        summary: ReadySummary,
    },
    /// Weights, KV cache, warm-up.
    Progress(Progress),
    /// A group answered its first step of this epoch: its restarts so far no longer count against the limit.
    StepCompleted {
        /// Which group.
        group: u32,
        /// Which start of it.
        epoch: u64,
    },
    /// The group must be torn down and started again (broken stream, watchdog, failed prepare).
    KillGroup {
        /// Which group.
        group: u32,
        /// Which start of it.
        epoch: u64,
        /// Why.
        reason: String,
    },
    /// The workers died with the same sequences in their steps again and again: which one it is, is being found out.
    /// Meanwhile restarts do not count against the limit; the search has a bound of its own.
    Isolation {
        /// Which group.
        group: u32,
        /// Sequences under suspicion; 0: the search is over.
        suspects: u32,
    },
    /// Something ended that a restart may or may not mend.
    Failed {
        /// One line that names the file, key, flag or port.
        cause: String,
        /// `true`: the launcher ends with this line and does not restart. `false`: the router ends now, and the launcher
        /// starts the next one.
        is_final: bool,
    },
    /// An operator asked for a drain over HTTP. The launcher does as on SIGTERM: it answers with [`ToRouter::Drain`].
    DrainRequested,
    /// The drain is over; the router exits now.
    Drained,
}

/// One stage of a long start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// `download`, `weights`, `kv cache`, `warm-up`.
    pub stage: String,
    /// How far.
    pub done: u64,
    /// Of how much; 0: not known.
    pub total: u64,
    /// `bytes`, `steps`, `files`.
    pub unit: String,
}

/// What came up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ReadySummary {
    /// KV blocks of the group.
    pub num_blocks: u32,
    /// Tokens a block.
    pub block_size: u32,
    /// Longest sequence.
    pub max_total_tokens: u32,
    /// `native-avx512`, `torch` …
    pub kernel_set: String,
    /// `cpu`, `cuda:0`.
    pub device: String,
}

/// The model as the launcher resolved it. Paths, not contents; config in Hugging Face's keys whatever the
/// file format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelDocument {
    /// As given to `--model-id`.
    pub model_id: String,
    /// Commit of a hub snapshot.
    pub revision: Option<String>,
    /// `pipeline_tag` of the hub, when known.
    pub pipeline_tag: Option<String>,
    /// Where the tensors are.
    pub weights: Weights,
    /// `config.json`, or the same keys made from GGUF metadata.
    pub config: serde_json::Value,
    /// Where ids and text come from.
    pub tokenizer: TokenizerSource,
    /// `tokenizer_config.json`, when there is one (special tokens, chat template).
    pub tokenizer_config: Option<PathBuf>,
    /// A template file (`chat_template.jinja`, `chat_template.json`, or from `--tokenizer-config-path`).
    pub chat_template: Option<PathBuf>,
    /// `generation_config.json`.
    pub generation_config: Option<PathBuf>,
    /// `float32`, `bfloat16`, `float16`: what workers compute in.
    pub dtype: String,
    /// The model's own context length.
    pub max_position_embeddings: u32,
    /// Rows of the output projection, from the header of the weights.
    pub vocab_size: u32,
}

/// Weight files, in shard order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "format", rename_all = "snake_case")]
pub enum Weights {
    /// `*.safetensors`.
    Safetensors {
        /// Every shard.
        files: Vec<PathBuf>,
    },
    /// `*.gguf`, split ones in order.
    Gguf {
        /// Every part.
        files: Vec<PathBuf>,
    },
}

/// What the tokenizer is built from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TokenizerSource {
    /// `tokenizer.json`.
    TokenizerJson {
        /// The file.
        path: PathBuf,
    },
    /// GGUF metadata; the template is in there too.
    Gguf {
        /// The first part.
        path: PathBuf,
    },
}

/// What the router needs of the launcher's flags. Keys travel here and never on a command line.
#[derive(Clone, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that people set one by one"
)]
pub struct RouterConfig {
    /// Address to bind.
    pub hostname: String,
    /// Port to bind; 0 takes a free one.
    pub port: u16,
    /// A second listener for `/metrics` alone.
    pub prometheus_port: Option<u16>,
    /// Requests in the house at once; more are 429.
    pub max_concurrent_requests: usize,
    /// `best_of` and `n` at most, native routes.
    pub max_best_of: u32,
    /// Stop strings at most, native routes.
    pub max_stop_sequences: u32,
    /// `top_n_tokens` at most.
    pub max_top_n_tokens: u32,
    /// Prompt tokens at most; absent: `max_total_tokens - 1`.
    pub max_input_tokens: Option<u32>,
    /// Prompt and output tokens at most; absent: what model and pool allow.
    pub max_total_tokens: Option<u32>,
    /// Tokens computed in one step at most; absent: 512 on the CPU.
    pub max_batch_prefill_tokens: Option<u32>,
    /// Cap on tokens of all running sequences.
    pub max_batch_total_tokens: Option<u32>,
    /// Running sequences at most; absent: 64 on the CPU.
    pub max_batch_size: Option<u32>,
    /// Prompt tokens that may wait at most; absent: 16 Mi.
    pub max_queued_tokens: Option<u64>,
    /// The order within a class.
    pub schedule_policy: SchedulePolicy,
    /// How long a step may take at most while sequences decode; 0: only the token budget bounds it. Absent: by what
    /// decoding takes.
    pub target_itl_ms: Option<u32>,
    /// How long a client may leave its stream unread before it is dropped.
    pub stall_timeout_seconds: u64,
    /// Prompts in one `/v1/completions` request at most.
    pub max_client_batch_size: usize,
    /// Threads that tokenise.
    pub validation_workers: usize,
    /// Bytes of a request body at most.
    pub payload_limit: usize,
    /// Any of these opens the guarded routes; empty: no key is asked for. Keys and names are unique; a name is 1 to 64 of
    /// `[A-Za-z0-9._-]` and never `admin`.
    pub api_keys: Vec<ApiKey>,
    /// Opens the control routes, and the others; absent: there are no control routes.
    pub admin_key: Option<String>,
    /// Origins; empty: any.
    pub cors_allow_origin: Vec<String>,
    /// `grammar` is refused for good.
    pub disable_grammar_support: bool,
    /// Schema keywords that cannot be enforced are ignored, where else they are refused by name.
    pub lenient_grammar: bool,
    /// Unknown model names are 404.
    pub strict_model_name: bool,
    /// `/info` and `/metrics` want a key too, where keys are set.
    pub guard_info_and_metrics: bool,
    /// `max_tokens` of `/v1/completions` when absent; absent here: to the context limit.
    pub completions_default_max_tokens: Option<u32>,
    /// KV cache bytes a rank; absent: measured.
    pub kv_cache_bytes: Option<u64>,
    /// Tokens a KV block.
    pub block_size: u32,
    /// Off only for measurements.
    pub prefix_caching: bool,
    /// Fill fresh blocks with NaN (tests).
    pub poison_fresh_blocks: bool,
    /// `trace` … `error`.
    pub log_level: String,
    /// For the `x-compute-type` header.
    pub compute_type: String,
    /// The launcher's version, commit and container label for `/info`.
    pub docker_label: Option<String>,
    /// Vertex AI's own path for predictions.
    pub aip_predict_route: Option<String>,
    /// And for health.
    pub aip_health_route: Option<String>,
}

/// A key that opens the guarded routes, and what it stands for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// Whose it is, for fairness, logs and metrics; unique.
    pub name: String,
    /// The secret.
    pub key: String,
    /// Class of its requests that name none, -100 to 100: lower ones run first.
    pub priority: i32,
}

impl std::fmt::Debug for ApiKey {
    // The key is a secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ApiKey")
            .field("name", &self.name)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// Which waiting request of a class is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SchedulePolicy {
    /// The key that had least, and its oldest request.
    #[default]
    Fcfs,
    /// The longest cached prefix.
    Lpm,
}

impl std::fmt::Debug for RouterConfig {
    // Keys are secrets: how many there are is all that a log may show.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RouterConfig")
            .field("hostname", &self.hostname)
            .field("port", &self.port)
            .field("api_keys", &self.api_keys.len())
            .finish_non_exhaustive()
    }
}
