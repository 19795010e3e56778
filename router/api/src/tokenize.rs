//! `/tokenize` in its two shapes, and `/chat_tokenize`.

use crate::chat::ChatMessage;
use crate::native::GenerateRequest;
use serde::Serialize;
use utoipa::ToSchema;

/// A token and where it lies in the text (TGI's shape).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SimpleToken {
    /// Its id.
    pub id: u32,
    /// The slice of the input.
    pub text: String,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub stop: usize,
}

/// Body of `/tokenize` with `prompt` or `messages` (vLLM's shape).
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct TokenizeRequest {
    /// Any name.
    pub model: Option<String>,
    /// The text; or `messages`.
    pub prompt: Option<String>,
    /// The chat; or `prompt`.
    #[schema(value_type = Option<Vec<ChatMessage>>)]
    pub messages: Option<serde_json::Value>,
    /// Add the tokenizer's special tokens. Default true for a prompt, false for a chat.
    pub add_special_tokens: Option<bool>,
    /// Give the text of each token too.
    pub return_token_strs: Option<bool>,
}

/// Body of `/tokenize`: in TGI's shape or in vLLM's.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum TokenizeBody {
    /// `inputs`.
    Native(Box<GenerateRequest>),
    /// `prompt` or `messages`.
    Counted(TokenizeRequest),
}

/// Answer of `/tokenize`, in the shape of its body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum TokenizeAnswer {
    /// To `inputs`.
    Native(Vec<SimpleToken>),
    /// To `prompt` or `messages`.
    Counted(TokenizeResponse),
}

/// Answer of `/tokenize` with `prompt` or `messages`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TokenizeResponse {
    /// How many tokens.
    pub count: usize,
    /// Prompt and output tokens at most.
    pub max_model_len: u32,
    /// The ids.
    pub tokens: Vec<u32>,
    /// Their texts, when asked for.
    pub token_strs: Option<Vec<String>>,
}

/// Answer of `/chat_tokenize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ChatTokenizeResponse {
    /// The tokens.
    pub tokenize_response: Vec<SimpleToken>,
    /// What the chat template made of the messages.
    pub templated_text: String,
}

/// Body of `/detokenize`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct DetokenizeRequest {
    /// Any name.
    pub model: Option<String>,
    /// Token ids, below the vocabulary size.
    #[schema(max_items = 131_072)]
    pub tokens: Vec<u32>,
    /// Leave special tokens out. Default false, as in vLLM.
    pub skip_special_tokens: Option<bool>,
}

/// Answer of `/detokenize`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DetokenizeResponse {
    /// The text; ill-formed bytes are replaced.
    pub prompt: String,
}

/// Answer of `/tokenizer_info`: `tokenizer_config.json`, tokens as texts, and the chat template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct TokenizerInfo {
    /// As the model's files say.
    pub tokenizer_class: String,
    /// `bos_token`, `eos_token`, `unk_token`, `pad_token` (`null` where there is none), `chat_template`, and whatever else
    /// is in the file.
    #[serde(flatten)]
    #[schema(value_type = Object, additional_properties)]
    pub other: serde_json::Map<String, serde_json::Value>,
}
