//! `/v1/chat/completions`.

use super::generation::{Generation, Happening};
use super::reply::{self, Measure};
use super::{body, completions};
use crate::app::AppState;
use crate::request_log::RequestLog;
use crate::sse::{self, DONE, FrameWriter};
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use headrace_api::chat::{ChatCompletion, ChatRequest};
use headrace_api::errors::OpenAiErrorResponse;
use headrace_dialect::call::Prompt;
use headrace_dialect::json::Json;
use headrace_dialect::openai::{
    ChatCall, ChatStream, chat_completion, check_model, read_chat, usage,
};
use headrace_dialect::refusal::{Cause, Dialect, Refusal, to_json};
use headrace_text::Tokenizer;
use std::sync::Arc;

/// Answer a conversation.
#[utoipa::path(
    post, path = "/v1/chat/completions", tag = "OpenAI", request_body = ChatRequest,
    responses(
        (status = 200, description = "The answer; with `stream`, events of chunks, then `[DONE]`", body = ChatCompletion),
        (status = 400, description = "Invalid request", body = OpenAiErrorResponse),
        (status = 404, description = "Unknown model", body = OpenAiErrorResponse),
        (status = 429, description = "Model is overloaded", body = OpenAiErrorResponse),
        (status = 500, description = "Generation error", body = OpenAiErrorResponse),
        (status = 503, description = "Not ready, or shutting down", body = OpenAiErrorResponse),
    )
)]
pub(crate) async fn chat_completions(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    log.begin_generation();
    let result = async {
        let json = body::read_json(&state, request).await?;
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
    let permit = state.admit()?;
    let request = read_chat(json, &state.bounds(Dialect::OpenAi))?;
    let services = state.services()?;
    let served = &services.document.model_id;
    check_model(
        request.model.as_deref(),
        served,
        state.config().strict_model_name,
    )?;
    let ChatCall {
        call,
        model,
        logprobs,
        shape,
        ignored,
    } = request;
    // TGI's names for "whatever is served" are not echoed.
    let model = model
        .filter(|name| !name.is_empty() && name != "tgi")
        .unwrap_or_else(|| served.clone());
    let identity = completions::identity(state, "chatcmpl", model);
    let characters = call.prompts.iter().map(Prompt::characters).sum();
    let is_stream = call.stream;
    let generation = Generation::start(state, log, permit, call, Dialect::OpenAi).await?;
    let mut response = if is_stream {
        let prompts = generation.prompts();
        let writer = ChatWriter {
            stream: ChatStream::new(identity, shape, logprobs, prompts.tokens(), prompts.choices),
            tokenizer: Arc::clone(&services.tokenizer),
        };
        let mut response = sse::respond(generation, writer, Dialect::OpenAi);
        reply::add_stream_headers(state, characters, &mut response);
        response
    } else {
        let lengths = generation.prompts().lengths();
        let records = generation.collect().await?;
        let usage = usage(&lengths, &records);
        let choices = records.into_iter().next().unwrap_or_default();
        let answer = chat_completion(&identity, &choices, usage, logprobs, &services.tokenizer)
            .ok_or_else(|| Refusal::new(Cause::Incomplete, "Incomplete generation"))?;
        let mut response = reply::json(&answer);
        let measure = Measure {
            characters,
            compute_time: true,
        };
        reply::add_timing(state, log, measure, &mut response);
        response
    };
    reply::add_ignored(&mut response, &ignored);
    Ok(response)
}

struct ChatWriter {
    stream: ChatStream,
    tokenizer: Arc<Tokenizer>,
}

impl FrameWriter for ChatWriter {
    fn happening(&mut self, happening: Happening) -> Option<String> {
        match happening {
            Happening::Started {
                choice,
                cached_tokens,
            } => {
                if choice == 0 {
                    self.stream.set_cached_tokens(cached_tokens);
                }
                None
            }
            Happening::PromptLogprobs { .. } => None,
            Happening::Token { choice, step } => self
                .stream
                .chunk(choice, step, &self.tokenizer)
                .map(|chunk| to_json(&chunk)),
        }
    }

    fn end(&mut self) -> Vec<String> {
        let usage = self.stream.usage_chunk().map(|chunk| to_json(&chunk));
        usage.into_iter().chain([DONE.to_owned()]).collect()
    }
}
