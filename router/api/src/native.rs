//! TGI's own routes: `/`, `/generate`, `/generate_stream`, and the tokens that they report.

use crate::shapes::GrammarField;
use serde::Serialize;
use utoipa::ToSchema;

/// Body of `/generate` and `/generate_stream`; `/` adds `stream`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct GenerateRequest {
    /// The prompt, not empty.
    #[schema(example = "My name is Olivier and I")]
    pub inputs: String,
    /// How to generate.
    #[schema(required = false)]
    pub parameters: GenerateParameters,
}

/// Body of `/`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
pub struct CompatGenerateRequest {
    /// The prompt, not empty.
    #[schema(example = "My name is Olivier and I")]
    pub inputs: String,
    /// How to generate.
    #[schema(required = false)]
    pub parameters: GenerateParameters,
    /// Answer with server-sent events.
    #[schema(required = false, default = false)]
    pub stream: bool,
}

/// TGI's generation parameters. `null` is the same as absent everywhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, ToSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the wire format has these booleans"
)]
pub struct GenerateParameters {
    /// Generate this many sequences and keep the likeliest. Needs sampling.
    #[schema(minimum = 1)]
    pub best_of: Option<u32>,
    /// `>= 0`; 0 is greedy.
    #[schema(minimum = 0.0)]
    pub temperature: Option<f32>,
    /// `> 0`; 1 is off.
    #[schema(exclusive_minimum = 0.0)]
    pub repetition_penalty: Option<f32>,
    /// Additive, over output tokens.
    #[schema(minimum = -2.0, maximum = 2.0)]
    pub frequency_penalty: Option<f32>,
    /// `> 0`.
    #[schema(minimum = 1)]
    pub top_k: Option<u32>,
    /// `(0, 1]`; 1 is off.
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    pub top_p: Option<f32>,
    /// `(0, 1]`; 1 is off.
    #[schema(exclusive_minimum = 0.0, maximum = 1.0)]
    pub typical_p: Option<f32>,
    /// Sample even though no sampling field is set.
    #[schema(required = false, default = false)]
    pub do_sample: bool,
    /// Absent: to the context limit.
    #[schema(minimum = 1)]
    pub max_new_tokens: Option<u32>,
    /// Put the prompt before the generated text.
    pub return_full_text: Option<bool>,
    /// Generation ends right after one of these.
    #[schema(required = false)]
    pub stop: Vec<String>,
    /// Keep the last N prompt tokens.
    #[schema(minimum = 1)]
    pub truncate: Option<u32>,
    /// Not supported: `true` is refused.
    #[schema(required = false, default = false)]
    pub watermark: bool,
    /// Report details.
    #[schema(required = false, default = false)]
    pub details: bool,
    /// Report the prompt's tokens with their logprobs.
    #[schema(required = false, default = false)]
    pub decoder_input_details: bool,
    /// Absent: random.
    pub seed: Option<u64>,
    /// Report this many of the likeliest tokens at each place.
    pub top_n_tokens: Option<u32>,
    /// What binds the output: `{"type": "json" | "json_object" | "json_schema" | "regex", "value": …}`. `value` is a JSON
    /// schema (an object, or a string that holds one), for `json_schema` inside `{"name", "schema"}`, or a regex;
    /// `json_object` does without: any object.
    /// `whitespace_pattern`: regex of the white space between tokens of JSON.
    #[schema(value_type = Option<GrammarField>)]
    pub grammar: Option<serde_json::Value>,
    /// No adapter is loaded: any id is refused.
    pub adapter_id: Option<String>,
    /// Encode the prompt with the tokenizer's special tokens. Default true.
    pub add_special_tokens: Option<bool>,
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

/// Answer of `/generate`; `/` puts it into an array of one.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct GenerateResponse {
    /// The text, special tokens skipped.
    pub generated_text: String,
    /// When `details` or `decoder_input_details` was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Details>,
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NativeFinishReason {
    /// `max_new_tokens` or the context limit.
    Length,
    /// An end id of the model.
    EosToken,
    /// A stop string.
    StopSequence,
}

/// More about one generation.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Details {
    /// Why it ended.
    pub finish_reason: NativeFinishReason,
    /// Output tokens, the end id included.
    pub generated_tokens: u32,
    /// When sampling.
    pub seed: Option<u64>,
    /// The prompt's tokens, under `decoder_input_details`.
    pub prefill: Vec<PrefillToken>,
    /// Output tokens.
    pub tokens: Vec<Token>,
    /// The other sequences of `best_of`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_of_sequences: Option<Vec<BestOfSequence>>,
    /// The likeliest tokens of each place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub top_tokens: Vec<Vec<Token>>,
}

