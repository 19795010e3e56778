//! `/v1/completions`.

use super::body;
use super::chunks::{self, ChunkWriter};
use super::generation::Generation;
use super::reply::{self, Measure};
use crate::app::AppState;
use crate::request_log::RequestLog;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use headrace_api::completion::{Completion, CompletionRequest};
use headrace_dialect::call::Prompt;
use headrace_dialect::choice::rank;
use headrace_dialect::json::Json;
use headrace_dialect::openai::{
    CompletionCall, CompletionStream, completion, read_completion, usage,
};
use headrace_dialect::refusal::{Cause, Dialect, Refusal};
use headrace_dialect::request_id;
use std::sync::Arc;

/// Continue one or several prompts.
#[utoipa::path(
    post, path = "/v1/completions", tag = "OpenAI", request_body = CompletionRequest,
    responses(
        (status = 200, description = "The texts; with `stream`, events of the same shape, then `[DONE]`", body = Completion),
    )
)]
pub(crate) async fn completions(
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
    let default_max_tokens = state.config().completions_default_max_tokens;
    let request = read_completion(json, &state.bounds(Dialect::OpenAi), default_max_tokens)?;
    let services = chunks::served(state, request.model.as_deref())?;
    let CompletionCall {
        call,
        shown,
        shape,
        ignored,
        ..
    } = request;
    let identity = chunks::identity(
        state,
        "cmpl",
        services.document.model_id.clone(),
        &call.terms,
    );
    let characters = call.prompts.iter().map(Prompt::characters).sum();
    let is_stream = call.stream;
    let generation = Generation::start(state, log, permit, call, Dialect::OpenAi).await?;
    let prompts = generation.prompts().clone();
    let mut response = if is_stream {
        let (asked, each) = (prompts.shown(), prompts.sequences);
        let writer = ChunkWriter {
            chunks: CompletionStream::new(identity, shape, shown, asked, each),
            tokenizer: Arc::clone(&services.tokenizer),
        };
        reply::stream(state, generation, writer, Dialect::OpenAi, characters)
    } else {
        let mut records = generation.collect().await?;
        let usage = usage(&prompts.lengths(), &records);
        if prompts.sequences > prompts.choices {
            for choices in &mut records {
                rank(choices);
                choices.truncate(prompts.choices);
            }
        }
        let texts = (&*prompts.shown(), &*records);
        let answer = completion(&identity, texts, usage, shown, &services.tokenizer)
            .ok_or_else(|| Refusal::new(Cause::Incomplete, "Incomplete generation"))?;
        let measure = Measure {
            characters,
            compute_time: false,
        };
        reply::timed_json(state, log, measure, &answer)
    };
    reply::add_ignored(state, log, &mut response, &ignored);
    Ok(response)
}
