//! `/v1/chat/completions`.

use crate::shapes::{Content, OneOrMany, ResponseFormat};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

/// Body of `/v1/chat/completions`. `null` is the same as absent everywhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ChatRequest {
    /// Any name, unless the server is strict about it.
    #[schema(example = "tgi")]
    pub model: Option<String>,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// How to sample, stop and report.
    #[serde(flatten)]
    pub common: CommonParameters,
    /// Same as `max_completion_tokens`, which wins.
    #[schema(minimum = 1)]
    pub max_completion_tokens: Option<u32>,
    /// Report logprobs.
    pub logprobs: Option<bool>,
    /// The likeliest tokens of each place.
    #[schema(minimum = 0)]
    pub top_logprobs: Option<u32>,
    /// `{"type": "text"}`, or a grammar in TGI's form: `{"type": "json" | "json_object" | "json_schema" | "regex",
    /// "value": …}`, `json_object` also without `value`. The other forms are refused for now.
    #[schema(value_type = Option<ResponseFormat>)]
    pub response_format: Option<serde_json::Value>,
    /// Only empty for now.
    #[schema(value_type = Option<Vec<Object>>, max_items = 0)]
    pub tools: Option<serde_json::Value>,
    /// Open the assistant's turn. Default: unless the last message is the assistant's.
    pub add_generation_prompt: Option<bool>,
    /// Continue the last message. Default: if it is the assistant's.
    pub continue_final_message: Option<bool>,
    /// Begin the answer with the last message's text, if that has the answer's role.
    pub echo: Option<bool>,
    /// Add the tokenizer's special tokens, which templates usually have written. Default: false.
    pub add_special_tokens: Option<bool>,
    /// An object: variables for the chat template, 64 at most.
    #[schema(value_type = Option<Object>)]
    pub chat_template_kwargs: Option<serde_json::Value>,
    /// Objects for templates that know documents, 1,024 at most.
    #[schema(value_type = Option<Vec<Object>>)]
    pub documents: Option<serde_json::Value>,
}

/// A message of a chat.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant`, `tool`, `function`, or what the model's template knows.
    pub role: String,
    /// Text, or text parts.
    #[schema(value_type = Option<Content>)]
    pub content: Option<serde_json::Value>,
    /// Who.
    pub name: Option<String>,
    /// Of an assistant: what it thought before it answered. `reasoning` and `thinking` mean the same.
    pub reasoning_content: Option<String>,
    /// Of an assistant: what it said in place of an answer.
    pub refusal: Option<String>,
    /// Of an assistant: past calls, `{id, type, function: {name, arguments}}`.
    #[schema(value_type = Option<Vec<Object>>)]
    pub tool_calls: Option<serde_json::Value>,
    /// Of a tool: the call that it answers.
    pub tool_call_id: Option<String>,
}