/// One of the sequences that `best_of` did not choose.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct BestOfSequence {
    /// Its text.
    pub generated_text: String,
    /// Why it ended.
    pub finish_reason: NativeFinishReason,
    /// Output tokens, the end id included.
    pub generated_tokens: u32,
    /// When sampling.
    pub seed: Option<u64>,
    /// The prompt's tokens, under `decoder_input_details`.
    pub prefill: Vec<PrefillToken>,
    /// Output tokens.
    pub tokens: Vec<Token>,
    /// The likeliest tokens of each place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub top_tokens: Vec<Vec<Token>>,
}

/// A prompt token.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct PrefillToken {
    /// Its id.
    pub id: u32,
    /// Its text.
    pub text: String,
    /// `null` for the first one, which nothing predicts.
    pub logprob: Option<f32>,
}

/// An output token.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// The text that it completed; the name of a special token.
    pub text: String,
    /// Raw log-softmax.
    pub logprob: f32,
    /// Not part of `generated_text`.
    pub special: bool,
}

/// One event of a native stream.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct StreamResponse {
    /// From 1.
    pub index: u32,
    /// The token.
    pub token: Token,
    /// The likeliest tokens of this place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub top_tokens: Vec<Token>,
    /// The whole text, in the last event.
    pub generated_text: Option<String>,
    /// In the last event, when asked for.
    pub details: Option<StreamDetails>,
}

/// `details` of a stream's last event.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct StreamDetails {
    /// Why it ended.
    pub finish_reason: NativeFinishReason,
    /// Output tokens, the end id included.
    pub generated_tokens: u32,
    /// When sampling.
    pub seed: Option<u64>,
    /// Prompt tokens.
    pub input_length: u32,
}

/// `GET /info`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Info {
    /// As given to `--model-id`.
    pub model_id: String,
    /// Commit of a hub snapshot.
    pub model_sha: Option<String>,
    /// What the model computes in.
    pub model_dtype: String,
    /// `cpu`, `cuda`.
    pub model_device_type: String,
    /// The hub's tag, when known.
    pub model_pipeline_tag: Option<String>,
    /// Requests in the house at once.
    pub max_concurrent_requests: usize,
    /// `best_of` at most.
    pub max_best_of: u32,
    /// Stop strings at most.
    pub max_stop_sequences: u32,
    /// Prompt tokens at most.
    pub max_input_tokens: u32,
    /// Prompt and output tokens at most.
    pub max_total_tokens: u32,
    /// No effect; TGI's default.
    pub waiting_served_ratio: f32,
    /// Tokens that the KV cache holds.
    pub max_batch_total_tokens: u64,
    /// No effect; TGI's default.
    pub max_waiting_tokens: u32,
    /// Running sequences at most.
    pub max_batch_size: Option<u32>,
    /// Threads that tokenise.
    pub validation_workers: usize,
    /// Prompts in one request at most.
    pub max_client_batch_size: usize,
    /// `headrace-router`.
    pub router: &'static str,
    /// Version.
    pub version: &'static str,
    /// Commit of the build.
    pub sha: Option<&'static str>,
    /// Container label.
    pub docker_label: Option<String>,
}
