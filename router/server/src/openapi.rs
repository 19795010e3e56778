//! The `OpenAPI` document and its page.

use crate::app::AppState;
use crate::routes::{
    chat, completions, control, generate, info, invocations, kserve, probes, reply, tokenize,
    vertex,
};
use axum::Router;
use axum::response::Response;
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
    info(
        title = "headrace",
        description = "Large language models over HTTP: TGI's routes and OpenAI's.",
        license(name = "Apache 2.0", url = "https://www.apache.org/licenses/LICENSE-2.0")
    ),
    tags(
        (name = "Text Generation Inference", description = "TGI's routes"),
        (name = "OpenAI", description = "OpenAI's routes"),
        (name = "KServe", description = "KServe's inference protocol, version 2"),
        (name = "Control", description = "For operators: there only with an admin key, and only for its holder")
    )
)]
struct Document;

/// The page that shows the document.
pub(crate) fn page() -> Router<AppState> {
    Router::from(SwaggerUi::new("/docs").config(Config::from("/api-doc/openapi.json")))
}

/// The document itself.
pub(crate) async fn document() -> Response {
    reply::json(&Document::openapi())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_holds_every_public_route() {
        let document = serde_json::to_value(Document::openapi()).unwrap();
        let paths = document["paths"].as_object().unwrap();
        for path in [
            "/",
            "/generate",
            "/generate_stream",
            "/v1/chat/completions",
            "/v1/completions",
            "/tokenize",
            "/chat_tokenize",
            "/info",
            "/v1/models",
            "/v1/models/{id}",
            "/health",
            "/ping",
            "/ready",
            "/metrics",
            "/invocations",
            "/vertex",
            "/v2",
            "/v2/health/live",
            "/v2/health/ready",
            "/v2/models/{model}",
            "/v2/models/{model}/ready",
            "/v2/models/{model}/infer",
            "/v2/models/{model}/versions/{version}",
            "/v2/models/{model}/versions/{version}/ready",
            "/v2/models/{model}/versions/{version}/infer",
            "/drain",
            "/flush_cache",
        ] {
            assert!(paths.contains_key(path), "{path}");
        }
        assert!(paths["/"].get("post").is_some() && paths["/"].get("get").is_some());
        let chat = &document["components"]["schemas"]["ChatRequest"];
        assert!(chat.to_string().contains("temperature") || chat.get("allOf").is_some());
    }
}
