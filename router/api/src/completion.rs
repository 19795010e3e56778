//! `/v1/completions`.

use crate::chat::{CommonParameters, OpenAiFinishReason, StopReason, Usage};
use serde::Serialize;
use utoipa::ToSchema;

/// Body of `/v1/completions`. `null` is the same as absent everywhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct CompletionRequest {
    /// Any name, unless the server is strict about it.
    #[schema(example = "tgi")]
    pub model: Option<String>,
    /// A string, token ids, or a list of either.
    #[schema(value_type = Object)]
    pub prompt: serde_json::Value,
    /// How to sample, stop and report.
    #[serde(flatten)]
    pub common: CommonParameters,
    /// Report the sampled token and the N likeliest of each place.
    #[schema(minimum = 0)]
    pub logprobs: Option<u32>,
    /// Generate this many and keep the `n` likeliest.
    #[schema(minimum = 1)]
    pub best_of: Option<u32>,
    /// Add the tokenizer's special tokens to a text prompt. Default true.
    pub add_special_tokens: Option<bool>,
}

/// Answer of `/v1/completions`, and one event of its stream.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Completion {
    /// `cmpl-…`.
    pub id: String,
    /// `text_completion`.
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// The served model.
    pub model: String,
    /// `VERSION-LABEL`.
    pub system_fingerprint: String,
    /// In order of index.
    pub choices: Vec<CompletionChoice>,
    /// Token counts. Absent from chunks unless asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Usage>)]
    pub usage: Option<ChunkUsage>,
    /// `default`, if the request names a tier: there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<&'static str>,
}

/// `usage` where the key is shown: in chunks before the last it is `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ChunkUsage {
    /// The counts.
    Known(Usage),
    /// `null`.
    Pending(()),
}

/// One choice, or a part of one.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct CompletionChoice {
    /// `prompt × n + i`.
    pub index: u32,
    /// Its text.
    pub text: String,
    /// When asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// Why it ended; `null` in all chunks but the choice's last.
    pub finish_reason: Option<OpenAiFinishReason>,
    /// There, too: the stop string or stop id of the request that ended it.
    pub stop_reason: Option<StopReason>,
}

/// `logprobs` of a text completion: four lists of one length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct CompletionLogprobs {
    /// Texts.
    pub tokens: Vec<String>,
    /// Raw log-softmax; -9999 for minus infinity.
    pub token_logprobs: Vec<f32>,
    /// The N likeliest and the sampled one, by text.
    #[schema(value_type = Vec<Object>)]
    pub top_logprobs: Vec<serde_json::Map<String, serde_json::Value>>,
    /// Characters of the choice's text before the token.
    pub text_offset: Vec<usize>,
}
