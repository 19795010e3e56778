//! Reads `/v1/completions`.

use super::common::{StreamShape, read_common};
use super::template_fields::TEMPLATE_FIELDS;
use crate::bounds::Bounds;
use crate::call::{Call, Prompt, Report};
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::{Cause, Refusal};

/// A read completion request.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionCall {
    /// What to run.
    pub call: Call,
    /// As given.
    pub model: Option<String>,
    /// Show the sampled token and this many of the likeliest.
    pub logprobs: Option<u32>,
    /// What a stream carries.
    pub shape: StreamShape,
    /// Keys that nothing knows.
    pub ignored: Ignored,
}

/// Reads and bounds the body. `default_max_tokens` stands in for an absent `max_tokens`.
pub fn read_completion(
    json: &Json,
    bounds: &Bounds,
    default_max_tokens: Option<u32>,
) -> Result<CompletionCall, Refusal> {
    let mut body = Fields::of(json, "")?;
    let mut ignored = Ignored::default();
    let common = read_common(&mut body, bounds, &mut ignored)?;
    let add_special_tokens = body.boolean("add_special_tokens")?.unwrap_or(true);
    let prompts = read_prompts(body.required("prompt")?, bounds, add_special_tokens)?;
    let logprobs = read_logprobs(&mut body)?;
    let best_of = body.u32("best_of")?;
    for key in TEMPLATE_FIELDS {
        body.refused_unless(key, Json::is_empty)?;
    }
    body.refused_unless("echo", |value| value.to_value() == false)?;
    if body
        .string("suffix")?
        .is_some_and(|suffix| !suffix.is_empty())
    {
        return Err(Refusal::validation(
            "suffix",
            "Suffix is not supported and can be achieved by preprocessing the prompt.",
        )
        .because(Cause::Suffix));
    }
    body.finish(&mut ignored);
    let top_n = logprobs.unwrap_or(0);
    if top_n > bounds.top_n {
        return Err(Refusal::validation(
            "logprobs",
            format!(
                "`logprobs` must be >= 0 and <= {}. Given: {top_n}",
                bounds.top_n
            ),
        ));
    }
    let mut call = Call::new(prompts);
    common.fill(&mut call)?;
    call.max_new_tokens = call.max_new_tokens.or(default_max_tokens);
    call.best_of = best_of.unwrap_or(call.choices);
    check_best_of(&call, bounds)?;
    call.report = Report {
        logprobs: logprobs.is_some() || call.best_of > call.choices,
        top_n,
        prompt_logprobs: false,
    };
    Ok(CompletionCall {
        call,
        model: common.model,
        logprobs,
        shape: common.shape,
        ignored,
    })
}

/// An integer; clients of the chat route send booleans here too.
fn read_logprobs(body: &mut Fields<'_>) -> Result<Option<u32>, Refusal> {
    match body.get("logprobs")? {
        Some(Json::Bool(false)) => Ok(None),
        _ => body.u32("logprobs"),
    }
}

fn check_best_of(call: &Call, bounds: &Bounds) -> Result<(), Refusal> {
    if call.best_of == 0 || call.best_of > bounds.choices {
        return Err(Refusal::validation(
            "best_of",
            format!(
                "`best_of` must be > 0 and <= {}. Given: {}",
                bounds.choices, call.best_of
            ),
        ));
    }
    if call.best_of < call.choices {
        return Err(Refusal::validation(
            "best_of",
            format!(
                "`best_of` must be >= `n`. Given: {} and {}",
                call.best_of, call.choices
            ),
        ));
    }
    if call.stream && call.best_of > call.choices {
        return Err(Refusal::validation(
            "best_of",
            "`best_of` > `n` is not supported when streaming tokens",
        ));
    }
    Ok(())
}

