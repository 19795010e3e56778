//! `/detokenize`: ids to text.

use super::{body, reply};
use crate::app::AppState;
use crate::request_log::RequestLog;
use crate::validate::run_on_pool;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use headrace_api::tokenize::{DetokenizeRequest, DetokenizeResponse};
use headrace_dialect::openai::read_detokenize;
use headrace_dialect::refusal::Refusal;
use headrace_text::{Detokenizer, decode_with_special};
use std::sync::Arc;

/// The text of token ids.
#[utoipa::path(
    post, path = "/detokenize", tag = "Tokens", request_body = DetokenizeRequest,
    responses((status = 200, description = "The text", body = DetokenizeResponse))
)]
pub(crate) async fn detokenize(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    let dialect = state.dialect_of(request.uri().path());
    let result = run(&state, &log, request).await;
    reply::finish(&state, &log, dialect, result)
}

async fn run(state: &AppState, log: &RequestLog, request: Request) -> Result<Response, Refusal> {
    let tenant = log.caller().tenant();
    let limits = state.context_limits()?;
    let json = body::read_json(state, request).await?;
    let call = read_detokenize(&json, &limits)?;
    let (tokens, skips) = (call.tokens, call.skip_special_tokens);
    let prompt = run_on_pool(state, tenant, tokens.len() * 4, move |services| {
        Ok(if skips {
            Detokenizer::decode(Arc::clone(&services.tokenizer), &[], &tokens)
        } else {
            decode_with_special(&services.tokenizer, &tokens)
        })
    })
    .await?;
    let mut response = reply::json(&DetokenizeResponse { prompt });
    reply::add_ignored(state, log, &mut response, &call.ignored);
    Ok(response)
}
