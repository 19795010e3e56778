//! `/v1/completions`.

use crate::chat::{CommonParameters, OpenAiFinishReason, PromptLogprobs, StopReason, Usage};
use crate::shapes::Prompts;
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// Body of `/v1/completions`. `null` is the same as absent everywhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct CompletionRequest {
    /// Any name, unless the server is strict about it.
    #[schema(example = "tgi")]
    pub model: Option<String>,
    /// A string, token ids, or a list of either.
    #[schema(value_type = Prompts)]
    pub prompt: serde_json::Value,
    /// How to sample, stop and report.
    #[serde(flatten)]
    pub common: CommonParameters,
    /// Report the sampled token and the N likeliest of each place; with `echo`, of the prompt's places too.
    #[schema(minimum = 0)]
    pub logprobs: Option<u32>,
    /// Begin each choice with its prompt. Then `max_tokens` may be 0: the prompt is all there is.
    pub echo: Option<bool>,
    /// The choice goes between `prompt` and this, where the tokenizer has tokens to say so.
    pub suffix: Option<String>,
    /// Same as `max_tokens`, and wins over it.
    pub max_completion_tokens: Option<u32>,
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
    /// Under `prompt_logprobs`: one entry a prompt token, `null` for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    pub prompt_logprobs: Option<Vec<Option<PromptLogprobs>>>,
    /// Under `return_token_ids`: the prompt's; in a stream in the choice's first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Under `return_token_ids`: the output's, an end id too; in a stream those of the chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// `logprobs` of a text completion: four lists of one length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct CompletionLogprobs {
    /// Texts.
    pub tokens: Vec<String>,
    /// Raw log-softmax; -9999 for minus infinity, `null` for an echoed prompt's first token.
    pub token_logprobs: Vec<Option<f32>>,
    /// The N likeliest and the token's own, by text.
    #[schema(value_type = Vec<Option<Object>>)]
    pub top_logprobs: Vec<Option<TopLogprobs>>,
    /// Characters of the choice's text before the token.
    pub text_offset: Vec<usize>,
}

/// Logprobs by text, each text once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopLogprobs(pub Vec<(String, f32)>);

impl Serialize for TopLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(text, logprob)| (text, logprob)))
    }
}
