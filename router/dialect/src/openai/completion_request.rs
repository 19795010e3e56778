//! Reads `/v1/completions`.

use super::common::{StreamShape, read_common, read_max_completion_tokens};
use super::completion_prompts::{PromptForm, check_suffix, read_prompts};
use super::completion_reply::CompletionShown;
use super::scoring::Scoring;
use super::template_fields::TEMPLATE_FIELDS;
use crate::bounds::Bounds;
use crate::call::{Call, Report};
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::Refusal;

/// A read completion request.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionCall {
    /// What to run.
    pub call: Call,
    /// As given.
    pub model: Option<String>,
    /// What is shown beside the text.
    pub shown: CompletionShown,
    /// What a stream carries.
    pub shape: StreamShape,
    /// Keys that nothing knows.
    pub ignored: Ignored,
}

/// Reads and bounds the body. `default_max_tokens` stands in for an absent `max_tokens`, as far as there is room.
pub fn read_completion(
    json: &Json,
    bounds: &Bounds,
    default_max_tokens: Option<u32>,
) -> Result<CompletionCall, Refusal> {
    let mut body = Fields::of(json, "")?;
    let mut ignored = Ignored::default();
    let common = read_common(&mut body, bounds, &mut ignored)?;
    let add_special_tokens = body.boolean("add_special_tokens")?.unwrap_or(true);
    let suffix = body.string("suffix")?.filter(|suffix| !suffix.is_empty());
    let form = PromptForm {
        add_special_tokens,
        suffix,
    };
    let prompts = read_prompts(body.required("prompt")?, bounds, form)?;
    let logprobs = read_logprobs(&mut body)?;
    let best_of = body.u32("best_of")?;
    // Not OpenAI's here, but nothing else can be meant by it.
    let max_completion_tokens = read_max_completion_tokens(&mut body)?;
    for key in TEMPLATE_FIELDS {
        body.refused_unless(key, Json::is_empty)?;
    }
    let echo = body.boolean("echo")?.unwrap_or(false);
    body.finish(&mut ignored);
    if suffix.is_some() {
        check_suffix(echo, common.truncate.is_some())?;
    }
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
    let prompt_only = echo && common.max_tokens == Some(0) && max_completion_tokens.is_none();
    if max_completion_tokens.is_none() && common.max_tokens == Some(0) && !echo {
        return Err(Refusal::validation(
            "max_tokens",
            "`max_tokens` must be strictly positive; 0 needs `echo`: true, for the prompt alone",
        ));
    }
    if prompt_only && common.min_tokens > 0 {
        return Err(Refusal::validation(
            "min_tokens",
            "`min_tokens` must be 0 where `max_tokens` is",
        ));
    }
    let scoring = Scoring {
        echo,
        ..common.scoring
    };
    let mut call = Call::new(prompts);
    common.fill(&mut call)?;
    call.max_new_tokens = if prompt_only {
        // The engine samples after a prompt; nobody is told.
        Some(1)
    } else {
        call.max_new_tokens
    };
    if max_completion_tokens.is_some() {
        call.max_new_tokens = max_completion_tokens;
        call.max_new_tokens_field = "max_completion_tokens";
    }
    call.default_new_tokens = default_max_tokens;
    call.best_of = best_of.unwrap_or(call.choices);
    check_best_of(&call, bounds)?;
    call.report = Report {
        logprobs: logprobs.is_some() || call.best_of > call.choices,
        top_n,
        prompt_logprobs: prompt_report(scoring, logprobs, bounds)?,
        echo,
        prompt_only,
    };
    Ok(CompletionCall {
        call,
        model: common.model,
        shown: CompletionShown { logprobs, scoring },
        shape: common.shape,
        ignored,
    })
}

