//! Routes for operators: there only with an admin key, and only for its holder.

use super::reply;
use crate::app::AppState;
use axum::extract::State;
use axum::response::Response;
use headrace_api::control::{CacheFlushed, DrainBegun};
use headrace_dialect::refusal::{Cause, Dialect, Refusal};

/// Empty the prefix cache. What running sequences hold of it stays theirs, and later prompts do not find it.
#[utoipa::path(
    post, path = "/flush_cache", tag = "Control",
    responses(
        (status = 200, description = "The cache is empty; also at GET, and at POST /reset_prefix_cache", body = CacheFlushed),
    )
)]
pub(crate) async fn flush_cache(State(state): State<AppState>) -> Response {
    let Some(flushed) = state.engine().flush_cache().await else {
        let refusal = Refusal::new(Cause::Unavailable, "The server is shutting down");
        return reply::refused(&state, Dialect::Native, &refusal);
    };
    reply::json(&CacheFlushed {
        success: true,
        freed_blocks: flushed.freed_blocks,
        kept_blocks: flushed.kept_blocks,
    })
}

/// Drain, as on SIGTERM: `/ready` turns 503 at once, what is admitted finishes within the grace time, new requests get 503,
/// and the server exits 0.
#[utoipa::path(
    post, path = "/drain", tag = "Control",
    responses((status = 202, description = "The drain begins; asking again changes nothing", body = DrainBegun))
)]
pub(crate) async fn drain(State(state): State<AppState>) -> Response {
    state.engine().request_drain();
    reply::json_with(http::StatusCode::ACCEPTED, &DrainBegun { draining: true })
}
