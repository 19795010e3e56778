//! Fields that the `/v1` generation routes share.

use super::scoring::Scoring;
use super::text_fields::{read_text_shape, read_truncation};
use super::token_rules::{read_allowed_ids, read_bad_words, read_logit_bias};
use crate::bounds::Bounds;
use crate::call::{Call, Sampling, SamplingRule};
use crate::fields::Fields;
use crate::grammar::{Grammar, GrammarField};
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::{Cause, Refusal};
use crate::shape::{TextShape, Truncation};
use crate::terms::Terms;
use headrace_text::OneLine;

/// Fields that change nothing in the answer: accepted with any value. `tests/openai_fields` says why each may be.
const ADVISORY: &[&str] = &[
    "user",
    "metadata",
    "store",
    "prompt_cache_key",
    "prompt_cache_options",
    "safety_identifier",
    "verbosity",
    "moderation",
    "prediction",
    "parallel_tool_calls",
    "tool_prompt",
    "stream_interval",
    "stream_reasoning",
    "mm_processor_kwargs",
    "media_io_kwargs",
    "mm_hashes",
    "routing_key",
    "conversation_id",
    "kv_router_hint",
    "no_logs",
    "custom_labels",
];

/// Fields that headrace does not honour: refused unless their value asks for nothing. Each with the values, besides
/// `null` and empty ones, that do.
const REFUSED: &[(&str, &[&str])] = &[
    ("tool_choice", &[r#""none""#, r#""auto""#]),
    ("functions", &[]),
    ("function_call", &[r#""none""#, r#""auto""#]),
    ("modalities", &[r#"["text"]"#]),
    ("audio", &[]),
    ("web_search_options", &[]),
    ("reasoning_effort", &[]),
    ("reasoning", &[]),
    ("include_reasoning", &["true"]),
    ("separate_reasoning", &["false"]),
    ("thinking", &[]),
    ("thinking_token_budget", &[]),
    ("max_thinking_tokens", &[]),
    ("grammar", &[]),
    ("structured_outputs", &[]),
    ("guided_json", &[]),
    ("guided_regex", &[]),
    ("guided_choice", &[]),
    ("guided_grammar", &[]),
    ("guided_decoding_backend", &[]),
    ("guided_whitespace_pattern", &[]),
    ("structural_tag", &[]),
    ("regex", &[]),
    ("ebnf", &[]),
    ("json_schema", &[]),
    ("use_beam_search", &["false"]),
    ("beam_width", &["1"]),
    ("length_penalty", &["1", "1.0"]),
    ("early_stopping", &["false"]),
    ("logprob_token_ids", &[]),
    ("token_ids_logprob", &[]),
    ("repetition_detection", &[]),
    ("stop_regex", &[]),
    ("no_stop_trim", &["false"]),
    ("input_ids", &[]),
    ("prompt_embeds", &[]),
    ("mm_payload", &[]),
    ("return_prompt_token_ids", &["false"]),
    ("return_prompt_text", &["false"]),
    ("return_token_offsets", &["false"]),
    ("return_weight_versions", &["false"]),
    ("return_meta_info", &["false"]),
    ("return_hidden_states", &["false"]),
    ("return_routed_experts", &["false"]),
    ("routed_experts_prompt_start", &["0"]),
    ("kv_transfer_params", &[]),
    ("ec_transfer_params", &[]),
    ("vllm_xargs", &[]),
    ("custom_params", &[]),
    ("custom_logit_processor", &[]),
    ("extra_key", &[]),
    ("background", &["false"]),
    ("bootstrap_host", &[]),
    ("bootstrap_port", &[]),
    ("bootstrap_room", &[]),
    ("watermark", &["false"]),
    ("watermarking", &["false"]),
    ("adapter_id", &[]),
    ("lora_path", &[]),
];

/// What a stream carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamShape {
    /// A last chunk with `usage` and no choices.
    pub include_usage: bool,
    /// `usage` so far in every chunk.
    pub continuous_usage: bool,
}

/// The shared fields, read.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) model: Option<String>,
    pub(super) n: u32,
    pub(super) sampling: Sampling,
    pub(super) max_tokens: Option<u32>,
    pub(super) min_tokens: u32,
    pub(super) stops: Vec<String>,
    pub(super) stop_token_ids: Vec<u32>,
    pub(super) logit_bias: Vec<(u32, f32)>,
    pub(super) allowed_token_ids: Vec<u32>,
    pub(super) bad_words: Vec<String>,
    pub(super) ignore_eos: bool,
    pub(super) grammar: Option<GrammarField>,
    pub(super) truncate: Option<Truncation>,
    pub(super) text: TextShape,
    pub(super) stream: bool,
    pub(super) shape: StreamShape,
    pub(super) scoring: Scoring,
    pub(super) terms: Terms,
}

/// Reads the shared fields of a body and refuses what no `/v1` route honours.
pub(super) fn read_common(
    body: &mut Fields<'_>,
    bounds: &Bounds,
    ignored: &mut Ignored,
) -> Result<Common, Refusal> {
    body.advisory(ADVISORY)?;
    let grammar = read_response_format(body, ignored)?;
    refuse_tools(body)?;
    for &(key, neutral) in REFUSED {
        body.refused_unless(key, |value| is_neutral(value, neutral))?;
    }
    let stream = body.boolean("stream")?.unwrap_or(false);
    let common = Common {
        model: body.string("model")?.map(str::to_owned),
        n: body.u32("n")?.unwrap_or(1),
        sampling: read_sampling(body)?,
        max_tokens: body.u32("max_tokens")?,
        min_tokens: body.u32("min_tokens")?.unwrap_or(0),
        stops: body.strings("stop", true)?,
        stop_token_ids: body.ids("stop_token_ids")?,
        logit_bias: read_logit_bias(body, bounds)?,
        allowed_token_ids: read_allowed_ids(body, bounds)?,
        bad_words: read_bad_words(body, bounds)?,
        ignore_eos: body.boolean("ignore_eos")?.unwrap_or(false),
        grammar,
        truncate: read_truncation(body)?,
        text: read_text_shape(body)?,
        stream,
        shape: read_stream_options(body, stream, ignored)?,
        scoring: Scoring::read(body, bounds, stream)?,
        terms: read_terms(body)?,
    };
    check(&common, bounds)?;
    Ok(common)
}

/// The terms. There is one tier of service, and it is named to those who name one, as `OpenAI` does.
fn read_terms(body: &mut Fields<'_>) -> Result<Terms, Refusal> {
    let names_tier = body.string("service_tier")?.is_some();
    Ok(Terms {
        names_tier,
        ..Terms::read(body)?
    })
}

/// TGI's form, with `value`, is a grammar. The dialect's own is not supported yet; the refusal says which type it was.
fn read_response_format(
    body: &mut Fields<'_>,
    ignored: &mut Ignored,
) -> Result<Option<GrammarField>, Refusal> {
    let Some(value) = body.get("response_format")? else {
        return Ok(None);
    };
    if is_neutral(value, &[r#"{"type":"text"}"#]) {
        return Ok(None);
    }
    let members = match value {
        Json::Object(members) => members.as_slice(),
        _ => &[],
    };
    // `json_object` alone says all there is to say.
    let is_grammar = members.iter().any(|(key, value)| match value {
        Json::Null => false,
        Json::String(kind) if key == "type" => kind == "json_object",
        _ => key == "value",
    });
    if is_grammar {
        return Grammar::read(value, "response_format", "response_format", ignored).map(Some);
    }
    let kind = members.iter().find_map(|member| match member {
        (key, Json::String(kind)) if key == "type" => Some(kind),
        _ => None,
    });
    let of_kind = kind.map_or_else(String::new, |kind| {
        format!(" of type {:.32} without `value`", OneLine(kind))
    });
    let supported = match kind.map(String::as_str) {
        Some("json_schema") => r#"`{"type": "json_schema", "value": {"name": …, "schema": …}}` is"#,
        _ => {
            r#"`{"type": "json_object"}` is, and `json`, `json_schema` and `regex` with `value` are"#
        }
    };
    Err(Refusal::validation(
        "response_format",
        format!("`response_format`{of_kind} is not supported yet; {supported}"),
    ))
}

/// Output tokens at most, by the name that goes before `max_tokens`.
pub(super) fn read_max_completion_tokens(body: &mut Fields<'_>) -> Result<Option<u32>, Refusal> {
    let tokens = body.u32("max_completion_tokens")?;
    if tokens == Some(0) {
        return Err(Refusal::validation(
            "max_completion_tokens",
            "`max_completion_tokens` must be strictly positive",
        ));
    }
    Ok(tokens)
}

/// Tools come with a later release; none of them ask for nothing.
pub(super) fn refuse_tools(body: &mut Fields<'_>) -> Result<(), Refusal> {
    match body.get("tools")? {
        Some(tools) if !is_neutral(tools, &[]) => Err(Refusal::validation(
            "tools",
            "non-empty `tools` are not supported yet",
        )),
        _ => Ok(()),
    }
}

fn is_neutral(value: &Json, neutral: &[&str]) -> bool {
    let text = value.to_value().to_string();
    value.is_empty() || text == r#""""# || neutral.contains(&text.as_str())
}

fn read_sampling(body: &mut Fields<'_>) -> Result<Sampling, Refusal> {
    let top_k = match body.integer("top_k")? {
        None => None,
        Some(-1 | 0) => Some(0),
        Some(value) => match i32::try_from(value) {
            Ok(value) if value > 0 => Some(value.unsigned_abs()),
            _ => {
                return Err(Refusal::validation(
                    "top_k",
                    format!(
                        "`top_k` must be > 0 and <= {}, or -1 or 0, which turn it off. Given: {value}",
                        i32::MAX
                    ),
                ));
            }
        },
    };
    let seed = match body.integer("seed")? {
        None => None,
        Some(value) => Some(seed_bits(value)?),
    };
    Ok(Sampling {
        rule: SamplingRule::ByTemperature,
        temperature: body.float("temperature")?,
        top_k,
        top_p: body.float("top_p")?,
        min_p: body.float("min_p")?,
        typical_p: body.float("typical_p")?,
        repetition_penalty: body.float("repetition_penalty")?,
        frequency_penalty: body.float("frequency_penalty")?,
        presence_penalty: body.float("presence_penalty")?,
        seed,
    })
}

/// `OpenAI`'s seed is an i64 and TGI's a u64: both are 64 bits.
fn seed_bits(value: i128) -> Result<u64, Refusal> {
    u64::try_from(value)
        .or_else(|_| i64::try_from(value).map(i64::cast_unsigned))
        .map_err(|_| Refusal::validation("seed", "`seed` must fit 64 bits"))
}

fn read_stream_options(
    body: &mut Fields<'_>,
    stream: bool,
    ignored: &mut Ignored,
) -> Result<StreamShape, Refusal> {
    let Some(options) = body.get("stream_options")? else {
        return Ok(StreamShape::default());
    };
    let mut fields = Fields::of(options, "stream_options")?;
    let shape = StreamShape {
        include_usage: fields.boolean("include_usage")?.unwrap_or(false),
        continuous_usage: fields.boolean("continuous_usage_stats")?.unwrap_or(false),
    };
    // Random padding of chunks against traffic analysis: there is none here, so asking for none is all the same.
    fields.advisory(&["include_obfuscation"])?;
    fields.finish(ignored);
    if !stream {
        return Err(Refusal::validation(
            "stream_options",
            "`stream_options` is only allowed when `stream` is true",
        ));
    }
    Ok(shape)
}

fn check(common: &Common, bounds: &Bounds) -> Result<(), Refusal> {
    if common.n == 0 || common.n > bounds.choices {
        return Err(Refusal::validation(
            "n",
            format!(
                "`n` must be > 0 and <= {}. Given: {}",
                bounds.choices, common.n
            ),
        ));
    }
    if common.stop_token_ids.len() > bounds.stop_ids {
        return Err(Refusal::validation(
            "stop_token_ids",
            format!(
                "`stop_token_ids` supports up to {} ids. Given: {}",
                bounds.stop_ids,
                common.stop_token_ids.len()
            ),
        ));
    }
    bounds.check_stops(&common.stops)
}

impl Common {
    /// 0 is for those who want the prompt alone.
    pub(super) fn check_max_tokens(&self) -> Result<(), Refusal> {
        if self.max_tokens == Some(0) {
            return Err(Refusal::validation(
                "max_tokens",
                "`max_tokens` must be strictly positive",
            ));
        }
        Ok(())
    }

    /// Puts the shared fields into a call and checks the floats.
    pub(super) fn fill(&self, call: &mut Call) -> Result<(), Refusal> {
        call.choices = self.n;
        call.best_of = self.n;
        call.sampling = self.sampling;
        call.max_new_tokens = self.max_tokens;
        call.max_new_tokens_field = "max_tokens";
        call.min_tokens = self.min_tokens;
        call.stops.clone_from(&self.stops);
        call.stop_token_ids.clone_from(&self.stop_token_ids);
        call.logit_bias.clone_from(&self.logit_bias);
        call.allowed_token_ids.clone_from(&self.allowed_token_ids);
        call.bad_words.clone_from(&self.bad_words);
        call.ignore_eos = self.ignore_eos;
        call.grammar.clone_from(&self.grammar);
        call.truncate = self.truncate;
        call.text = self.text;
        call.stream = self.stream;
        call.terms.clone_from(&self.terms);
        Bounds::check_sampling(call)
    }
}

/// Whether a name may be used: with no adapters every name is the base model's, unless the server is strict.
pub fn check_model(model: Option<&str>, served: &str, strict: bool) -> Result<(), Refusal> {
    let Some(name) = model else { return Ok(()) };
    let is_base = name.is_empty()
        || name == served
        || matches!(name, "tgi" | "dummy")
        || name.starts_with("http://")
        || name.starts_with("https://");
    if is_base || !strict {
        return Ok(());
    }
    Err(Refusal::new(
        Cause::ModelNotFound,
        format!("The model `{:.200}` does not exist.", OneLine(name)),
    )
    .with_param("model"))
}
