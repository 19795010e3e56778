//! The routes: one file a family, and what they share (`body`, `generation`, `reply`).

pub(crate) mod abort;
pub(crate) mod about;
pub(crate) mod body;
pub(crate) mod chat;
mod chunks;
pub(crate) mod completions;
pub(crate) mod control;
pub(crate) mod detokenize;
pub(crate) mod generate;
pub(crate) mod generation;
pub(crate) mod info;
pub(crate) mod invocations;
pub(crate) mod kserve;
pub(crate) mod probes;
pub(crate) mod reply;
pub(crate) mod table;
mod texts;
pub(crate) mod tokenize;
pub(crate) mod vertex;

use crate::app::AppState;
use axum::extract::{Request, State};
use axum::response::Response;
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_text::OneLine;
use http::header::ALLOW;
use http::{HeaderValue, Method};

/// No such path.
pub(crate) async fn not_found(State(state): State<AppState>, request: Request) -> Response {
    if request.method() == Method::CONNECT {
        // It names a host and no path.
        let message = "The method CONNECT is not allowed: this server is no proxy";
        let refusal = Refusal::new(Cause::MethodNotAllowed, message);
        let mut response = reply::refused(&state, Dialect::Native, &refusal);
        let headers = response.headers_mut();
        headers.insert(ALLOW, HeaderValue::from_static("GET,HEAD,POST,OPTIONS"));
        return response;
    }
    let path = request.uri().path();
    let message = format!("There is no route `{:.200}`", OneLine(path));
    let refusal = Refusal::new(Cause::NotFound, message);
    reply::refused(&state, state.dialect_of(path), &refusal)
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
    reply::refused(&state, state.dialect_of(path), &refusal)
}
