//! Vertex AI's predict route.

use crate::chat::ChatRequest;
use crate::native::GenerateParameters;
use serde::Serialize;
use utoipa::ToSchema;

/// Body of `/vertex`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct VertexRequest {
    /// At least one; they run at the same time.
    #[schema(min_items = 1)]
    pub instances: Vec<VertexInstance>,
    /// What the request is called; `/abort` ends it by this. An instance may have a name of its own.
    #[schema(
        min_length = 1,
        max_length = 128,
        pattern = "^[A-Za-z0-9_.:/+=~@-]{1,128}$"
    )]
    pub request_id: Option<String>,
    /// The same, as `SGLang` calls it.
    #[schema(
        min_length = 1,
        max_length = 128,
        pattern = "^[A-Za-z0-9_.:/+=~@-]{1,128}$"
    )]
    pub rid: Option<String>,
}

/// A prompt with TGI's parameters, or a chat request.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum VertexInstance {
    /// As in `/generate`.
    Generate(Box<GenerateInstance>),
    /// As in `/v1/chat/completions`, but one choice and no stream.
    Chat(Box<ChatRequest>),
}

/// A prompt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct GenerateInstance {
    /// The prompt, not empty.
    #[schema(example = "What is Deep Learning?")]
    pub inputs: String,
    /// How to generate.
    #[schema(required = false)]
    pub parameters: GenerateParameters,
}

/// Answer of `/vertex`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct VertexResponse {
    /// The text of each instance, in their order.
    pub predictions: Vec<String>,
}
