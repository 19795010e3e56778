//! Reads `/tokenize` and `/chat_tokenize`.

use super::common::refuse_tools;
use super::messages::read_messages;
use super::template_fields::{TEMPLATE_FIELDS, read_template_fields};
use crate::bounds::Bounds;
use crate::call::Prompt;
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::native::read_parameters;
use crate::refusal::Refusal;

/// What to tokenise and in whose shape to answer.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizeCall {
    /// `inputs`: TGI's list of tokens with offsets.
    Native {
        /// The text.
        prompt: Prompt,
        /// Keys that nothing knows.
        ignored: Ignored,
    },
    /// `prompt` or `messages`: vLLM's object.
    Counted {
        /// The text or chat.
        prompt: Prompt,
        /// Give texts too.
        return_token_strs: bool,
        /// Keys that nothing knows.
        ignored: Ignored,
    },
}

/// Reads `/tokenize`: exactly one of `inputs`, `prompt` and `messages`.
pub fn read_tokenize(json: &Json, bounds: &Bounds) -> Result<TokenizeCall, Refusal> {
    let mut body = Fields::of(json, "")?;
    let inputs = body.get("inputs")?;
    let prompt = body.get("prompt")?;
    let messages = body.get("messages")?;
    let given = [inputs, prompt, messages].iter().flatten().count();
    if given != 1 {
        return Err(Refusal::validation(
            "inputs",
            "exactly one of `inputs`, `prompt` and `messages` must be given",
        ));
    }
    let mut ignored = Ignored::default();
    let add_special_tokens = body.boolean("add_special_tokens")?;
    if inputs.is_some() {
        let text = required_text(&mut body, "inputs")?;
        let add_special_tokens = add_special_tokens
            .or(native_special_tokens(&mut body, &mut ignored)?)
            .unwrap_or(true);
        body.finish(&mut ignored);
        return Ok(TokenizeCall::Native {
            prompt: Prompt::Text {
                text,
                add_special_tokens,
            },
            ignored,
        });
    }
    body.advisory(&["model"])?;
    let return_token_strs = body.boolean("return_token_strs")?.unwrap_or(false);
    let prompt = if let Some(messages) = messages {
        refuse_tools(&mut body)?;
        let mut chat = read_messages(messages, bounds, &mut ignored)?;
        read_template_fields(&mut body, &mut chat)?;
        Prompt::Chat(chat)
    } else {
        for key in TEMPLATE_FIELDS {
            body.refused_unless(key, Json::is_empty)?;
        }
        Prompt::Text {
            text: required_text(&mut body, "prompt")?,
            add_special_tokens: add_special_tokens.unwrap_or(true),
        }
    };
    body.finish(&mut ignored);
    Ok(TokenizeCall::Counted {
        prompt,
        return_token_strs,
        ignored,
    })
}

/// `parameters.add_special_tokens`. The other generation parameters change nothing here, but their types are those
/// of `/generate`.
fn native_special_tokens(
    body: &mut Fields<'_>,
    ignored: &mut Ignored,
) -> Result<Option<bool>, Refusal> {
    let Some(json) = body.get("parameters")? else {
        return Ok(None);
    };
    let mut fields = Fields::of(json, "parameters")?;
    let read = read_parameters(&mut fields, ignored)?;
    fields.finish(ignored);
    Ok(read.add_special_tokens)
}

fn required_text(body: &mut Fields<'_>, key: &'static str) -> Result<String, Refusal> {
    match body.required(key)? {
        Json::String(text) if text.is_empty() => {
            Err(Refusal::validation(key, format!("`{key}` cannot be empty")))
        }
        Json::String(text) => Ok(text.clone()),
        other => Err(Refusal::wrong_type(key, &other.describe(), "a string")),
    }
}

/// Reads `/chat_tokenize`: a chat request, of which only the messages matter.
pub fn read_chat_tokenize(json: &Json, bounds: &Bounds) -> Result<(Prompt, Ignored), Refusal> {
    let call = super::read_chat(json, bounds)?;
    let ignored = call.ignored;
    call.call
        .prompts
        .into_iter()
        .next()
        .map(|prompt| (prompt, ignored))
        .ok_or_else(|| Refusal::validation("messages", "`messages` cannot be empty"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Flags;
    use crate::refusal::Dialect;

    fn read(body: &serde_json::Value) -> Result<TokenizeCall, Refusal> {
        let flags = Flags::default();
        let json = Json::parse(body.to_string().as_bytes())?;
        read_tokenize(&json, &Bounds::of(Dialect::OpenAi, flags))
    }

    #[test]
    fn parameters_have_the_types_of_generate() {
        for (parameters, message) in [
            (
                serde_json::json!({"temperature": "hot"}),
                "parameters.temperature: invalid type: string \"hot\", expected a 32-bit float",
            ),
            (
                serde_json::json!({"max_new_tokens": -1}),
                "parameters.max_new_tokens: invalid value: integer `-1`, expected u32",
            ),
            (
                serde_json::json!({"adapter_id": 1}),
                "parameters.adapter_id: invalid type: integer `1`, expected a string",
            ),
        ] {
            let refusal =
                read(&serde_json::json!({"inputs": "x", "parameters": parameters})).unwrap_err();
            assert_eq!(
                refusal.message(),
                format!("Failed to deserialize the JSON body into the target type: {message}")
            );
        }
    }

    #[test]
    fn unknown_parameters_are_named() {
        let call = read(&serde_json::json!({
            "inputs": "x", "other": 1,
            "parameters": {"add_special_tokens": false, "num_beams": 4, "seed": 1}
        }))
        .unwrap();
        let TokenizeCall::Native { prompt, ignored } = call else {
            panic!("not native: {call:?}")
        };
        assert_eq!(ignored.keys(), ["parameters.num_beams", "other"]);
        assert_eq!(
            prompt,
            Prompt::Text {
                text: "x".to_owned(),
                add_special_tokens: false
            }
        );
    }
}
