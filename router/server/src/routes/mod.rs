//! The routes: one file a family, and what they share (`body`, `generation`, `reply`).

pub(crate) mod body;
pub(crate) mod chat;
mod chunks;
pub(crate) mod completions;
pub(crate) mod control;
pub(crate) mod generate;
pub(crate) mod generation;
pub(crate) mod info;
pub(crate) mod probes;
pub(crate) mod reply;
pub(crate) mod tokenize;

use crate::app::{AppState, dialect_of};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use headrace_dialect::refusal::{Cause, Refusal};
use headrace_text::OneLine;

/// Paths of the control routes.
const CONTROL_PATHS: [&str; 3] = ["/drain", "/flush_cache", "/reset_prefix_cache"];

/// The control routes.
pub(crate) fn control_table() -> Router<AppState> {
    Router::new()
        .route("/drain", post(control::drain))
        // SGLang's clients of some releases ask with GET, and vLLM's by another name.
        .route(
            "/flush_cache",
            get(control::flush_cache).post(control::flush_cache),
        )
        .route("/reset_prefix_cache", post(control::flush_cache))
}

/// Every route but the documentation's and the control routes.
pub(crate) fn table() -> Router<AppState> {
    Router::new()
        .route("/", get(probes::root).post(generate::compat))
        .route("/v1", post(generate::compat))
        .route("/generate", post(generate::generate))
        .route("/generate_stream", post(generate::generate_stream))
        .route("/v1/chat/completions", post(chat::chat_completions))
        .route("/v1/completions", post(completions::completions))
        .route("/invocations", post(generate::invocations))
        .route("/tokenize", post(tokenize::tokenize))
        .route(
            "/chat_tokenize",
            get(tokenize::chat_tokenize).post(tokenize::chat_tokenize),
        )
        .route("/info", get(info::info))
        .route("/v1/models", get(info::models))
        .route("/v1/models/{*id}", get(info::model))
        .route("/health", get(probes::health))
        .route("/ping", get(probes::ping))
        .route("/ready", get(probes::ready))
        .route("/metrics", get(probes::metrics))
}

/// Whether a path is a control route's: there only with an admin key, and only for its holder.
pub(crate) fn is_control(path: &str) -> bool {
    CONTROL_PATHS.contains(&path)
}

/// No such path.
pub(crate) async fn not_found(State(state): State<AppState>, request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("There is no route `{:.200}`", OneLine(path));
    let refusal = Refusal::new(Cause::NotFound, message);
    reply::refused(&state, dialect_of(path), &refusal)
}

/// The path has other methods.
pub(crate) async fn method_not_allowed(
    State(state): State<AppState>,
    request: Request,
) -> Response {
    let path = request.uri().path();
    let refusal = Refusal::new(
        Cause::MethodNotAllowed,
        format!(
            "The method {:.32} is not allowed for `{:.200}`",
            OneLine(request.method().as_str()),
            OneLine(path)
        ),
    );
    reply::refused(&state, dialect_of(path), &refusal)
}
