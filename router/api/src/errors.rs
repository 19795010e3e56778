//! Error bodies.

use serde::Serialize;
use utoipa::ToSchema;

/// Native routes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ErrorResponse {
    /// For people.
    #[schema(example = "Input validation error: `inputs` cannot be empty")]
    pub error: String,
    /// For programs.
    #[schema(example = "validation")]
    pub error_type: String,
}

/// `/v1` routes: `OpenAI`'s object, and TGI's `error_type` beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OpenAiErrorResponse {
    /// The error.
    pub error: OpenAiError,
    /// As on native routes.
    pub error_type: String,
}

/// `OpenAI`'s error object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OpenAiError {
    /// For people.
    pub message: String,
    /// `invalid_request_error`, `rate_limit_exceeded`, `server_error` …
    #[serde(rename = "type")]
    pub kind: String,
    /// The field that is wrong.
    pub param: Option<String>,
    /// `context_length_exceeded`, `model_not_found` …
    pub code: Option<String>,
    /// The status, in errors that come after the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status_code: Option<u16>,
}