/// How many of the likeliest are to be told of each place of the prompt, if anything is.
fn prompt_report(
    scoring: Scoring,
    logprobs: Option<u32>,
    bounds: &Bounds,
) -> Result<Option<u32>, Refusal> {
    let echoed = logprobs.filter(|_| scoring.echo);
    if let Some(top_n) = echoed {
        bounds.check_prompt_top_n("logprobs", top_n)?;
    }
    Ok(echoed.max(scoring.prompt_logprobs))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Flags;
    use crate::call::Prompt;
    use crate::openai::fills_no_gaps;
    use crate::refusal::Dialect;

    fn read(body: &serde_json::Value) -> Result<CompletionCall, Refusal> {
        let flags = Flags::default();
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
    fn max_completion_tokens_goes_before_max_tokens() {
        let body = |max_tokens: i64| serde_json::json!({"prompt": "a", "echo": true, "max_tokens": max_tokens, "max_completion_tokens": 2});
        for max_tokens in [0, 5] {
            let call = read(&body(max_tokens)).unwrap().call;
            let asked = call.asked();
            assert_eq!(
                (asked.tokens, asked.field),
                (Some(2), "max_completion_tokens")
            );
            assert!(!call.report.prompt_only);
        }
        let zero = serde_json::json!({"prompt": "a", "max_completion_tokens": 0});
        assert_eq!(
            read(&zero).unwrap_err().param(),
            Some("max_completion_tokens")
        );
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
                "Failed to deserialize the JSON body into the target type: prompt[1]: invalid type: integer `-2`, \
                 expected a token id"
                    .to_owned(),
            ),
            (
                serde_json::json!([1, "a"]),
                "Failed to deserialize the JSON body into the target type: prompt[1]: invalid type: string \"a\", \
                 expected a token id"
                    .to_owned(),
            ),
            (
                serde_json::json!(["a", 1]),
                "Failed to deserialize the JSON body into the target type: prompt[1]: invalid type: integer `1`, \
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
        for (refusal, error_type) in [
            (fills_no_gaps(), "suffix not supported"),
            (
                read(&serde_json::json!({"prompt": vec!["a"; 65]})).unwrap_err(),
                "batch size exceeded",
            ),
        ] {
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
    fn a_suffix_makes_every_text_a_prompt_with_a_gap() {
        let gap = |prefix: &str| Prompt::Infill {
            prefix: prefix.to_owned(),
            suffix: "y".to_owned(),
            add_special_tokens: true,
        };
        let call = read(&serde_json::json!({"prompt": ["a", "b"], "suffix": "y"})).unwrap();
        assert_eq!(call.call.prompts, [gap("a"), gap("b")]);
        // The gap may be at the beginning of a file.
        let call = read(&serde_json::json!({"prompt": "", "suffix": "y"})).unwrap();
        assert_eq!(call.call.prompts, [gap("")]);
        let call = read(&serde_json::json!({"prompt": "a", "suffix": ""})).unwrap();
        assert!(matches!(call.call.prompts[0], Prompt::Text { .. }));
        for (body, message) in [
            (
                serde_json::json!({"prompt": [1, 2], "suffix": "y"}),
                "`suffix` needs prompts that are text, not token ids",
            ),
            (
                serde_json::json!({"prompt": "a", "suffix": "y", "echo": true}),
                "`suffix` is not supported together with `echo`",
            ),
            (
                serde_json::json!({"prompt": "a", "suffix": "y", "truncate": 3}),
                "`suffix` is not supported together with a truncated prompt",
            ),
        ] {
            let refusal = read(&body).unwrap_err();
            assert_eq!(
                refusal.message(),
                format!("Input validation error: {message}")
            );
        }
    }

    #[test]
    fn nothing_is_generated_only_where_the_prompt_is_asked_for() {
        let call =
            read(&serde_json::json!({"prompt": "x", "max_tokens": 0, "echo": true})).unwrap();
        assert!(call.call.report.prompt_only && call.call.report.echo);
        assert_eq!(call.call.report.prompt_logprobs, None);
        for (body, message) in [
            (
                serde_json::json!({"prompt": "x", "max_tokens": 0}),
                "`max_tokens` must be strictly positive; 0 needs `echo`: true, for the prompt alone",
            ),
            (
                serde_json::json!({"prompt": "x", "max_tokens": 0, "prompt_logprobs": 1}),
                "`max_tokens` must be strictly positive; 0 needs `echo`: true, for the prompt alone",
            ),
            (
                serde_json::json!({"prompt": "x", "max_tokens": 0, "echo": true, "min_tokens": 1}),
                "`min_tokens` must be 0 where `max_tokens` is",
            ),
        ] {
            let refusal = read(&body).unwrap_err();
            assert_eq!(
                refusal.message(),
                format!("Input validation error: {message}")
            );
        }
    }

    #[test]
    fn echo_and_prompt_logprobs_ask_the_engine_for_the_larger_number() {
        let of = |extra: serde_json::Value| {
            let mut body = serde_json::json!({"prompt": "x"});
            for (key, value) in extra.as_object().unwrap() {
                body[key] = value.clone();
            }
            let call = read(&body).unwrap();
            (call.call.report.prompt_logprobs, call.call.report.top_n)
        };
        assert_eq!(of(serde_json::json!({"logprobs": 3})), (None, 3));
        assert_eq!(of(serde_json::json!({"echo": true})), (None, 0));
        assert_eq!(
            of(serde_json::json!({"echo": true, "logprobs": 0})),
            (Some(0), 0)
        );
        assert_eq!(
            of(serde_json::json!({"prompt_logprobs": 5, "logprobs": 1})),
            (Some(5), 1)
        );
        assert_eq!(
            of(serde_json::json!({"echo": true, "prompt_logprobs": 5, "logprobs": 7})),
            (Some(7), 7)
        );
        assert_eq!(of(serde_json::json!({"prompt_logprobs": false})), (None, 0));
        for (extra, message) in [
            (
                serde_json::json!({"prompt_logprobs": 21}),
                "`prompt_logprobs` must be >= 0 and <= 20 for each token of the prompt. Given: 21",
            ),
            (
                serde_json::json!({"prompt_logprobs": 0, "stream": true}),
                "`prompt_logprobs` are not available when `stream` is true",
            ),
        ] {
            let mut body = extra;
            body["prompt"] = "x".into();
            assert_eq!(
                read(&body).unwrap_err().message(),
                format!("Input validation error: {message}")
            );
        }
        let negative = serde_json::json!({"prompt": "x", "prompt_logprobs": -1});
        assert!(
            read(&negative)
                .unwrap_err()
                .message()
                .contains("prompt_logprobs")
        );
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
        assert!(call.call.report.logprobs && call.shown.logprobs.is_none());
        for (body, message) in [
            (
                serde_json::json!({"prompt": "x", "n": 2, "best_of": 1}),
                "`best_of` must be >= `n`. Given: 1 and 2",
            ),
            (
                serde_json::json!({"prompt": "x", "best_of": 2, "stream": true}),
                "`best_of` > `n` is not supported when streaming tokens",
            ),
        ] {
            assert_eq!(
                read(&body).unwrap_err().message(),
                format!("Input validation error: {message}")
            );
        }
    }
}