/// A string, ids, or a list of either.
fn read_prompts(
    json: &Json,
    bounds: &Bounds,
    add_special_tokens: bool,
) -> Result<Vec<Prompt>, Refusal> {
    let text = |text: &String| Prompt::Text {
        text: text.clone(),
        add_special_tokens,
    };
    let prompts = match json {
        Json::String(one) => vec![text(one)],
        Json::Ids(ids) => vec![Prompt::Ids(ids.clone())],
        Json::Array(items) => {
            if items.len() > bounds.prompts {
                return Err(Refusal::validation(
                    "prompt",
                    format!(
                        "Number of prompts exceeds the maximum allowed batch size of {}",
                        bounds.prompts
                    ),
                )
                .because(Cause::BatchSize));
            }
            items
                .iter()
                .enumerate()
                .map(|(index, item)| match item {
                    Json::String(one) => Ok(text(one)),
                    Json::Ids(ids) => Ok(Prompt::Ids(ids.clone())),
                    Json::Array(none) if none.is_empty() => Ok(Prompt::Ids(Vec::new())),
                    other => Err(Refusal::wrong_type(
                        &format!("prompt[{index}]"),
                        &other.describe(),
                        "a string or a sequence of token ids",
                    )),
                })
                .collect::<Result<_, _>>()?
        }
        other => {
            return Err(Refusal::wrong_type(
                "prompt",
                &other.describe(),
                "a string, a sequence of token ids, or a sequence of either",
            ));
        }
    };
    let is_empty = |prompt: &Prompt| match prompt {
        Prompt::Text { text, .. } => text.is_empty(),
        Prompt::Ids(ids) => ids.is_empty(),
        Prompt::Chat(_) => false,
    };
    if prompts.is_empty() || prompts.iter().any(is_empty) {
        return Err(Refusal::validation("prompt", "`prompt` cannot be empty"));
    }
    Ok(prompts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Flags;
    use crate::refusal::Dialect;

    fn read(body: &serde_json::Value) -> Result<CompletionCall, Refusal> {
        let flags = Flags {
            max_best_of: 2,
            max_stop_sequences: 4,
            max_top_n_tokens: 5,
            max_client_batch_size: 4,
        };
        let json = Json::parse(body.to_string().as_bytes()).unwrap();
        read_completion(&json, &Bounds::of(Dialect::OpenAi, flags), None)
    }

    #[test]
    fn all_four_prompt_forms() {
        let text = |text: &str| Prompt::Text {
            text: text.to_owned(),
            add_special_tokens: true,
        };
        let cases = [
            (serde_json::json!("a"), vec![text("a")]),
            (serde_json::json!(["a", "b"]), vec![text("a"), text("b")]),
            (serde_json::json!([1, 2]), vec![Prompt::Ids(vec![1, 2])]),
            (
                serde_json::json!([[1, 2], [3]]),
                vec![Prompt::Ids(vec![1, 2]), Prompt::Ids(vec![3])],
            ),
        ];
        for (prompt, expected) in cases {
            let call = read(&serde_json::json!({"prompt": prompt})).unwrap();
            assert_eq!(call.call.prompts, expected);
        }
    }

    #[test]
    fn prompt_errors() {
        let validation = |message: &str| format!("Input validation error: {message}");
        let cases = [
            (serde_json::json!(""), validation("`prompt` cannot be empty")),
            (serde_json::json!([]), validation("`prompt` cannot be empty")),
            (serde_json::json!([[]]), validation("`prompt` cannot be empty")),
            (
                serde_json::json!(vec!["a"; 65]),
                validation("Number of prompts exceeds the maximum allowed batch size of 64"),
            ),
            (
                serde_json::json!([1, -2]),
                "Failed to deserialize the JSON body into the target type: prompt[0]: invalid type: integer `1`, \
                 expected a string or a sequence of token ids"
                    .to_owned(),
            ),
            (
                serde_json::json!({"a": 1}),
                "Failed to deserialize the JSON body into the target type: prompt: invalid type: map, expected a \
                 string, a sequence of token ids, or a sequence of either"
                    .to_owned(),
            ),
        ];
        for (prompt, message) in cases {
            let refusal = read(&serde_json::json!({"prompt": prompt})).unwrap_err();
            assert_eq!(refusal.message(), message);
        }
    }

    #[test]
    fn suffix_and_batch_size_have_tgis_error_types() {
        for (body, error_type) in [
            (
                serde_json::json!({"prompt": "x", "suffix": "y"}),
                "suffix not supported",
            ),
            (
                serde_json::json!({"prompt": vec!["a"; 65]}),
                "batch size exceeded",
            ),
        ] {
            let refusal = read(&body).unwrap_err();
            assert_eq!(refusal.error_type(), error_type);
            assert_eq!(refusal.status(Dialect::OpenAi), 400);
            assert!(
                refusal
                    .body(Dialect::OpenAi)
                    .contains("\"type\":\"invalid_request_error\"")
            );
        }
    }

    #[test]
    fn what_javascript_clients_send_passes() {
        let call = read(&serde_json::json!({
            "model": "http://127.0.0.1:3000", "prompt": "x", "max_tokens": 3, "return_full_text": false,
            "do_sample": true, "suffix": null, "logprobs": null, "echo": false
        }))
        .unwrap();
        assert_eq!(call.ignored.keys(), ["return_full_text", "do_sample"]);
    }

    #[test]
    fn best_of_and_n() {
        let call = read(&serde_json::json!({"prompt": "x", "n": 2, "best_of": 4})).unwrap();
        assert_eq!((call.call.choices, call.call.best_of), (2, 4));
        assert!(call.call.report.logprobs && call.logprobs.is_none());
        for (body, message) in [
            (
                serde_json::json!({"prompt": "x", "n": 2, "best_of": 1}),
                "`best_of` must be >= `n`. Given: 1 and 2",
            ),
            (
                serde_json::json!({"prompt": "x", "best_of": 2, "stream": true}),
                "`best_of` > `n` is not supported when streaming tokens",
            ),
            (
                serde_json::json!({"prompt": "x", "suffix": "y"}),
                "Suffix is not supported and can be achieved by preprocessing the prompt.",
            ),
        ] {
            assert_eq!(
                read(&body).unwrap_err().message(),
                format!("Input validation error: {message}")
            );
        }
    }
}
