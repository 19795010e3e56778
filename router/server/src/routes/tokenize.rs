//! `/tokenize` in TGI's and vLLM's shapes, and `/chat_tokenize`.

use super::{body, reply};
use crate::app::AppState;
use crate::request_log::RequestLog;
use crate::validate::{encode_prompt, run_rendering};
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use headrace_api::chat::ChatRequest;
use headrace_api::tokenize::{
    ChatTokenizeResponse, SimpleToken, TokenizeAnswer, TokenizeBody, TokenizeResponse,
};
use headrace_dialect::openai::{TokenizeCall, read_chat_tokenize, read_tokenize};
use headrace_dialect::refusal::{Dialect, Refusal};
use headrace_text::Encoding;
use std::sync::Arc;

/// Tokenize: `inputs` gives a list of tokens with their places, `prompt` or `messages` the ids and their number.
#[utoipa::path(
    post, path = "/tokenize", tag = "Text Generation Inference", request_body = TokenizeBody,
    responses((status = 200, description = "Tokens", body = TokenizeAnswer))
)]
pub(crate) async fn tokenize(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    let dialect = state.dialect_of(request.uri().path());
    let result = run_tokenize(&state, &log, request, dialect).await;
    reply::finish(&state, &log, dialect, result)
}

async fn run_tokenize(
    state: &AppState,
    log: &RequestLog,
    request: Request,
    dialect: Dialect,
) -> Result<Response, Refusal> {
    state.services()?;
    let tenant = log.caller().tenant();
    let json = body::read_json(state, request).await?;
    let limits = state.context_limits().ok();
    let (mut response, ignored) = match read_tokenize(&json, &state.bounds(Dialect::OpenAi))? {
        TokenizeCall::Native { prompt, ignored } => {
            let tokens = run_rendering(state, tenant, prompt.weight(), move |services, memory| {
                let (encoding, text) = encode_prompt(services, &prompt, (limits, memory), dialect)?;
                Ok(simple_tokens(&encoding, &text))
            })
            .await?;
            (reply::json(&tokens), ignored)
        }
        TokenizeCall::Counted {
            prompt,
            return_token_strs,
            ignored,
        } => {
            let max_model_len = state.context_limits()?.max_total_tokens;
            let answer = run_rendering(state, tenant, prompt.weight(), move |services, memory| {
                let (encoding, _) = encode_prompt(services, &prompt, (limits, memory), dialect)?;
                let text_of = |id: &u32| {
                    services
                        .tokenizer
                        .id_to_token(*id)
                        .unwrap_or_else(|| services.tokenizer.token_text(*id))
                };
                Ok(TokenizeResponse {
                    count: encoding.ids.len(),
                    max_model_len,
                    token_strs: return_token_strs
                        .then(|| encoding.ids.iter().map(text_of).collect()),
                    tokens: encoding.ids,
                })
            })
            .await?;
            (reply::json(&answer), ignored)
        }
    };
    reply::add_ignored(state, log, &mut response, &ignored);
    Ok(response)
}

/// Template and tokenize a chat request.
#[utoipa::path(
    post, path = "/chat_tokenize", tag = "Text Generation Inference", request_body = ChatRequest,
    responses(
        (status = 200, description = "Tokens and the templated text", body = ChatTokenizeResponse),
        (status = 422, description = "A field is not valid, or the template refuses the messages"),
    )
)]
pub(crate) async fn chat_tokenize(
    State(state): State<AppState>,
    Extension(log): Extension<Arc<RequestLog>>,
    request: Request,
) -> Response {
    let result = run_chat_tokenize(&state, &log, request).await;
    reply::finish(&state, &log, Dialect::Native, result)
}

async fn run_chat_tokenize(
    state: &AppState,
    log: &RequestLog,
    request: Request,
) -> Result<Response, Refusal> {
    state.services()?;
    let tenant = log.caller().tenant();
    let json = body::read_json(state, request).await?;
    let (prompt, ignored) = read_chat_tokenize(&json, &state.bounds(Dialect::OpenAi))?;
    let limits = state.context_limits().ok();
    let answer = run_rendering(state, tenant, prompt.weight(), move |services, memory| {
        let (encoding, text) = encode_prompt(services, &prompt, (limits, memory), Dialect::Native)?;
        Ok(ChatTokenizeResponse {
            tokenize_response: simple_tokens(&encoding, &text),
            templated_text: text,
        })
    })
    .await?;
    let mut response = reply::json(&answer);
    reply::add_ignored(state, log, &mut response, &ignored);
    Ok(response)
}

/// Tokens with their slices of the text.
fn simple_tokens(encoding: &Encoding, text: &str) -> Vec<SimpleToken> {
    encoding
        .ids
        .iter()
        .zip(&encoding.offsets)
        .map(|(&id, &(start, stop))| SimpleToken {
            id,
            // A token may end inside a character: what there is of it is shown.
            text: text
                .as_bytes()
                .get(start..stop)
                .map_or_else(String::new, |slice| {
                    String::from_utf8_lossy(slice).into_owned()
                }),
            start,
            stop,
        })
        .collect()
}