/// Fields that both `/v1` generation routes take, beside each other on the top level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct CommonParameters {
    /// `>= 0`; 0 is greedy.
    #[schema(minimum = 0.0)]
    pub temperature: Option<f32>,
    /// `(0, 1]`.
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    pub top_p: Option<f32>,
    /// -1 and 0 are off.
    #[schema(minimum = -1)]
    pub top_k: Option<i64>,
    /// `[0, 1]`.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub min_p: Option<f32>,
    /// `(0, 1]`; 1 is off.
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    pub typical_p: Option<f32>,
    /// `> 0`.
    #[schema(exclusive_minimum = 0.0)]
    pub repetition_penalty: Option<f32>,
    /// Additive, over output tokens.
    #[schema(minimum = -2.0, maximum = 2.0)]
    pub frequency_penalty: Option<f32>,
    /// Additive, over output tokens.
    #[schema(minimum = -2.0, maximum = 2.0)]
    pub presence_penalty: Option<f32>,
    /// Absent: random. Choice i uses seed + i.
    pub seed: Option<i64>,
    /// Choices.
    #[schema(minimum = 1)]
    pub n: Option<u32>,
    /// Absent: to the context limit.
    #[schema(minimum = 1)]
    pub max_tokens: Option<u32>,
    /// No end before this many output tokens.
    pub min_tokens: Option<u32>,
    /// A string or several; the text ends before it.
    #[schema(value_type = Option<OneOrMany>)]
    pub stop: Vec<String>,
    /// Ids that end the output.
    #[schema(required = false)]
    pub stop_token_ids: Vec<u32>,
    /// From token id to a number added to its logit.
    #[schema(value_type = Option<std::collections::HashMap<String, f32>>)]
    pub logit_bias: Option<serde_json::Value>,
    /// Nothing else is sampled, not even an end id.
    #[schema(required = false, min_items = 1, max_items = 8192)]
    pub allowed_token_ids: Vec<u32>,
    /// Words that must not come, with or without a space before them.
    #[schema(required = false, max_items = 128)]
    pub bad_words: Vec<String>,
    /// The model's end ids do not end the output.
    pub ignore_eos: Option<bool>,
    /// Keep the last N prompt tokens.
    #[schema(minimum = 1)]
    pub truncate: Option<u32>,
    /// vLLM's name for it. -1: as many as the context has beside `max_tokens`.
    #[schema(minimum = -1)]
    pub truncate_prompt_tokens: Option<i64>,
    /// Which end `truncate_prompt_tokens` cuts off: `left` (default) or `right`.
    pub truncation_side: Option<String>,
    /// The text ends after the stop rather than before it.
    pub include_stop_str_in_output: Option<bool>,
    /// False: the text shows special tokens. Default true.
    pub skip_special_tokens: Option<bool>,
    /// No text here has spaces between special tokens that the tokens themselves have not.
    pub spaces_between_special_tokens: Option<bool>,
    /// Any: there is one tier, and the answer names it.
    pub service_tier: Option<String>,
    /// Report the logprobs of the prompt's tokens and of the N likeliest of each of its places. Not in streams.
    #[schema(minimum = 0)]
    pub prompt_logprobs: Option<u32>,
    /// Report the ids of the prompt and of the output.
    pub return_token_ids: Option<bool>,
    /// Write `token_id:N` for the texts of tokens in `logprobs`.
    pub return_tokens_as_token_ids: Option<bool>,
    /// Answer with server-sent events.
    pub stream: Option<bool>,
    /// What the stream carries.
    pub stream_options: Option<StreamOptions>,
    /// Class in the queue: lower ones run first. Default: the API key's; a number below the key's is refused.
    #[schema(minimum = -100, maximum = 100)]
    pub priority: Option<i32>,
    /// Cached prefixes are shared with requests of the same salt only.
    #[schema(min_length = 1, max_length = 1024)]
    pub cache_salt: Option<String>,
    /// `in_memory` (default), or `24h`: the prompt's cache stays longer than those of others.
    pub prompt_cache_retention: Option<String>,
    /// Seconds from the request's arrival by which it must have begun to run; it is refused or fails if it cannot.
    #[schema(exclusive_minimum = 0.0, maximum = 86400.0)]
    pub timeout: Option<f32>,
    /// Names the request, for `/abort` and the answer's `x-request-id`.
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

/// `stream_options`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct StreamOptions {
    /// One last chunk with `usage` and no choices.
    #[schema(required = false, default = false)]
    pub include_usage: bool,
    /// `usage` so far in every chunk.
    #[schema(required = false, default = false)]
    pub continuous_usage_stats: bool,
}

/// Token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Usage {
    /// Of all prompts.
    pub prompt_tokens: u32,
    /// Of all choices.
    pub completion_tokens: u32,
    /// Both.
    pub total_tokens: u32,
    /// More about the prompt.
    pub prompt_tokens_details: PromptTokensDetails,
    /// More about the output.
    pub completion_tokens_details: CompletionTokensDetails,
}

/// More about the prompt's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct PromptTokensDetails {
    /// Found in the prefix cache.
    pub cached_tokens: u32,
}

/// Why a choice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpenAiFinishReason {
    /// By itself or at a stop.
    Stop,
    /// At `max_tokens` or the context limit.
    Length,
}

