//! Every way in which a request is refused or fails, and its status and body per dialect.

use headrace_api::errors::{ErrorResponse, OpenAiError, OpenAiErrorResponse};
use headrace_text::OneLine;
use std::time::Duration;

/// Whose clients read the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// TGI's own routes.
    Native,
    /// `/v1`.
    OpenAi,
}

/// What is wrong. Each has one status per dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The body is no JSON.
    MalformedJson,
    /// A field has the wrong type, is missing or is given twice.
    WrongType,
    /// A bound, or something that is not supported.
    Validation,
    /// `suffix` of a text completion.
    Suffix,
    /// More prompts in one request than may be.
    BatchSize,
    /// The chat template refused the messages.
    Template,
    /// Prompt and output do not fit the context.
    ContextLength,
    /// No key, or a wrong one.
    Unauthorized,
    /// A key that does not open this route.
    Forbidden,
    /// Nobody answers to this model name.
    ModelNotFound,
    /// No such route.
    NotFound,
    /// The route has other methods.
    MethodNotAllowed,
    /// The head is over its bounds.
    HeadTooLarge,
    /// The body is over the byte limit.
    PayloadTooLarge,
    /// The body is not declared as JSON.
    MediaType,
    /// Over the bounds of the house or of the queue.
    Overloaded,
    /// The model failed on this request.
    Generation,
    /// Somebody who may end the request did.
    Aborted,
    /// The sequence ended without an end.
    Incomplete,
    /// The same, in a stream.
    IncompleteStream,
    /// Before the first ready, or while draining.
    Unavailable,
    /// A fault of ours.
    Internal,
}

/// Characters of a message at most. What it quotes is cut long before, so that its end is not lost.
const MOST_CHARACTERS: usize = 1000;

/// Before what is wrong with a text that is no JSON.
pub(crate) const NO_JSON: &str = "Failed to parse the request body as JSON: ";

/// A refused or failed request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    cause: Cause,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
    error_type: Option<&'static str>,
    is_final: bool,
    retry_after: Option<Duration>,
}

impl Refusal {
    /// With a whole message. Whatever it quotes, it is one line, and of a bounded length.
    pub fn new(cause: Cause, message: impl AsRef<str>) -> Self {
        Self {
            cause,
            message: format!("{:.*}", MOST_CHARACTERS, OneLine(message.as_ref())),
            param: None,
            code: None,
            error_type: None,
            is_final: false,
            retry_after: None,
        }
    }

    /// A bound of a field, in TGI's words: the message gets TGI's prefix.
    pub fn validation(param: &str, message: impl AsRef<str>) -> Self {
        let message = format!("Input validation error: {}", message.as_ref());
        Self::new(Cause::Validation, message).with_param(param)
    }

    /// Something that headrace does not do.
    pub fn unsupported(param: &str, what: &str) -> Self {
        Self::validation(param, format!("`{param}`: {what} is not supported"))
    }

    /// A field of the wrong type.
    pub fn wrong_type(path: &str, found: &str, expected: &str) -> Self {
        Self::shape(
            path,
            &format!("{path}: invalid type: {found}, expected {expected}"),
        )
    }

    /// A field that is missing or given twice.
    pub fn shape(path: &str, problem: &str) -> Self {
        let message =
            format!("Failed to deserialize the JSON body into the target type: {problem}");
        Self::new(Cause::WrongType, message).with_param(path)
    }

    /// An integer that its field cannot hold.
    pub(crate) fn invalid_integer(path: &str, value: &str, expected: &str) -> Self {
        Self::shape(
            path,
            &format!("{path}: invalid value: integer `{value}`, expected {expected}"),
        )
    }

    /// The same, with another cause.
    #[must_use]
    pub(crate) fn because(mut self, cause: Cause) -> Self {
        self.cause = cause;
        self
    }

    /// No JSON at all. `path`: the innermost value that could not be read, empty for the body itself.
    pub fn malformed_json(path: &str, problem: &str) -> Self {
        if path.is_empty() {
            return Self::new(Cause::MalformedJson, format!("{NO_JSON}{problem}"));
        }
        Self::new(Cause::MalformedJson, format!("{NO_JSON}{path}: {problem}")).with_param(path)
    }

