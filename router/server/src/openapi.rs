//! The `OpenAPI` document and its page.

mod complete;

use crate::app::AppState;
use crate::routes::{
    abort, about, chat, completions, control, detokenize, generate, info, invocations, kserve,
    probes, reply, tokenize, vertex,
};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use complete::complete;
use headrace_api::chat::ChatCompletionChunk;
use headrace_api::errors::{ErrorResponse, OpenAiErrorResponse};
use headrace_api::invocations::AnyErrorResponse;
use headrace_api::native::StreamResponse;
use headrace_dialect::refusal::to_json;
use http::header::CONTENT_LENGTH;
use http::{Method, StatusCode};
use serde_json::Value;
use std::sync::OnceLock;
use utoipa::OpenApi;
use utoipa_swagger_ui::{Config, SwaggerUi};

#[derive(OpenApi)]
#[openapi(
    paths(
        generate::compat,
        generate::generate,
        generate::generate_stream,
        invocations::invocations,
        vertex::vertex,
        kserve::server_metadata,
        kserve::live,
        kserve::ready,
        kserve::model,
        kserve::model_ready,
        kserve::infer,
        kserve::model_version,
        kserve::model_version_ready,
        kserve::infer_version,
        chat::chat_completions,
        completions::completions,
        tokenize::tokenize,
        tokenize::chat_tokenize,
        detokenize::detokenize,
        abort::abort,
        document,
        about::version,
        about::load,
        about::server_info,
        about::model_info,
        about::tokenizer_info,
        info::info,
        info::models,
        info::model,
        probes::root,
        probes::health,
        probes::ping,
        probes::ready,
        probes::metrics,
        control::drain,
        control::flush_cache,
    ),
    components(schemas(
        AnyErrorResponse,
        ErrorResponse,
        OpenAiErrorResponse,
        ChatCompletionChunk,
        StreamResponse
    )),
    info(
        title = "headrace",
        description = "Large language models over HTTP: TGI's routes and OpenAI's.",
        license(name = "Apache 2.0", url = "https://www.apache.org/licenses/LICENSE-2.0")
    ),
    tags(
        (name = "Text Generation Inference", description = "TGI's routes"),
        (name = "OpenAI", description = "OpenAI's routes"),
        (name = "KServe", description = "KServe's inference protocol, version 2"),
        (name = "Tokens", description = "The tokenizer, for clients that count or score by themselves"),
        (name = "Requests", description = "Running requests"),
        (name = "Server", description = "What the server says about itself"),
        (name = "Control", description = "For operators: there only with an admin key, and only for its holder")
    )
)]
struct Document;

/// The page that shows the document.
pub(crate) fn page() -> Router<AppState> {
    Router::from(SwaggerUi::new("/docs").config(Config::from("/api-doc/openapi.json")))
        .layer(middleware::from_fn(titled))
}

/// Bytes of the page, far more than it has.
const LARGEST_PAGE: usize = 1 << 16;

/// The page comes with its maker's title.
async fn titled(request: Request, next: Next) -> Response {
    let is_page = request.method() == Method::GET
        && matches!(request.uri().path(), "/docs/" | "/docs/index.html");
    let response = next.run(request).await;
    if !is_page {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let page = to_bytes(body, LARGEST_PAGE).await.unwrap_or_default();
    let page = String::from_utf8_lossy(&page);
    let page = page.replacen("<title>Swagger UI<", "<title>headrace<", 1);
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(page))
}

/// This document.
#[utoipa::path(
    get, path = "/api-doc/openapi.json", tag = "Server",
    responses((status = 200, description = "`OpenAPI` 3.1", body = Object))
)]
pub(crate) async fn document() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text = TEXT.get_or_init(|| to_json(&value()));
    reply::json_text(StatusCode::OK, text.clone())
}

fn value() -> Value {
    let mut value = serde_json::to_value(Document::openapi()).unwrap_or_default();
    complete(&mut value);
    value
}
