//! Reads TGI's generate request.

use crate::bounds::Bounds;
use crate::call::{Call, Prompt, Report, Sampling, SamplingRule};
use crate::fields::Fields;
use crate::grammar::{Grammar, GrammarField};
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::Refusal;
use crate::request_id;
use crate::shape::Truncation;
use crate::terms::Terms;

/// Which of the native routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NativeRoute {
    /// `/generate`.
    Generate,
    /// `/generate_stream`.
    GenerateStream,
    /// `/`: `stream` is a field.
    Compat,
}

/// A read request: what to run and how to answer.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeRequest {
    /// What to run.
    pub call: Call,
    /// The prompt as given.
    pub inputs: String,
    /// `None`: the route decides.
    pub return_full_text: Option<bool>,
    /// Report details.
    pub details: bool,
    /// Report the prompt's tokens.
    pub decoder_input_details: bool,
    /// Keys that nothing knows.
    pub ignored: Ignored,
}

/// Reads and bounds a body of a native generation route. Bounds that need the prompt's tokens come later.
pub fn read_generate(
    json: &Json,
    route: NativeRoute,
    bounds: &Bounds,
) -> Result<NativeRequest, Refusal> {
    let mut body = Fields::of(json, "")?;
    let mut ignored = Ignored::default();
    let inputs = match body.required("inputs")? {
        Json::String(text) => text.clone(),
        other => {
            return Err(Refusal::wrong_type("inputs", &other.describe(), "a string"));
        }
    };
    let stream = match route {
        NativeRoute::Generate => false,
        NativeRoute::GenerateStream => true,
        NativeRoute::Compat => body.boolean("stream")?.unwrap_or(false),
    };
    body.advisory(&request_id::KEYS)?;
    let nothing = Json::Object(Vec::new());
    let parameters = body.get("parameters")?.unwrap_or(&nothing);
    let mut fields = Fields::of(parameters, "parameters")?;
    let read = read_parameters(&mut fields, &mut ignored)?;
    refuse_unsupported(&read)?;
    let parameters = fields.known().to_vec();
    fields.finish(&mut ignored);
    body.finish_around("parameters", &parameters, &mut ignored);
    if inputs.is_empty() {
        return Err(Refusal::validation("inputs", "`inputs` cannot be empty"));
    }
    let request = assemble(read, inputs, stream, ignored);
    check(&request, bounds)?;
    Ok(request)
}

