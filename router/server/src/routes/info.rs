//! `/info` and `/v1/models`.

use super::reply;
use crate::app::AppState;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use headrace_api::errors::{ErrorResponse, OpenAiErrorResponse};
use headrace_api::models::{ModelCard, ModelList};
use headrace_api::native::Info;
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_text::OneLine;

/// TGI's model, limits and version.
#[utoipa::path(
    get, path = "/info", tag = "Text Generation Inference",
    responses(
        (status = 200, description = "Served model", body = Info),
        (status = 503, description = "Not ready", body = ErrorResponse),
    )
)]
pub(crate) async fn info(State(state): State<AppState>) -> Response {
    match make_info(&state) {
        Ok(info) => reply::json(&info),
        Err(refusal) => reply::refused(&state, Dialect::Native, &refusal),
    }
}

fn make_info(state: &AppState) -> Result<Info, Refusal> {
    let document = &state.services()?.document;
    let limits = state.context_limits()?;
    let status = state.engine().status();
    let config = state.config();
    // What the workers said of themselves; `COMPUTE_TYPE` may be any name.
    let is_cuda = status.limits.as_ref().is_some_and(|limits| limits.is_cuda);
    Ok(Info {
        model_id: document.model_id.clone(),
        model_sha: document.revision.clone(),
        model_dtype: document.dtype.clone(),
        model_device_type: if is_cuda { "cuda" } else { "cpu" }.to_owned(),
        model_pipeline_tag: document.pipeline_tag.clone(),
        max_concurrent_requests: config.max_concurrent_requests,
        max_best_of: config.max_best_of,
        max_stop_sequences: config.max_stop_sequences,
        max_input_tokens: limits.max_input_tokens,
        max_total_tokens: limits.max_total_tokens,
        waiting_served_ratio: 0.3,
        max_batch_total_tokens: status
            .limits
            .as_ref()
            .map_or(0, |limits| limits.pool_tokens),
        max_waiting_tokens: 20,
        max_batch_size: status.limits.as_ref().map(|limits| limits.max_sequences),
        validation_workers: config.validation_workers,
        max_client_batch_size: config.max_client_batch_size,
        router: "headrace-router",
        version: env!("CARGO_PKG_VERSION"),
        sha: option_env!("HEADRACE_COMMIT"),
        docker_label: config.docker_label.clone(),
    })
}

/// Served models.
#[utoipa::path(
    get, path = "/v1/models", tag = "OpenAI",
    responses(
        (status = 200, description = "Served models", body = ModelList),
        (status = 503, description = "Not ready", body = OpenAiErrorResponse),
    )
)]
pub(crate) async fn models(State(state): State<AppState>) -> Response {
    match card(&state) {
        Ok(card) => reply::json(&ModelList {
            object: "list",
            data: vec![card],
        }),
        Err(refusal) => reply::refused(&state, Dialect::OpenAi, &refusal),
    }
}

/// One served model. Its name may hold slashes.
#[utoipa::path(
    get, path = "/v1/models/{id}", tag = "OpenAI", params(("id" = String, Path, description = "Model name")),
    responses(
        (status = 200, description = "The model", body = ModelCard),
        (status = 404, description = "Unknown model", body = OpenAiErrorResponse),
    )
)]
pub(crate) async fn model(
    State(state): State<AppState>,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    // Bytes that are no text are nobody's name.
    let id = id.map_or_else(|_| char::REPLACEMENT_CHARACTER.to_string(), |Path(id)| id);
    let found = card(&state).and_then(|card| {
        if card.id == id {
            return Ok(card);
        }
        Err(Refusal::new(
            Cause::ModelNotFound,
            format!("The model `{:.200}` does not exist.", OneLine(&id)),
        )
        .with_param("model"))
    });
    match found {
        Ok(card) => reply::json(&card),
        Err(refusal) => reply::refused(&state, Dialect::OpenAi, &refusal),
    }
}

fn card(state: &AppState) -> Result<ModelCard, Refusal> {
    let id = state.services()?.document.model_id.clone();
    Ok(ModelCard {
        owned_by: id.clone(),
        id,
        object: "model",
        created: 0,
        max_model_len: state.context_limits()?.max_total_tokens,
    })
}
