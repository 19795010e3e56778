//! Reads `/v1/chat/completions`.

use super::chat_reply::ChatShown;
use super::common::{StreamShape, read_common, read_max_completion_tokens};
use super::messages::read_messages;
use super::template_fields::read_template_fields;
use crate::bounds::Bounds;
use crate::call::{Call, Prompt, Report};
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::Refusal;

/// A read chat request.
#[derive(Clone, Debug, PartialEq)]
pub struct ChatCall {
    /// What to run.
    pub call: Call,
    /// As given.
    pub model: Option<String>,
    /// What is shown beside the text.
    pub shown: ChatShown,
    /// What a stream carries.
    pub shape: StreamShape,
    /// Keys that nothing knows.
    pub ignored: Ignored,
}

/// Reads and bounds the body.
pub fn read_chat(json: &Json, bounds: &Bounds) -> Result<ChatCall, Refusal> {
    let mut body = Fields::of(json, "")?;
    let mut ignored = Ignored::default();
    let common = read_common(&mut body, bounds, &mut ignored)?;
    common.check_max_tokens()?;
    let mut chat = read_messages(body.required("messages")?, bounds, &mut ignored)?;
    read_template_fields(&mut body, &mut chat)?;
    let top_logprobs = body.u32("top_logprobs")?;
    let logprobs = body.boolean("logprobs")?;
    let max_completion_tokens = read_max_completion_tokens(&mut body)?;
    body.refused_unless("best_of", |value| value.to_value() == 1)?;
    let prefix = if body.boolean("echo")?.unwrap_or(false) {
        chat.text_of_own_turn()
    } else {
        String::new()
    };
    body.finish(&mut ignored);
    let top_n = top_logprobs.unwrap_or(0);
    if top_n > bounds.top_n {
        return Err(Refusal::validation(
            "top_logprobs",
            format!(
                "`top_logprobs` must be >= 0 and <= {}. Given: {top_n}",
                bounds.top_n
            ),
        ));
    }
    if top_n > 0 && logprobs == Some(false) {
        return Err(Refusal::validation(
            "top_logprobs",
            "`top_logprobs` needs `logprobs` to be true",
        ));
    }
    let shows_logprobs = logprobs.unwrap_or(top_n > 0);
    let mut call = Call::new(vec![Prompt::Chat(chat)]);
    common.fill(&mut call)?;
    if max_completion_tokens.is_some() {
        call.max_new_tokens = max_completion_tokens;
        call.max_new_tokens_field = "max_completion_tokens";
    }
    call.report = Report {
        logprobs: shows_logprobs,
        top_n,
        prompt_logprobs: common.scoring.prompt_logprobs,
        ..Report::default()
    };
    Ok(ChatCall {
        call,
        model: common.model,
        shown: ChatShown {
            logprobs: shows_logprobs,
            scoring: common.scoring,
            prefix,
        },
        shape: common.shape,
        ignored,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Flags;
    use crate::refusal::Dialect;

    fn read(mut body: serde_json::Value) -> Result<ChatCall, Refusal> {
        let flags = Flags::default();
        body["messages"] = serde_json::json!([{"role": "user", "content": "x"}]);
        let json = Json::parse(body.to_string().as_bytes()).unwrap();
        read_chat(&json, &Bounds::of(Dialect::OpenAi, flags))
    }

    #[test]
    fn what_is_not_built_is_refused_by_name() {
        let cases = [
            ("tool_choice", serde_json::json!("required")),
            ("reasoning_effort", serde_json::json!("low")),
            ("modalities", serde_json::json!(["text", "audio"])),
        ];
        for (key, value) in cases {
            let mut body = serde_json::json!({});
            body[key] = value;
            let refusal = read(body).unwrap_err();
            assert_eq!(
                refusal.message(),
                format!("Input validation error: `{key}`: this field is not supported")
            );
            assert!(
                refusal
                    .body(Dialect::OpenAi)
                    .contains(&format!("\"param\":\"{key}\""))
            );
            assert_eq!(refusal.status(Dialect::OpenAi), 400);
        }
        let tools = serde_json::json!([{"type": "function", "function": {"name": "f"}}]);
        let refusal = read(serde_json::json!({"tools": tools})).unwrap_err();
        assert_eq!(
            refusal.message(),
            "Input validation error: non-empty `tools` are not supported yet"
        );
        assert!(refusal.body(Dialect::OpenAi).contains(r#""param":"tools""#));
        assert!(read(serde_json::json!({"tools": []})).is_ok());
    }

    #[test]
    fn echo_shows_the_last_message_where_the_answer_goes_on_from_it() {
        let prefix = |messages: serde_json::Value, extra: &str| {
            let body = format!(r#"{{"messages":{messages},"echo":true{extra}}}"#);
            let flags = Flags::default();
            let json = Json::parse(body.as_bytes()).unwrap();
            let call = read_chat(&json, &Bounds::of(Dialect::OpenAi, flags)).unwrap();
            call.shown.prefix
        };
        let user = serde_json::json!([{"role": "user", "content": "x"}]);
        let assistant = serde_json::json!([{"role": "assistant", "content": [{"type": "text", "text": "Once "}]}]);
        assert_eq!(prefix(user.clone(), ""), "");
        assert_eq!(prefix(user, r#","continue_final_message":true"#), "x");
        assert_eq!(prefix(assistant.clone(), ""), "Once ");
        assert_eq!(
            prefix(assistant, r#","add_generation_prompt":true"#),
            "Once "
        );
        assert_eq!(
            read(serde_json::json!({"echo": false}))
                .unwrap()
                .shown
                .prefix,
            ""
        );
    }

    #[test]
    fn response_format_says_which_type_is_refused() {
        for (value, message) in [
            (
                serde_json::json!({"type": "json_schema", "json_schema": {"name": "x"}}),
                r#"`response_format` of type json_schema without `value` is not supported yet; `{"type": "json_schema", "value": {"name": …, "schema": …}}` is"#,
            ),
            (
                serde_json::json!(7),
                r#"`response_format` is not supported yet; `{"type": "json_object"}` is, and `json`, `json_schema` and `regex` with `value` are"#,
            ),
        ] {
            let refusal = read(serde_json::json!({"response_format": value})).unwrap_err();
            assert_eq!(
                refusal.message(),
                format!("Input validation error: {message}")
            );
        }
    }

    #[test]
    fn response_format_json_object_needs_no_value() {
        let format = serde_json::json!({"type": "json_object"});
        let call = read(serde_json::json!({"response_format": format})).unwrap();
        let expected = crate::grammar::Grammar::Json {
            schema: serde_json::json!({"type": "object"}),
            whitespace_pattern: None,
        };
        assert_eq!(call.call.grammar.map(|field| field.grammar), Some(expected));
    }

    #[test]
    fn response_format_with_a_value_is_tgis_grammar() {
        let format = serde_json::json!({"type": "regex", "value": "a+"});
        let call = read(serde_json::json!({"response_format": format})).unwrap();
        let expected = crate::grammar::Grammar::Regex("a+".to_owned());
        assert_eq!(call.call.grammar.map(|field| field.grammar), Some(expected));
        let bad = serde_json::json!({"type": "regex", "value": 1});
        let refusal = read(serde_json::json!({"response_format": bad})).unwrap_err();
        assert_eq!(
            refusal.message(),
            "Failed to deserialize the JSON body into the target type: response_format.value: invalid type: \
             integer `1`, expected a string"
        );
    }

    #[test]
    fn neutral_and_advisory_values_pass() {
        let body = serde_json::json!({
            "tools": [], "response_format": {"type": "text"}, "tool_choice": "auto", "modalities": ["text"],
            "functions": null, "user": "me", "metadata": {"a": 1}, "store": true, "service_tier": "auto",
            "logit_bias": {}, "stream_options": null, "parallel_tool_calls": true, "unheard_of": 1,
        });
        let call = read(body).unwrap();
        assert_eq!(call.ignored.keys(), ["unheard_of"]);
    }

    #[test]
    fn fields_map_as_the_dialect_says() {
        let call = read(serde_json::json!({
            "stop": "END", "max_tokens": 5, "max_completion_tokens": 7, "seed": -1, "top_k": -1, "n": 3,
            "logprobs": true, "top_logprobs": 2, "logit_bias": {"5": -100, "6": 1.5}
        }))
        .unwrap();
        assert_eq!(call.call.stops, ["END"]);
        assert_eq!(call.call.asked().tokens, Some(7));
        assert_eq!(call.call.asked().field, "max_completion_tokens");
        assert_eq!(call.call.sampling.seed, Some(u64::MAX));
        assert_eq!(call.call.sampling.top_k, Some(0));
        assert_eq!(call.call.choices, 3);
        assert_eq!(call.call.report.top_n, 2);
        assert_eq!(call.call.logit_bias, [(5, -100.0), (6, 1.5)]);
        let call =
            read(serde_json::json!({"stream": true, "stream_options": {"include_usage": true}}))
                .unwrap();
        assert!(call.shape.include_usage && !call.shape.continuous_usage);
    }

    #[test]
    fn bounds_name_the_field() {
        let cases = [
            (
                serde_json::json!({"n": 0}),
                "`n` must be > 0 and <= 8. Given: 0",
            ),
            (
                serde_json::json!({"n": 9}),
                "`n` must be > 0 and <= 8. Given: 9",
            ),
            (
                serde_json::json!({"max_tokens": 0}),
                "`max_tokens` must be strictly positive",
            ),
            (
                serde_json::json!({"max_completion_tokens": 0}),
                "`max_completion_tokens` must be strictly positive",
            ),
            (
                serde_json::json!({"temperature": -1}),
                "`temperature` must be strictly positive",
            ),
            (
                serde_json::json!({"presence_penalty": -2.5}),
                "`presence_penalty` must be >= -2.0 and <= 2.0",
            ),
            (
                serde_json::json!({"min_p": 1.5}),
                "`min_p` must be >= 0.0 and <= 1.0",
            ),
            (
                serde_json::json!({"top_logprobs": 21}),
                "`top_logprobs` must be >= 0 and <= 20. Given: 21",
            ),
            (
                serde_json::json!({"logit_bias": {"7": 101}}),
                "`logit_bias` values must be >= -100 and <= 100",
            ),
            (
                serde_json::json!({"logit_bias": {"x": 1}}),
                "`logit_bias`: \"x\" is no token id",
            ),
            (
                serde_json::json!({"logit_bias": {"+5": 1}}),
                "`logit_bias`: \"+5\" is no token id",
            ),
            (
                serde_json::json!({"logit_bias": {"5": 1, "05": 1}}),
                "`logit_bias`: id 5 is given twice",
            ),
            (
                serde_json::json!({"top_k": -2}),
                "`top_k` must be > 0 and <= 2147483647, or -1 or 0, which turn it off. Given: -2",
            ),
            (
                serde_json::json!({"top_k": 2_147_483_648_u32}),
                "`top_k` must be > 0 and <= 2147483647, or -1 or 0, which turn it off. Given: 2147483648",
            ),
            (
                serde_json::json!({"logprobs": false, "top_logprobs": 2}),
                "`top_logprobs` needs `logprobs` to be true",
            ),
            (
                serde_json::json!({"stream_options": {"include_usage": true}}),
                "`stream_options` is only allowed when `stream` is true",
            ),
            (
                serde_json::json!({"add_generation_prompt": true, "continue_final_message": true}),
                "`continue_final_message` and `add_generation_prompt` exclude each other",
            ),
        ];
        for (body, message) in cases {
            assert_eq!(
                read(body).unwrap_err().message(),
                format!("Input validation error: {message}")
            );
        }
    }
}
