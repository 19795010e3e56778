//! `KServe`'s Open Inference Protocol, version 2.

use super::body;
use super::generation::Generation;
use super::reply::{self, Measure};
use super::texts::texts;
use crate::app::AppState;
use crate::health::{self, ProbeAnswer};
use crate::request_log::RequestLog;
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use headrace_api::kserve::{
    InferenceRequest, InferenceResponse, KserveHealth, ModelMetadata, ServerMetadata,
    TensorMetadata,
};
use headrace_dialect::call::Prompt;
use headrace_dialect::kserve::{InferCall, check_path_model, output_tensors, read_infer};
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_dialect::request_id;
use http::StatusCode;
use serde::Deserialize;
use std::sync::Arc;

/// What stands in a model's path.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ModelPath {
    model: String,
    version: Option<String>,
}

type AnyModelPath = Result<Path<ModelPath>, PathRejection>;

/// Server metadata.
#[utoipa::path(
    get, path = "/v2", tag = "KServe",
    responses((status = 200, description = "Name, version and extensions", body = ServerMetadata))
)]
pub(crate) async fn server_metadata() -> Response {
    reply::json(&ServerMetadata {
        name: "text-generation-inference",
        version: env!("CARGO_PKG_VERSION"),
        extensions: vec!["health", "models", "metrics"],
    })
}

/// As `/health`.
#[utoipa::path(
    get, path = "/v2/health/live", tag = "KServe",
    responses(
        (status = 200, description = "Everything works", body = KserveHealth),
        (status = 503, description = "Not yet, or no more", body = KserveHealth),
    )
)]
pub(crate) async fn live(State(state): State<AppState>) -> Response {
    let good = KserveHealth {
        live: Some(true),
        ..KserveHealth::default()
    };
    let bad = KserveHealth {
        live: Some(false),
        ..KserveHealth::default()
    };
    probe(&health::health(&state.engine().status()), &good, bad)
}

/// As `/ready`.
#[utoipa::path(
    get, path = "/v2/health/ready", tag = "KServe",
    responses(
        (status = 200, description = "Requests run", body = KserveHealth),
        (status = 503, description = "What is waited for", body = KserveHealth),
    )
)]
pub(crate) async fn ready(State(state): State<AppState>) -> Response {
    readiness(&state, None)
}

fn readiness(state: &AppState, name: Option<String>) -> Response {
    let bad = KserveHealth {
        name,
        ready: Some(false),
        ..KserveHealth::default()
    };
    let good = KserveHealth {
        live: Some(true),
        ready: Some(true),
        ..bad.clone()
    };
    probe(&health::ready(&state.engine().status()), &good, bad)
}

/// A probe's verdict in the protocol's words; a bad one keeps its reason.
fn probe(answer: &ProbeAnswer, good: &KserveHealth, bad: KserveHealth) -> Response {
    if answer.status == 200 {
        return reply::json(good);
    }
    let reason: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
    let word = |key: &str| {
        reason
            .get(key)
            .and_then(|word| word.as_str())
            .map(str::to_owned)
    };
    let body = KserveHealth {
        error: word("error"),
        error_type: word("error_type"),
        ..bad
    };
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    reply::json_with(status, &body)
}

/// Model metadata.
#[utoipa::path(
    get, path = "/v2/models/{model}", tag = "KServe", params(("model" = String, Path, description = "Model name")),
    responses((status = 200, description = "Its tensors", body = ModelMetadata))
)]
pub(crate) async fn model(state: State<AppState>, path: AnyModelPath) -> Response {
    metadata(&state, path)
}

/// Metadata of a version, of which any is taken.
#[utoipa::path(
    get, path = "/v2/models/{model}/versions/{version}", tag = "KServe",
    params(("model" = String, Path, description = "Model name"), ("version" = String, Path, description = "Any")),
    responses((status = 200, description = "Its tensors", body = ModelMetadata))
)]
pub(crate) async fn model_version(state: State<AppState>, path: AnyModelPath) -> Response {
    metadata(&state, path)
}

fn metadata(state: &AppState, path: AnyModelPath) -> Response {
    match known(state, path) {
        Ok(ModelPath { model, version }) => reply::json(&ModelMetadata {
            name: model,
            version,
            extensions: vec!["infer", "ready"],
            platform: "headrace",
            inputs: vec![tensor("inputs")],
            outputs: vec![tensor("inputs")],
        }),
        Err(refusal) => reply::refused(state, Dialect::Native, &refusal),
    }
}

