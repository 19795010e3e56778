//! TGI's generation routes.

use super::body;
use super::generation::{Generation, Happening};
use super::reply::{self, Measure};
use crate::app::AppState;
use crate::request_log::RequestLog;
use crate::sse::FrameWriter;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use headrace_api::native::{
    CompatGenerateRequest, GenerateRequest, GenerateResponse, StreamResponse,
};
use headrace_dialect::choice::rank;
use headrace_dialect::json::Json;
use headrace_dialect::native::{
    NativeOutput, NativeRequest, NativeRoute, NativeStream, read_generate, response,
};
use headrace_dialect::refusal::{Cause, Dialect, Refusal, to_json};
use headrace_dialect::request_id;
use headrace_text::Tokenizer;
use std::sync::Arc;

/// Generate tokens, streamed if `stream` is true.
#[utoipa::path(
    post, path = "/", tag = "Text Generation Inference", request_body = CompatGenerateRequest,
    responses((status = 200, description = "Generated text", body = Vec<GenerateResponse>))
)]
pub(crate) async fn compat(
    state: State<AppState>,
    log: Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    handle(state, log, request, NativeRoute::Compat).await
}

/// Generate tokens.
#[utoipa::path(
    post, path = "/generate", tag = "Text Generation Inference", request_body = GenerateRequest,
    responses((status = 200, description = "Generated text", body = GenerateResponse))
)]
pub(crate) async fn generate(
    state: State<AppState>,
    log: Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    handle(state, log, request, NativeRoute::Generate).await
}

/// Generate a stream of tokens as server-sent events.
#[utoipa::path(
    post, path = "/generate_stream", tag = "Text Generation Inference", request_body = GenerateRequest,
    responses(
        (status = 200, description = "One event a token", body = StreamResponse, content_type = "text/event-stream"),
    )
)]
pub(crate) async fn generate_stream(
    state: State<AppState>,
    log: Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    handle(state, log, request, NativeRoute::GenerateStream).await
}

async fn handle(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
    route: NativeRoute,
) -> Response {
    log.begin_generation();
    let result = async {
        let json = body::read_call(&state, request).await?;
        run(&state, &log, &json, route).await
    }
    .await;
    reply::finish(&state, &log, Dialect::Native, result)
}

pub(super) async fn run(
    state: &AppState,
    log: &Arc<RequestLog>,
    json: &Json,
    route: NativeRoute,
) -> Result<Response, Refusal> {
    log.set_body_id(request_id::in_native_body(json)?);
    let permit = state.admit(log.caller().tenant())?;
    let request = read_generate(json, route, &state.bounds(Dialect::Native))?;
    let output = output_of(state, &request, route)?;
    let characters = request.inputs.chars().count();
    let NativeRequest { call, ignored, .. } = request;
    let is_stream = call.stream;
    let generation = Generation::start(state, log, permit, call, Dialect::Native).await?;
    let mut response = if is_stream {
        stream(state, generation, output, characters)?
    } else {
        whole(state, log, generation, &output, characters, route).await?
    };
    reply::add_ignored(state, log, &mut response, &ignored);
    Ok(response)
}

/// `return_full_text` is off unless asked for; but on `/`, as in TGI, it is on for models that the hub calls
/// text-generation models or does not know.
fn output_of(
    state: &AppState,
    request: &NativeRequest,
    route: NativeRoute,
) -> Result<NativeOutput, Refusal> {
    let tag = state.services()?.document.pipeline_tag.as_deref();
    let by_default = route == NativeRoute::Compat && tag.is_none_or(|tag| tag == "text-generation");
    let full = request.return_full_text.unwrap_or(by_default);
    Ok(NativeOutput {
        full_text_prefix: full.then(|| request.inputs.clone()),
        details: request.details,
        prefill: request.decoder_input_details,
        top_tokens: request.call.report.top_n > 0,
    })
}

async fn whole(
    state: &AppState,
    log: &Arc<RequestLog>,
    generation: Generation,
    output: &NativeOutput,
    characters: usize,
    route: NativeRoute,
) -> Result<Response, Refusal> {
    let prompt_ids = generation.prompts().ids.first().cloned();
    let mut records = generation
        .collect()
        .await?
        .into_iter()
        .next()
        .unwrap_or_default();
    rank(&mut records);
    let tokenizer = &state.services()?.tokenizer;
    let answer = response(output, &records, &prompt_ids.unwrap_or_default(), tokenizer)
        .ok_or_else(|| Refusal::new(Cause::Incomplete, "Incomplete generation"))?;
    let measure = Measure {
        characters,
        compute_time: true,
    };
    Ok(if route == NativeRoute::Compat {
        reply::timed_json(state, log, measure, &[answer])
    } else {
        reply::timed_json(state, log, measure, &answer)
    })
}

fn stream(
    state: &AppState,
    generation: Generation,
    output: NativeOutput,
    characters: usize,
) -> Result<Response, Refusal> {
    let input_length = u32::try_from(generation.prompts().tokens()).unwrap_or(u32::MAX);
    let writer = NativeWriter {
        stream: NativeStream::new(output, input_length, generation.seed(0)),
        tokenizer: Arc::clone(&state.services()?.tokenizer),
    };
    Ok(reply::stream(
        state,
        generation,
        writer,
        Dialect::Native,
        characters,
    ))
}

struct NativeWriter {
    stream: NativeStream,
    tokenizer: Arc<Tokenizer>,
}

impl FrameWriter for NativeWriter {
    fn happening(&mut self, happening: Happening) -> Option<String> {
        match happening {
            Happening::Token { step, .. } => {
                Some(to_json(&self.stream.event(&step, &self.tokenizer)))
            }
            Happening::Started { .. }
            | Happening::PromptLogprobs { .. }
            | Happening::PromptOnly { .. } => None,
        }
    }

    fn end(&mut self) -> Vec<String> {
        Vec::new()
    }
}
