//! `/abort`: ends running and queued requests by their ids.

use super::{body, reply};
use crate::app::AppState;
use crate::request_log::RequestLog;
use crate::running::Which;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use headrace_api::abort::{AbortRequest, Aborted};
use headrace_dialect::abort::read_abort;
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use std::sync::Arc;

/// End requests of one's own key, or of any with the admin key. Ids that nobody runs (any more) are no error.
#[utoipa::path(
    post, path = "/abort", tag = "Requests", request_body = AbortRequest,
    responses((status = 200, description = "How many requests this ended", body = Aborted))
)]
pub(crate) async fn abort(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    let result = run(&state, &log, request).await;
    reply::finish(&state, &log, Dialect::Native, result)
}

async fn run(state: &AppState, log: &RequestLog, request: Request) -> Result<Response, Refusal> {
    let json = body::read_json(state, request).await?;
    let call = read_abort(&json)?;
    let caller = log.caller();
    let which = if call.all {
        if !caller.is_admin() && state.has_keys() {
            let message = "`abort_all` takes the admin key: it ends the requests of everybody";
            return Err(Refusal::new(Cause::Forbidden, message));
        }
        Which::All
    } else {
        Which::Named(&call.ids)
    };
    let aborted = state.running().abort(&which, &caller, state.engine());
    let mut response = reply::json(&Aborted { aborted });
    reply::add_ignored(state, log, &mut response, &call.ignored);
    Ok(response)
}