/// What ended a choice before its length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum StopReason {
    /// A stop string of the request.
    Text(String),
    /// A stop id of the request.
    Token(u32),
}

/// More about the output's tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct CompletionTokensDetails {
    /// Of reasoning that was told apart from the answer: none yet.
    pub reasoning_tokens: u32,
}

/// Answer of `/v1/chat/completions`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatCompletion {
    /// `chatcmpl-…`.
    pub id: String,
    /// `chat.completion`.
    pub object: &'static str,
    /// Unix seconds.
    pub created: u64,
    /// As asked for, or the served model.
    pub model: String,
    /// `VERSION-LABEL`.
    pub system_fingerprint: String,
    /// In order of index.
    pub choices: Vec<ChatChoice>,
    /// Token counts.
    pub usage: Usage,
    /// `default`, if the request names a tier: there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<&'static str>,
    /// Under `prompt_logprobs`: one entry a prompt token, `null` for the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Option<Object>>>)]
    pub prompt_logprobs: Option<Vec<Option<PromptLogprobs>>>,
    /// Under `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// What is told of one place of a prompt, by id: the prompt's own first, then the likeliest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptLogprobs(pub Vec<(u32, PromptLogprob)>);

impl Serialize for PromptLogprobs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, entry)| (id, entry)))
    }
}

/// One id at one place of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptLogprob {
    /// Raw log-softmax; -9999 for minus infinity.
    pub logprob: f32,
    /// Its place by likelihood, from 1.
    pub rank: u32,
    /// Its text.
    pub decoded_token: String,
}

/// One choice.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatChoice {
    /// From 0.
    pub index: u32,
    /// What the model said.
    pub message: OutputMessage,
    /// When asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub finish_reason: OpenAiFinishReason,
    /// The stop string or stop id of the request that ended it.
    pub stop_reason: Option<StopReason>,
    /// Under `return_token_ids`: an end id too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What the model said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct OutputMessage {
    /// `assistant`.
    pub role: &'static str,
    /// The text.
    pub content: String,
    /// Always `null`: what the model will not say, it says in `content`.
    pub refusal: Option<String>,
}

/// `logprobs` of a chat choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct ChatLogprobs {
    /// One entry a token.
    pub content: Vec<ChatLogprob>,
}

/// One token's logprob.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatLogprob {
    /// Its text; ill-formed bytes are replaced.
    pub token: String,
    /// Raw log-softmax; -9999 for minus infinity.
    pub logprob: f32,
    /// Its exact bytes.
    pub bytes: Vec<u8>,
    /// The likeliest of this place, best first.
    pub top_logprobs: Vec<ChatTopLogprob>,
}

/// One of the likeliest tokens.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatTopLogprob {
    /// Its text.
    pub token: String,
    /// Raw log-softmax.
    pub logprob: f32,
    /// Its exact bytes.
    pub bytes: Vec<u8>,
}

/// One event of a chat stream.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatCompletionChunk {
    /// The same in every chunk.
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: &'static str,
    /// The same in every chunk.
    pub created: u64,
    /// The same in every chunk.
    pub model: String,
    /// `VERSION-LABEL`.
    pub system_fingerprint: String,
    /// One, or none in the usage chunk.
    pub choices: Vec<ChatChunkChoice>,
    /// In the last chunk, when asked for.
    pub usage: Option<Usage>,
    /// `default`, if the request names a tier: there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<&'static str>,
    /// In the first chunk, under `return_token_ids`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
}

/// A part of one choice.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ChatChunkChoice {
    /// Which choice.
    pub index: u32,
    /// What is new.
    pub delta: ChatDelta,
    /// Of the text that this chunk releases.
    pub logprobs: Option<ChatLogprobs>,
    /// In the last chunk of the choice.
    pub finish_reason: Option<OpenAiFinishReason>,
    /// There, too: the stop string or stop id of the request that ended it.
    pub stop_reason: Option<StopReason>,
    /// Under `return_token_ids`: of this chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_ids: Option<Vec<u32>>,
}

/// What is new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ChatDelta {
    /// In the first chunk of the choice only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Text.
    pub content: String,
}
