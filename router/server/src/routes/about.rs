//! What the server says about itself in vLLM's and `SGLang`'s shapes.

use super::reply;
use crate::app::AppState;
use axum::extract::State;
use axum::response::Response;
use headrace_api::about::{
    ModelInfo, ServerFlags, ServerInfo, ServerLimits, ServerLoad, ServerState, ServerWeights,
    TargetItl, Version,
};
use headrace_api::tokenize::TokenizerInfo;
use headrace_control::{SchedulePolicy, Weights};
use headrace_dialect::refusal::{Dialect, Refusal};
use serde_json::Value;
use std::path::PathBuf;

/// The server's version.
#[utoipa::path(
    get, path = "/version", tag = "Server",
    responses((status = 200, description = "The version", body = Version))
)]
pub(crate) async fn version() -> Response {
    reply::json(&Version {
        version: env!("CARGO_PKG_VERSION"),
    })
}

/// Generation requests in the house.
#[utoipa::path(
    get, path = "/load", tag = "Server",
    responses((status = 200, description = "The load", body = ServerLoad))
)]
pub(crate) async fn load(State(state): State<AppState>) -> Response {
    reply::json(&ServerLoad {
        server_load: state.requests_in_house(),
    })
}

/// The tokenizer's configuration: `tokenizer_config.json` with tokens as texts, and the chat template.
#[utoipa::path(
    get, path = "/tokenizer_info", tag = "Tokens",
    responses((status = 200, description = "The configuration", body = TokenizerInfo))
)]
pub(crate) async fn tokenizer_info(State(state): State<AppState>) -> Response {
    answer(&state, |state| Ok(&state.services()?.tokenizer_info))
}

/// The served model.
#[utoipa::path(
    get, path = "/model_info", tag = "Server",
    responses((status = 200, description = "The model", body = ModelInfo))
)]
pub(crate) async fn model_info(State(state): State<AppState>) -> Response {
    answer(&state, |state| {
        let document = &state.services()?.document;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let architectures = document
            .config
            .get("architectures")
            .and_then(Value::as_array);
        Ok(ModelInfo {
            model_path: document.model_id.clone(),
            tokenizer_path: document.model_id.clone(),
            is_generation: true,
            weight_version: document
                .revision
                .clone()
                .unwrap_or_else(|| "default".to_owned()),
            has_image_understanding: false,
            has_audio_understanding: false,
            model_type: document.config.get("model_type").and_then(text),
            architectures: architectures
                .map(|names| names.iter().filter_map(text).collect())
                .unwrap_or_default(),
            max_model_len: state.context_limits()?.max_total_tokens,
        })
    })
}

/// What is served, within which limits, and how it is going.
#[utoipa::path(
    get, path = "/server_info", tag = "Server",
    responses((status = 200, description = "Flags without secrets, limits and figures", body = ServerInfo))
)]
pub(crate) async fn server_info(State(state): State<AppState>) -> Response {
    answer(&state, make_server_info)
}

fn answer<'a, T: serde::Serialize>(
    state: &'a AppState,
    make: impl FnOnce(&'a AppState) -> Result<T, Refusal>,
) -> Response {
    match make(state) {
        Ok(value) => reply::json(&value),
        Err(refusal) => reply::refused(state, Dialect::Native, &refusal),
    }
}

fn make_server_info(state: &AppState) -> Result<ServerInfo, Refusal> {
    let document = &state.services()?.document;
    let context = state.context_limits()?;
    let status = state.engine().status();
    let limits = status.limits.ok_or_else(crate::app::not_ready)?;
    let figures = status.stats;
    Ok(ServerInfo {
        version: env!("CARGO_PKG_VERSION"),
        sha: option_env!("HEADRACE_COMMIT"),
        model_path: document.model_id.clone(),
        revision: document.revision.clone(),
        dtype: document.dtype.clone(),
        weights: weights(&document.weights),
        flags: flags(state),
        limits: ServerLimits {
            max_model_len: context.max_total_tokens,
            max_input_tokens: context.max_input_tokens,
            vocab_size: context.vocab_size,
            max_batch_size: limits.max_sequences,
            max_batch_prefill_tokens: limits.max_batch_tokens,
            max_batch_total_tokens: limits.pool_tokens,
            block_size: limits.block_size,
        },
        ready: status.ready,
        draining: status.draining,
        internal_states: vec![ServerState {
            server_load: state.requests_in_house(),
            running: figures.running,
            waiting: figures.waiting,
            paused: figures.paused,
            waiting_tokens: figures.waiting_tokens,
            free_blocks: figures.free_blocks,
            owned_blocks: figures.owned_blocks,
            cached_blocks: figures.cached_blocks,
            total_blocks: figures.total_blocks,
            steps_completed: figures.steps_completed,
            preemptions: figures.preemptions,
        }],
    })
}

/// Names alone: where a server keeps its files is nobody's business.
fn weights(weights: &Weights) -> ServerWeights {
    let (format, files) = match weights {
        Weights::Safetensors { files } => ("safetensors", files),
        Weights::Gguf { files } => ("gguf", files),
    };
    let name = |file: &PathBuf| {
        let name = file.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    ServerWeights {
        format,
        files: files.iter().map(name).collect(),
    }
}

/// One by one, so that no new flag is shown before somebody has thought of it.
fn flags(state: &AppState) -> ServerFlags {
    let config = state.config();
    ServerFlags {
        max_concurrent_requests: config.max_concurrent_requests,
        max_best_of: config.max_best_of,
        max_stop_sequences: config.max_stop_sequences,
        max_top_n_tokens: config.max_top_n_tokens,
        max_client_batch_size: config.max_client_batch_size,
        payload_limit: config.payload_limit,
        schedule_policy: match config.schedule_policy {
            SchedulePolicy::Fcfs => "fcfs",
            SchedulePolicy::Lpm => "lpm",
        },
        target_itl_ms: match config.target_itl_ms {
            None => TargetItl::Word("auto"),
            Some(0) => TargetItl::Word("off"),
            Some(milliseconds) => TargetItl::Milliseconds(milliseconds),
        },
        stall_timeout: config.stall_timeout_seconds,
        disable_grammar_support: config.disable_grammar_support,
        lenient_grammar: config.lenient_grammar,
        strict_model_name: config.strict_model_name,
        prefix_caching: config.prefix_caching,
        has_api_keys: !config.api_keys.is_empty(),
    }
}
