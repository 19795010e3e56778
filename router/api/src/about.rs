//! What a server says about itself: `/version`, `/load`, `/server_info`, `/model_info`.

use serde::Serialize;
use utoipa::ToSchema;

/// `GET /version` (vLLM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Version {
    /// headrace's.
    pub version: &'static str,
}

/// `GET /load` (vLLM).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServerLoad {
    /// Generation requests in the house: queued, running, and answered to clients that still read.
    pub server_load: usize,
}

/// `GET /model_info` (`SGLang`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ModelInfo {
    /// As given to `--model-id`.
    pub model_path: String,
    /// The same.
    pub tokenizer_path: String,
    /// Always true.
    pub is_generation: bool,
    /// Commit of a hub snapshot, else `default`.
    pub weight_version: String,
    /// Always false.
    pub has_image_understanding: bool,
    /// Always false.
    pub has_audio_understanding: bool,
    /// Of the model's configuration.
    pub model_type: Option<String>,
    /// Of the model's configuration.
    pub architectures: Vec<String>,
    /// Prompt and output tokens at most.
    pub max_model_len: u32,
}

/// `GET /server_info`: what is served, within which limits, and how it is going. No secrets.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ServerInfo {
    /// headrace's.
    pub version: &'static str,
    /// Commit of the build.
    pub sha: Option<&'static str>,
    /// As given to `--model-id`.
    pub model_path: String,
    /// Commit of a hub snapshot.
    pub revision: Option<String>,
    /// What the model computes in.
    pub dtype: String,
    /// What the weights were read from.
    pub weights: ServerWeights,
    /// Flags of the launcher, as they are in force.
    pub flags: ServerFlags,
    /// What follows from flags, model and memory.
    pub limits: ServerLimits,
    /// A group is up and no drain has begun.
    pub ready: bool,
    /// A drain has begun.
    pub draining: bool,
    /// One entry: figures of this moment.
    pub internal_states: Vec<ServerState>,
}

/// Files of the weights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServerWeights {
    /// `safetensors` or `gguf`.
    pub format: &'static str,
    /// Their names without folders, in shard order; those of GGUF files mostly tell the quantisation.
    pub files: Vec<String>,
}

/// Flags without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches that people set one by one"
)]
pub struct ServerFlags {
    /// Requests in the house at once.
    pub max_concurrent_requests: usize,
    /// `best_of` and `n` at most, native routes.
    pub max_best_of: u32,
    /// Stop strings at most, native routes.
    pub max_stop_sequences: u32,
    /// `top_n_tokens` at most.
    pub max_top_n_tokens: u32,
    /// Prompts in one request at most.
    pub max_client_batch_size: usize,
    /// Bytes of a body at most.
    pub payload_limit: usize,
    /// `fcfs` or `lpm`.
    pub schedule_policy: &'static str,
    /// `auto`, `off`, or the time of a step in milliseconds to aim at.
    pub target_itl_ms: TargetItl,
    /// Seconds that a stream may stay unread.
    pub stall_timeout: u64,
    /// Grammars are refused.
    pub disable_grammar_support: bool,
    /// Schema keywords that cannot be enforced are ignored.
    pub lenient_grammar: bool,
    /// Unknown model names are 404.
    pub strict_model_name: bool,
    /// The prefix cache is on.
    pub prefix_caching: bool,
    /// Keys are set.
    pub has_api_keys: bool,
}

/// `--target-itl-ms` as it is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum TargetItl {
    /// `auto` or `off`.
    Word(&'static str),
    /// Milliseconds.
    Milliseconds(u32),
}

/// Limits in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServerLimits {
    /// Prompt and output tokens of a sequence at most.
    pub max_model_len: u32,
    /// Prompt tokens at most.
    pub max_input_tokens: u32,
    /// Every token id is below it.
    pub vocab_size: u32,
    /// Sequences that run at once at most.
    pub max_batch_size: u32,
    /// Tokens computed in a step at most.
    pub max_batch_prefill_tokens: u32,
    /// Tokens that the KV cache holds.
    pub max_batch_total_tokens: u64,
    /// Tokens a KV block.
    pub block_size: u32,
}

/// Figures of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ServerState {
    /// Generation requests in the house.
    pub server_load: usize,
    /// Sequences that run.
    pub running: u64,
    /// Sequences that wait.
    pub waiting: u64,
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
    /// All of them.
    pub total_blocks: u64,
    /// Steps answered since the start.
    pub steps_completed: u64,
    /// Preemptions since the start.
    pub preemptions: u64,
}