/// Reads `parameters` for several prompts at once: every one of them gets the same.
pub(crate) fn read_prompts(
    parameters: &Json,
    prompts: Vec<String>,
    bounds: &Bounds,
    advisory: impl FnOnce(&mut Fields<'_>) -> Result<(), Refusal>,
) -> Result<NativeRequest, Refusal> {
    let mut ignored = Ignored::default();
    let mut fields = Fields::of(parameters, "parameters")?;
    let read = read_parameters(&mut fields, &mut ignored)?;
    refuse_unsupported(&read)?;
    advisory(&mut fields)?;
    fields.finish(&mut ignored);
    if prompts.iter().any(String::is_empty) {
        return Err(Refusal::validation("inputs", "`inputs` cannot be empty"));
    }
    let add_special_tokens = read.add_special_tokens.unwrap_or(true);
    let mut request = assemble(read, String::new(), false, ignored);
    request.call.prompts = prompts
        .into_iter()
        .map(|text| Prompt::Text {
            text,
            add_special_tokens,
        })
        .collect();
    check(&request, bounds)?;
    Ok(request)
}

/// The members of `parameters`, types checked.
pub(crate) struct Parameters {
    best_of: Option<u32>,
    sampling: Sampling,
    /// Any sign yet.
    top_k: Option<i32>,
    max_new_tokens: Option<u32>,
    return_full_text: Option<bool>,
    stop: Vec<String>,
    truncate: Option<u32>,
    details: bool,
    decoder_input_details: bool,
    top_n_tokens: Option<u32>,
    pub(crate) add_special_tokens: Option<bool>,
    watermark: Option<bool>,
    grammar: Option<GrammarField>,
    adapter_id: Option<String>,
    terms: Terms,
}

/// Reads `parameters`: types, no bounds.
pub(crate) fn read_parameters(
    fields: &mut Fields<'_>,
    ignored: &mut Ignored,
) -> Result<Parameters, Refusal> {
    let do_sample = fields.boolean("do_sample")?.unwrap_or(false);
    let top_k = match fields.integer("top_k")? {
        None => None,
        Some(value) => Some(i32::try_from(value).map_err(|_| {
            Refusal::invalid_integer("parameters.top_k", &value.to_string(), "i32")
        })?),
    };
    Ok(Parameters {
        best_of: fields.u32("best_of")?,
        sampling: Sampling {
            rule: SamplingRule::Native { do_sample },
            temperature: fields.float("temperature")?,
            top_k: top_k.map(i32::unsigned_abs),
            top_p: fields.float("top_p")?,
            min_p: None,
            typical_p: fields.float("typical_p")?,
            repetition_penalty: fields.float("repetition_penalty")?,
            frequency_penalty: fields.float("frequency_penalty")?,
            presence_penalty: None,
            seed: fields.u64("seed")?,
        },
        top_k,
        max_new_tokens: fields.u32("max_new_tokens")?,
        return_full_text: fields.boolean("return_full_text")?,
        stop: fields.strings("stop", true)?,
        truncate: fields.u32("truncate")?,
        details: fields.boolean("details")?.unwrap_or(false),
        decoder_input_details: fields.boolean("decoder_input_details")?.unwrap_or(false),
        top_n_tokens: fields.u32("top_n_tokens")?,
        add_special_tokens: fields.boolean("add_special_tokens")?,
        watermark: fields.boolean("watermark")?,
        grammar: match fields.get("grammar")? {
            None => None,
            Some(json) => {
                let path = fields.path_of("grammar");
                Some(Grammar::read(json, &path, "grammar", ignored)?)
            }
        },
        adapter_id: fields.string("adapter_id")?.map(str::to_owned),
        terms: Terms::read(fields)?,
    })
}

/// What no model here does, and TGI's bound of `top_k`: above 0.
fn refuse_unsupported(read: &Parameters) -> Result<(), Refusal> {
    if read.top_k.is_some_and(|value| value <= 0) {
        return Err(Refusal::validation(
            "top_k",
            "`top_k` must be strictly positive",
        ));
    }
    if read.watermark == Some(true) {
        return Err(Refusal::validation(
            "watermark",
            "`watermark` is not supported",
        ));
    }
    // The empty name is the base model.
    if let Some(adapter) = read.adapter_id.as_deref().filter(|name| !name.is_empty()) {
        let shown: String = adapter.chars().take(200).collect();
        return Err(Refusal::validation(
            "adapter_id",
            format!("`adapter_id`: no adapter {shown:?} is loaded"),
        ));
    }
    Ok(())
}

fn assemble(read: Parameters, inputs: String, stream: bool, ignored: Ignored) -> NativeRequest {
    let best_of = read.best_of.unwrap_or(1);
    let mut call = Call::new(vec![Prompt::Text {
        text: inputs.clone(),
        add_special_tokens: read.add_special_tokens.unwrap_or(true),
    }]);
    call.best_of = best_of;
    call.sampling = read.sampling;
    call.max_new_tokens = read.max_new_tokens;
    call.stops = read.stop;
    call.grammar = read.grammar;
    call.truncate = read.truncate.map(Truncation::to_last);
    call.stream = stream;
    call.terms = read.terms;
    let details = read.details || read.decoder_input_details;
    call.report = Report {
        // A stream shows every token's logprob; several sequences are ranked by them.
        logprobs: stream || details || best_of > 1,
        top_n: read.top_n_tokens.unwrap_or(0),
        prompt_logprobs: read.decoder_input_details.then_some(0),
        ..Report::default()
    };
    NativeRequest {
        call,
        inputs,
        return_full_text: read.return_full_text,
        details,
        decoder_input_details: read.decoder_input_details,
        ignored,
    }
}

/// TGI's checks, in TGI's order and words.
fn check(request: &NativeRequest, bounds: &Bounds) -> Result<(), Refusal> {
    let call = &request.call;
    let SamplingRule::Native { do_sample } = call.sampling.rule else {
        return Ok(());
    };
    if call.best_of > 1 && bounds.choices == 1 {
        return Err(Refusal::validation(
            "best_of",
            "`best_of` != 1 is not allowed for this endpoint",
        ));
    }
    if call.best_of == 0 || call.best_of > bounds.choices {
        return Err(Refusal::validation(
            "best_of",
            format!(
                "`best_of` must be > 0 and <= {}. Given: {}",
                bounds.choices, call.best_of
            ),
        ));
    }
    if call.best_of > 1 {
        if call.stream {
            return Err(Refusal::validation(
                "best_of",
                "`best_of` != 1 is not supported when streaming tokens",
            ));
        }
        if !call.sampling.native_do_sample(do_sample) {
            return Err(Refusal::validation(
                "best_of",
                "you must use sampling when `best_of` is > 1",
            ));
        }
        if call.sampling.seed.is_some() {
            return Err(Refusal::validation(
                "seed",
                "`seed` must not be set when `best_of` > 1",
            ));
        }
    }
    if call.stream && request.decoder_input_details {
        return Err(Refusal::validation(
            "decoder_input_details",
            "`decoder_input_details` == true is not supported when streaming tokens",
        ));
    }
    Bounds::check_sampling(call)?;
    if call.max_new_tokens == Some(0) {
        return Err(Refusal::validation(
            "max_new_tokens",
            "`max_new_tokens` must be strictly positive",
        ));
    }
    bounds.check_stops(&call.stops)?;
    if call.report.top_n > bounds.top_n {
        return Err(Refusal::validation(
            "top_n_tokens",
            format!(
                "`top_n_tokens` must be >= 0 and <= {}. Given: {}",
                bounds.top_n, call.report.top_n
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