fn tensor(name: &'static str) -> TensorMetadata {
    TensorMetadata {
        name,
        datatype: "BYTES",
        shape: vec![-1],
    }
}

/// Whether the model is ready, as `/ready`.
#[utoipa::path(
    get, path = "/v2/models/{model}/ready", tag = "KServe",
    params(("model" = String, Path, description = "Model name")),
    responses(
        (status = 200, description = "Requests run", body = KserveHealth),
        (status = 503, description = "What is waited for", body = KserveHealth),
    )
)]
pub(crate) async fn model_ready(state: State<AppState>, path: AnyModelPath) -> Response {
    of_model(&state, path)
}

/// Whether a version is ready, as `/ready`.
#[utoipa::path(
    get, path = "/v2/models/{model}/versions/{version}/ready", tag = "KServe",
    params(("model" = String, Path, description = "Model name"), ("version" = String, Path, description = "Any")),
    responses(
        (status = 200, description = "Requests run", body = KserveHealth),
        (status = 503, description = "What is waited for", body = KserveHealth),
    )
)]
pub(crate) async fn model_version_ready(state: State<AppState>, path: AnyModelPath) -> Response {
    of_model(&state, path)
}

fn of_model(state: &AppState, path: AnyModelPath) -> Response {
    match known(state, path) {
        Ok(path) => readiness(state, Some(path.model)),
        // Before the model is known, what is waited for says more.
        Err(refusal) if refusal.cause() == Cause::Unavailable => readiness(state, None),
        Err(refusal) => reply::refused(state, Dialect::Native, &refusal),
    }
}

/// Generate.
#[utoipa::path(
    post, path = "/v2/models/{model}/infer", tag = "KServe", request_body = InferenceRequest,
    params(("model" = String, Path, description = "Model name")),
    responses((status = 200, description = "Generated texts", body = InferenceResponse))
)]
pub(crate) async fn infer(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    path: AnyModelPath,
    request: Request,
) -> Response {
    log.begin_generation();
    let result = run_infer(&state, &log, path, request).await;
    reply::finish(&state, &log, Dialect::Native, result)
}

/// Generate with a version, of which any is taken.
#[utoipa::path(
    post, path = "/v2/models/{model}/versions/{version}/infer", tag = "KServe", request_body = InferenceRequest,
    params(("model" = String, Path, description = "Model name"), ("version" = String, Path, description = "Any")),
    responses((status = 200, description = "Generated texts", body = InferenceResponse))
)]
pub(crate) async fn infer_version(
    state: State<AppState>,
    log: Extension<Arc<RequestLog>>,
    path: AnyModelPath,
    request: Request,
) -> Response {
    infer(state, log, path, request).await
}

async fn run_infer(
    state: &AppState,
    log: &Arc<RequestLog>,
    path: AnyModelPath,
    request: Request,
) -> Result<Response, Refusal> {
    let json = body::read_call(state, request).await?;
    log.set_body_id(request_id::in_infer_body(&json)?);
    let permit = state.admit(log.caller().tenant())?;
    let ModelPath { model, version } = known(state, path)?;
    let InferCall {
        call,
        id,
        tensors,
        prefixes,
        ignored,
    } = read_infer(
        &json,
        &state.bounds(Dialect::Native),
        &state.bounds(Dialect::OpenAi),
    )?;
    drop(json);
    let measure = Measure {
        characters: call.prompts.iter().map(Prompt::characters).sum(),
        compute_time: true,
    };
    // Also beside a `request_id`.
    let generation =
        Generation::start_named(state, log, id.clone(), permit, call, Dialect::Native).await?;
    let mut texts = texts(generation).await?;
    for (text, prefix) in texts.iter_mut().zip(prefixes.into_iter().flatten()) {
        text.insert_str(0, &prefix);
    }
    let answer = InferenceResponse {
        id,
        outputs: output_tensors(&tensors, texts),
        model_name: model,
        model_version: version,
    };
    let mut response = reply::timed_json(state, log, measure, &answer);
    reply::add_ignored(state, log, &mut response, &ignored);
    Ok(response)
}

/// The path's names, if the served model may be called so.
fn known(state: &AppState, path: AnyModelPath) -> Result<ModelPath, Refusal> {
    let Path(path) = path
        .map_err(|_| Refusal::new(Cause::NotFound, "The model's name in the path is no UTF-8"))?;
    let served = &state.services()?.document.model_id;
    check_path_model(&path.model, served, state.config().strict_model_name)?;
    Ok(path)
}
