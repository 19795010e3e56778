//! Bounds of a request's head. hyper has bounds of its own, but answers beyond them without a body; so its are wider, and
//! what lies between gets an answer that says what is wrong.

use crate::app::AppState;
use crate::request_log::RequestLog;
use crate::routes::reply;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use headrace_dialect::refusal::{Cause, Refusal};
use std::sync::Arc;

/// Bytes of a request's head.
const MOST_BYTES: usize = 64 << 10;
/// Header fields of it.
const MOST_FIELDS: usize = 100;

/// The bounds of hyper, which answers 431 beyond them.
pub(crate) const HYPER_BYTES: usize = 2 * MOST_BYTES;
/// See [`HYPER_BYTES`].
pub(crate) const HYPER_FIELDS: usize = 3 * MOST_FIELDS;

/// Refuses what is out of bounds.
pub(crate) async fn in_bounds(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    let Some(message) = fault(&request) else {
        return next.run(request).await;
    };
    let refusal = Refusal::new(Cause::HeadTooLarge, message);
    if let Some(log) = request.extensions().get::<Arc<RequestLog>>() {
        log.fail(&refusal);
    }
    reply::refused(&state, state.dialect_of(request.uri().path()), &refusal)
}

fn fault(request: &Request) -> Option<String> {
    let headers = request.headers();
    let fields = headers.len();
    if fields > MOST_FIELDS {
        return Some(format!(
            "The request has {fields} header fields; at most {MOST_FIELDS} are allowed"
        ));
    }
    let path = request
        .uri()
        .path_and_query()
        .map_or(0, |it| it.as_str().len());
    let lines = headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    let bytes = path + lines.sum::<usize>();
    (bytes > MOST_BYTES)
        .then(|| format!("The request's head has {bytes} bytes; at most {MOST_BYTES} are allowed"))
}
