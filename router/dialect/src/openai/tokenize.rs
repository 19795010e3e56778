//! Reads `/tokenize` and `/chat_tokenize`.

use super::messages::read_messages;
use crate::bounds::Bounds;
use crate::call::Prompt;
use crate::fields::Fields;
use crate::json::Json;
use crate::refusal::Refusal;

/// What to tokenise and in whose shape to answer.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenizeCall {
    /// `inputs`: TGI's list of tokens with offsets.
    Native {
        /// The text.
        prompt: Prompt,
        /// Keys that nothing knows.
        ignored: Vec<String>,
    },
    /// `prompt` or `messages`: vLLM's object.
    Counted {
        /// The text or chat.
        prompt: Prompt,
        /// Give texts too.
        return_token_strs: bool,
        /// Keys that nothing knows.
        ignored: Vec<String>,
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
    let mut ignored = Vec::new();
    let add_special_tokens = body.boolean("add_special_tokens")?;
    if inputs.is_some() {
        let text = required_text(&mut body, "inputs")?;
        let add_special_tokens = add_special_tokens
            .or(native_special_tokens(&mut body)?)
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
        body.refused_unless("tools", Json::is_empty)?;
        let mut chat = read_messages(messages, bounds, &mut ignored)?;
        chat.add_generation_prompt = body.boolean("add_generation_prompt")?;
        chat.continue_final_message = body.boolean("continue_final_message")?;
        chat.add_special_tokens = add_special_tokens.unwrap_or(false);
        Prompt::Chat(chat)
    } else {
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

/// `parameters.add_special_tokens`; the other generation parameters change nothing here.
fn native_special_tokens(body: &mut Fields<'_>) -> Result<Option<bool>, Refusal> {
    match body.get("parameters")? {
        None => Ok(None),
        Some(json) => Fields::of(json, "parameters")?.boolean("add_special_tokens"),
    }
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
pub fn read_chat_tokenize(json: &Json, bounds: &Bounds) -> Result<(Prompt, Vec<String>), Refusal> {
    let call = super::read_chat(json, bounds)?;
    let ignored = call.ignored;
    call.call
        .prompts
        .into_iter()
        .next()
        .map(|prompt| (prompt, ignored))
        .ok_or_else(|| Refusal::validation("messages", "`messages` cannot be empty"))
}
