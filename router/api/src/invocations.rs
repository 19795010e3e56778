//! `SageMaker`'s route: three dialects in one.

use crate::chat::{ChatCompletion, ChatRequest};
use crate::completion::{Completion, CompletionRequest};
use crate::errors::{ErrorResponse, OpenAiErrorResponse};
use crate::native::{CompatGenerateRequest, GenerateResponse};
use serde::Serialize;
use utoipa::ToSchema;

/// Body of `/invocations`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum InvocationsBody {
    /// `inputs`, as at `/`.
    Generate(Box<CompatGenerateRequest>),
    /// `messages`, as at `/v1/chat/completions`.
    Chat(Box<ChatRequest>),
    /// `prompt`, as at `/v1/completions`.
    Completion(Box<CompletionRequest>),
}

/// Answer of `/invocations`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum InvocationsAnswer {
    /// To `inputs`.
    Generate(Vec<GenerateResponse>),
    /// To `messages`.
    Chat(Box<ChatCompletion>),
    /// To `prompt`.
    Completion(Box<Completion>),
}

/// Error of `/invocations`, in the shape of its body's dialect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum AnyErrorResponse {
    /// Native.
    Native(ErrorResponse),
    /// `OpenAI`'s.
    OpenAi(OpenAiErrorResponse),
}
