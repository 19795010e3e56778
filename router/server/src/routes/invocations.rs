//! `SageMaker`'s route.

use super::{body, chat, completions, generate, reply};
use crate::app::AppState;
use crate::request_log::RequestLog;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use headrace_api::invocations::{InvocationsAnswer, InvocationsBody};
use headrace_dialect::invocations::{Invocation, invocation_of};
use headrace_dialect::native::NativeRoute;
use headrace_dialect::refusal::Dialect;
use std::sync::Arc;

/// `SageMaker`'s route: the body says whose request it is, by `inputs`, `messages` or `prompt`.
#[utoipa::path(
    post, path = "/invocations", tag = "Text Generation Inference", request_body = InvocationsBody,
    responses(
        (status = 200, description = "As `/`, `/v1/chat/completions` or `/v1/completions` would answer", body = InvocationsAnswer),
    )
)]
pub(crate) async fn invocations(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    log.begin_generation();
    let read = async {
        let json = body::read_call(&state, request).await?;
        let kind = invocation_of(&json)?;
        Ok((json, kind))
    };
    let (json, kind) = match read.await {
        Ok(read) => read,
        Err(refusal) => return reply::finish(&state, &log, Dialect::Native, Err(refusal)),
    };
    let (dialect, result) = match kind {
        Invocation::Generate => {
            let result = generate::run(&state, &log, &json, NativeRoute::Compat).await;
            (Dialect::Native, result)
        }
        Invocation::Chat => (Dialect::OpenAi, chat::run(&state, &log, &json).await),
        Invocation::Completion => (Dialect::OpenAi, completions::run(&state, &log, &json).await),
    };
    reply::finish(&state, &log, dialect, result)
}
