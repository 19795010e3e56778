//! `/v1/chat/completions`.

use super::body;
use super::chunks::{self, ChunkWriter};
use super::generation::Generation;
use super::reply::{self, Measure};
use crate::app::AppState;
use crate::request_log::RequestLog;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use headrace_api::chat::{ChatCompletion, ChatRequest};
use headrace_dialect::call::Prompt;
use headrace_dialect::json::Json;
use headrace_dialect::openai::{ChatCall, ChatStream, chat_completion, read_chat, usage};
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_dialect::request_id;
use std::sync::Arc;

/// Answer a conversation.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "OpenAI", request_body = ChatRequest,
    responses(
        (status = 200, description = "The answer; with `stream`, events of chunks, then `[DONE]`", body = ChatCompletion),
    )
)]
pub(crate) async fn chat_completions(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    log.begin_generation();
    let result = async {
        let json = body::read_call(&state, request).await?;
        run(&state, &log, &json).await
    }
    .await;
    reply::finish(&state, &log, Dialect::OpenAi, result)
}

pub(crate) async fn run(
    state: &AppState,
    log: &Arc<RequestLog>,
    json: &Json,
) -> Result<Response, Refusal> {
    log.set_body_id(request_id::in_body(json)?);
    let permit = state.admit(log.caller().tenant())?;
    let request = read_chat(json, &state.bounds(Dialect::OpenAi))?;
    let services = chunks::served(state, request.model.as_deref())?;
    let ChatCall {
        call,
        model,
        shown,
        shape,
        ignored,
    } = request;
    // TGI's names for "whatever is served" are not echoed.
    let model = model
        .filter(|name| !name.is_empty() && name != "tgi")
        .unwrap_or_else(|| services.document.model_id.clone());
    let identity = chunks::identity(state, "chatcmpl", model, &call.terms);
    let characters = call.prompts.iter().map(Prompt::characters).sum();
    let is_stream = call.stream;
    let generation = Generation::start(state, log, permit, call, Dialect::OpenAi).await?;
    let mut response = if is_stream {
        let prompts = generation.prompts();
        let ids = prompts.ids.first().map_or(&[][..], |ids| ids);
        let stream = ChatStream::new(identity, shape, shown, ids, prompts.choices);
        let writer = ChunkWriter {
            chunks: stream,
            tokenizer: Arc::clone(&services.tokenizer),
        };
        reply::stream(state, generation, writer, Dialect::OpenAi, characters)
    } else {
        let lengths = generation.prompts().lengths();
        let ids = generation
            .prompts()
            .ids
            .first()
            .cloned()
            .unwrap_or_default();
        let records = generation.collect().await?;
        let usage = usage(&lengths, &records);
        let choices = records.into_iter().next().unwrap_or_default();
        let texts = (&*ids, &*choices);
        let answer = chat_completion(&identity, texts, usage, &shown, &services.tokenizer)
            .ok_or_else(|| Refusal::new(Cause::Incomplete, "Incomplete generation"))?;
        let measure = Measure {
            characters,
            compute_time: true,
        };
        reply::timed_json(state, log, measure, &answer)
    };
    reply::add_ignored(state, log, &mut response, &ignored);
    Ok(response)
}
