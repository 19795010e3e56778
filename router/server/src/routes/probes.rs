//! `/health` and its other names, `/ready`, `/metrics`.

use super::reply;
use crate::app::AppState;
use crate::health::{self, ProbeAnswer};
use crate::metrics;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use headrace_api::errors::ErrorResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

fn answer(probe: ProbeAnswer) -> Response {
    let status = StatusCode::from_u16(probe.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    if probe.body.is_empty() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        return response;
    }
    reply::json_text(status, probe.body)
}

/// Health, as at `/health`.
#[utoipa::path(
    get, path = "/", tag = "Text Generation Inference",
    responses(
        (status = 200, description = "Everything works"),
        (status = 503, description = "Not yet, or no more", body = ErrorResponse),
    )
)]
pub(crate) async fn root(state: State<AppState>) -> Response {
    health(state).await
}

/// 200 from the first ready on, through restarts and drain.
#[utoipa::path(
    get, path = "/health", tag = "Text Generation Inference",
    responses(
        (status = 200, description = "Everything works"),
        (status = 503, description = "Not yet, or no more", body = ErrorResponse),
    )
)]
pub(crate) async fn health(State(state): State<AppState>) -> Response {
    answer(health::health(&state.engine().status()))
}

/// Health, for `SageMaker`.
#[utoipa::path(
    get, path = "/ping", tag = "Text Generation Inference",
    responses(
        (status = 200, description = "Everything works"),
        (status = 503, description = "Not yet, or no more", body = ErrorResponse),
    )
)]
pub(crate) async fn ping(state: State<AppState>) -> Response {
    health(state).await
}

/// 200 while the model is up and no drain has begun.
#[utoipa::path(
    get, path = "/ready", tag = "Text Generation Inference",
    responses(
        (status = 200, description = "Requests run"),
        (status = 503, description = "What is waited for", body = ErrorResponse),
    )
)]
pub(crate) async fn ready(State(state): State<AppState>) -> Response {
    answer(health::ready(&state.engine().status()))
}

/// Prometheus metrics.
#[utoipa::path(
    get, path = "/metrics", tag = "Text Generation Inference",
    responses((status = 200, description = "Prometheus text", body = String, content_type = "text/plain"))
)]
pub(crate) async fn metrics(State(state): State<AppState>) -> Response {
    let page = state.metrics().render(&state.engine().status());
    let mut response = Response::new(Body::from(page));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static(metrics::CONTENT_TYPE),
    );
    response
}