    /// The model failed, in TGI's words.
    pub fn generation(problem: &str) -> Self {
        Self::new(
            Cause::Generation,
            format!("Request failed during generation: {problem}"),
        )
    }

    /// The house or the queue is full.
    pub fn overloaded() -> Self {
        Self::new(Cause::Overloaded, "Model is overloaded")
    }

    /// Names the field, for `param` on `/v1`.
    #[must_use]
    pub fn with_param(mut self, param: &str) -> Self {
        self.param = Some(param.to_owned());
        self
    }

    /// Says more than its cause does, for `code` on `/v1`.
    #[must_use]
    pub(crate) fn with_code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// A name of its own for `error_type`, where a route has one in TGI.
    #[must_use]
    pub(crate) fn with_error_type(mut self, error_type: &'static str) -> Self {
        self.error_type = Some(error_type);
        self
    }

    /// Says which part of a request is meant, after the words that clients look for.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.message = format!("{} ({place})", self.message);
        self.param = Some(match &self.param {
            Some(param) => format!("{place}.{param}"),
            None => place.to_owned(),
        });
        self
    }

    /// The same request would fail again.
    #[must_use]
    pub(crate) fn not_to_be_repeated(mut self) -> Self {
        self.is_final = true;
        self
    }

    /// When this request may be sent again, where that is known better than for all.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// See [`Refusal::with_retry_after`].
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// `false`: the same request would fail again, and clients that repeat by themselves are told so.
    pub fn may_be_repeated(&self) -> bool {
        !self.is_final
    }

    /// The field that is wrong.
    pub fn param(&self) -> Option<&str> {
        self.param.as_deref()
    }

    /// What is wrong.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// For people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// TGI's name for it, the same in every dialect.
    pub fn error_type(&self) -> &'static str {
        self.error_type.unwrap_or(match self.cause {
            Cause::MalformedJson
            | Cause::WrongType
            | Cause::Validation
            | Cause::ContextLength
            | Cause::HeadTooLarge
            | Cause::PayloadTooLarge
            | Cause::MediaType => "validation",
            Cause::Suffix => "suffix not supported",
            Cause::BatchSize => "batch size exceeded",
            Cause::Template => "template_error",
            Cause::Unauthorized => "unauthorized",
            Cause::Forbidden => "forbidden",
            Cause::ModelNotFound => "model_not_found",
            Cause::NotFound => "not_found",
            Cause::MethodNotAllowed => "method_not_allowed",
            Cause::Overloaded => "overloaded",
            Cause::Generation | Cause::Aborted => "generation",
            Cause::Incomplete => "incomplete_generation",
            Cause::IncompleteStream => "incomplete_generation_stream",
            Cause::Unavailable => "unavailable",
            Cause::Internal => "internal",
        })
    }

    /// HTTP status (the map of `docs/compatibility.md`).
    pub fn status(&self, dialect: Dialect) -> u16 {
        match self.cause {
            Cause::MalformedJson => 400,
            Cause::WrongType
            | Cause::Validation
            | Cause::Suffix
            | Cause::BatchSize
            | Cause::Template
            | Cause::ContextLength => match dialect {
                Dialect::Native => 422,
                Dialect::OpenAi => 400,
            },
            Cause::Unauthorized => 401,
            Cause::Forbidden => 403,
            Cause::ModelNotFound => match dialect {
                Dialect::Native => 422,
                Dialect::OpenAi => 404,
            },
            Cause::NotFound => 404,
            Cause::MethodNotAllowed => 405,
            Cause::HeadTooLarge => 431,
            Cause::PayloadTooLarge => 413,
            Cause::MediaType => 415,
            Cause::Overloaded => 429,
            Cause::Generation | Cause::Aborted => match dialect {
                Dialect::Native => 424,
                Dialect::OpenAi => 500,
            },
            Cause::Incomplete | Cause::IncompleteStream | Cause::Internal => 500,
            Cause::Unavailable => 503,
        }
    }

    /// The JSON body.
    pub fn body(&self, dialect: Dialect) -> String {
        match dialect {
            Dialect::Native => to_json(&ErrorResponse {
                error: self.message.clone(),
                error_type: self.error_type().to_owned(),
            }),
            Dialect::OpenAi => to_json(&self.openai(None)),
        }
    }

    /// The `data:` of an error that comes after the headers.
    pub fn stream_body(&self, dialect: Dialect) -> String {
        match dialect {
            Dialect::Native => self.body(dialect),
            Dialect::OpenAi => to_json(&self.openai(Some(self.status(dialect)))),
        }
    }

    fn openai(&self, http_status_code: Option<u16>) -> OpenAiErrorResponse {
        let (kind, code) = self.openai_type_and_code();
        let code = self.code.or(code);
        OpenAiErrorResponse {
            error: OpenAiError {
                message: self.message.clone(),
                kind: kind.to_owned(),
                param: self.param.clone(),
                code: code.map(str::to_owned),
                http_status_code,
            },
            error_type: self.error_type().to_owned(),
        }
    }

    fn openai_type_and_code(&self) -> (&'static str, Option<&'static str>) {
        match self.cause {
            Cause::ContextLength => ("invalid_request_error", Some("context_length_exceeded")),
            Cause::Unauthorized => ("invalid_request_error", Some("invalid_api_key")),
            Cause::Forbidden => ("invalid_request_error", Some("permission_denied")),
            Cause::ModelNotFound => ("invalid_request_error", Some("model_not_found")),
            Cause::Overloaded => ("rate_limit_exceeded", Some("rate_limit_exceeded")),
            Cause::Unavailable => ("server_error", Some("service_unavailable")),
            Cause::Generation
            | Cause::Aborted
            | Cause::Incomplete
            | Cause::IncompleteStream
            | Cause::Internal => ("server_error", None),
            Cause::MalformedJson
            | Cause::WrongType
            | Cause::Validation
            | Cause::Suffix
            | Cause::BatchSize
            | Cause::Template
            | Cause::NotFound
            | Cause::MethodNotAllowed
            | Cause::HeadTooLarge
            | Cause::PayloadTooLarge
            | Cause::MediaType => ("invalid_request_error", None),
        }
    }
}

/// Serialises one of our own wire types. They hold strings, numbers and lists only, so this cannot fail; if it
/// ever did, the client would get an empty object rather than a broken frame.
pub fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_follow_the_map() {
        let cases = [
            (Cause::MalformedJson, 400, 400),
            (Cause::WrongType, 422, 400),
            (Cause::Validation, 422, 400),
            (Cause::Suffix, 422, 400),
            (Cause::BatchSize, 422, 400),
            (Cause::Template, 422, 400),
            (Cause::ContextLength, 422, 400),
            (Cause::Unauthorized, 401, 401),
            (Cause::Forbidden, 403, 403),
            (Cause::ModelNotFound, 422, 404),
            (Cause::HeadTooLarge, 431, 431),
            (Cause::PayloadTooLarge, 413, 413),
            (Cause::MediaType, 415, 415),
            (Cause::Overloaded, 429, 429),
            (Cause::Generation, 424, 500),
            (Cause::Unavailable, 503, 503),
        ];
        for (cause, native, openai) in cases {
            let refusal = Refusal::new(cause, "x");
            assert_eq!(refusal.status(Dialect::Native), native, "{cause:?}");
            assert_eq!(refusal.status(Dialect::OpenAi), openai, "{cause:?}");
        }
    }

    #[test]
    fn bodies_are_exact() {
        let refusal = Refusal::validation("inputs", "`inputs` cannot be empty");
        assert_eq!(
            refusal.body(Dialect::Native),
            r#"{"error":"Input validation error: `inputs` cannot be empty","error_type":"validation"}"#
        );
        assert_eq!(
            refusal.body(Dialect::OpenAi),
            r#"{"error":{"message":"Input validation error: `inputs` cannot be empty","type":"invalid_request_error","param":"inputs","code":null},"error_type":"validation"}"#
        );
        let late = Refusal::generation("the worker is gone");
        assert_eq!(
            late.stream_body(Dialect::OpenAi),
            r#"{"error":{"message":"Request failed during generation: the worker is gone","type":"server_error","param":null,"code":null,"http_status_code":500},"error_type":"generation"}"#
        );
    }
}
