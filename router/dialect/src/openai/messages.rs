//! Reads the messages of a chat into what templates get.

use super::message_calls::{FunctionCalls, ID_BYTES, NAME_BYTES, read_calls};
use crate::bounds::Bounds;
use crate::call::ChatPrompt;
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::Refusal;
use serde_json::{Map, Value};

/// Bytes of a role at most. Roles are compared as they are written; one that no dialect has is the template's business.
const ROLE_BYTES: usize = 64;

/// Names under which clients send an assistant's reasoning back; the last of them that is there counts.
const REASONING_KEYS: [&str; 3] = ["thinking", "reasoning", "reasoning_content"];

/// Reads `messages`. Text parts are joined with the empty string, as in TGI; parts of other kinds are refused,
/// for the models served here read text only.
pub(super) fn read_messages(
    json: &Json,
    bounds: &Bounds,
    ignored: &mut Ignored,
) -> Result<ChatPrompt, Refusal> {
    let items: &[Json] = match json {
        Json::Array(items) => items,
        other => {
            return Err(Refusal::wrong_type(
                "messages",
                &other.describe(),
                "a sequence of messages",
            ));
        }
    };
    if items.is_empty() {
        return Err(Refusal::validation(
            "messages",
            "`messages` cannot be empty",
        ));
    }
    if items.len() > bounds.messages {
        return Err(Refusal::validation(
            "messages",
            format!(
                "`messages` supports up to {} messages. Given: {}",
                bounds.messages,
                items.len()
            ),
        ));
    }
    let mut chat = ChatPrompt::default();
    let mut functions = FunctionCalls::default();
    for (index, item) in items.iter().enumerate() {
        let path = format!("messages[{index}]");
        let message = read_message(item, &path, &mut functions, ignored)?;
        for key in ["content", "reasoning_content"] {
            let text = message.get(key).and_then(Value::as_str).unwrap_or_default();
            chat.characters += text.chars().count();
            chat.weight += text.len();
        }
        if let Some(calls) = message.get("tool_calls") {
            chat.weight += calls.to_string().len();
        }
        chat.messages.push(Value::Object(message));
    }
    Ok(chat)
}

fn read_message(
    json: &Json,
    path: &str,
    functions: &mut FunctionCalls,
    ignored: &mut Ignored,
) -> Result<Map<String, Value>, Refusal> {
    let mut fields = Fields::of(json, path)?;
    let Some(role) = read_short(&mut fields, "role", ROLE_BYTES)? else {
        let path = fields.path_of("role");
        return Err(Refusal::shape(&path, &format!("missing field `{path}`")));
    };
    let calls = read_calls(&mut fields, functions, ignored)?;
    let mut content = match fields.get("content")? {
        None => None,
        Some(json) => Some(read_content(json, &fields.path_of("content"), ignored)?),
    };
    let name = read_short(&mut fields, "name", NAME_BYTES)?;
    let mut tool_call_id = read_short(&mut fields, "tool_call_id", ID_BYTES)?.map(str::to_owned);
    let mut reasoning = None;
    if role == "assistant" {
        for key in REASONING_KEYS {
            reasoning = fields.string(key)?.or(reasoning);
        }
        // What the assistant said in place of an answer.
        let refusal = fields.string("refusal")?.filter(|text| !text.is_empty());
        content = content.or(refusal.map(str::to_owned));
        if content.is_none() && calls.is_none() {
            // A turn without text is how histories tell of an empty answer.
            content = Some(String::new());
        }
        fields.refused_unless("audio", Json::is_empty)?;
    }
    if role == "function" && tool_call_id.is_none() {
        tool_call_id = functions.answered(name);
    }
    fields.advisory(&["annotations", "refusal"])?;
    if content.is_none() && calls.is_none() {
        let path = fields.path_of("content");
        return Err(Refusal::shape(&path, &format!("missing field `{path}`")));
    }
    fields.finish(ignored);
    let mut message = Map::new();
    message.insert("role".to_owned(), role.into());
    message.insert(
        "content".to_owned(),
        content.map_or(Value::Null, Value::from),
    );
    for (key, value) in [
        ("name", name.map(Value::from)),
        ("reasoning_content", reasoning.map(Value::from)),
        ("tool_calls", calls),
        ("tool_call_id", tool_call_id.map(Value::from)),
    ] {
        if let Some(value) = value {
            message.insert(key.to_owned(), value);
        }
    }
    Ok(message)
}

/// A string of `most` bytes at most.
pub(super) fn read_short<'a>(
    fields: &mut Fields<'a>,
    key: &'static str,
    most: usize,
) -> Result<Option<&'a str>, Refusal> {
    match fields.string(key)? {
        Some(text) if text.len() > most => {
            let path = fields.path_of(key);
            let given = text.len();
            Err(Refusal::validation(
                &path,
                format!("`{path}` must have at most {most} bytes. Given: {given}"),
            ))
        }
        other => Ok(other),
    }
}

/// A string, or text parts.
fn read_content(json: &Json, path: &str, ignored: &mut Ignored) -> Result<String, Refusal> {
    match json {
        Json::String(text) => Ok(text.clone()),
        Json::Array(parts) => {
            let mut text = String::new();
            for (index, part) in parts.iter().enumerate() {
                text.push_str(read_part(part, &format!("{path}[{index}]"), ignored)?);
            }
            Ok(text)
        }
        other => Err(Refusal::wrong_type(
            path,
            &other.describe(),
            "a string or a sequence of parts",
        )),
    }
}

fn read_part<'a>(json: &'a Json, path: &str, ignored: &mut Ignored) -> Result<&'a str, Refusal> {
    if let Json::String(text) = json {
        return Ok(text);
    }
    let mut fields = Fields::of(json, path)?;
    let kind = fields.string("type")?.unwrap_or("text");
    match kind {
        "text" | "input_text" | "output_text" | "refusal" => {
            let key = if kind == "refusal" { "refusal" } else { "text" };
            let text = match fields.required(key)? {
                Json::String(text) => text,
                other => {
                    return Err(Refusal::wrong_type(
                        &fields.path_of(key),
                        &other.describe(),
                        "a string",
                    ));
                }
            };
            fields.finish(ignored);
            Ok(text)
        }
        other => {
            let shown: String = other.chars().take(32).collect();
            Err(Refusal::validation(
                path,
                format!("`{path}`: content of type {shown:?} is not supported by this model"),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::Flags;
    use crate::refusal::Dialect;

    fn read(body: &Value) -> Result<ChatPrompt, String> {
        read_with_ignored(body).map(|(chat, _)| chat)
    }

    fn read_with_ignored(body: &Value) -> Result<(ChatPrompt, Ignored), String> {
        let flags = Flags::default();
        let json = Json::parse(body.to_string().as_bytes()).unwrap();
        let mut ignored = Ignored::default();
        read_messages(&json, &Bounds::of(Dialect::OpenAi, flags), &mut ignored)
            .map(|chat| (chat, ignored))
            .map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn parts_are_joined_and_nulls_are_absent() {
        let chat = read(&serde_json::json!([
            {"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "é"}]},
            {"role": "user", "content": "x", "name": null, "tool_calls": null},
        ]))
        .unwrap();
        assert_eq!(
            chat.messages,
            [
                serde_json::json!({"role": "system", "content": "aé"}),
                serde_json::json!({"role": "user", "content": "x"})
            ]
        );
        assert_eq!((chat.characters, chat.weight), (3, 4));
    }

    #[test]
    fn empty_content_keeps_tool_calls() {
        let call = serde_json::json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        for content in [Value::Null, Value::from("")] {
            let chat = read(&serde_json::json!([
                {"role": "assistant", "content": content, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "42"},
            ]))
            .unwrap();
            assert_eq!(chat.messages[0]["tool_calls"][0], call);
            assert_eq!(chat.messages[1]["tool_call_id"], "1");
        }
    }

    #[test]
    fn unknown_keys_of_parts_and_calls_are_named() {
        let (chat, ignored) = read_with_ignored(&serde_json::json!([
            {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "extra_content": 1, "function": {"name": "f", "arguments": "{}", "strict": true}}
            ]},
        ]))
        .unwrap();
        assert_eq!(
            ignored.keys(),
            [
                "messages[0].content[0].cache_control",
                "messages[1].tool_calls[0].function.strict",
                "messages[1].tool_calls[0].extra_content",
            ]
        );
        assert_eq!(
            chat.messages[1]["tool_calls"],
            serde_json::json!([{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}])
        );
    }

    #[test]
    fn unknown_keys_of_messages_are_named() {
        let (chat, ignored) = read_with_ignored(&serde_json::json!([
            {"role": "user", "content": "x", "reasoning_content": "not an assistant", "refusal": null, "audio": 1},
            {"role": "assistant", "content": "x", "reasoning_details": [], "annotations": []},
        ]))
        .unwrap();
        assert_eq!(
            ignored.keys(),
            [
                "messages[0].reasoning_content",
                "messages[0].audio",
                "messages[1].reasoning_details"
            ]
        );
        assert_eq!(
            chat.messages[0],
            serde_json::json!({"role": "user", "content": "x"})
        );
    }

    #[test]
    fn an_assistants_reasoning_and_refusal_reach_the_template() {
        let chat = read(&serde_json::json!([
            {"role": "assistant", "content": "a", "reasoning": "r"},
            {"role": "assistant", "content": "a", "reasoning": "r", "reasoning_content": "c", "thinking": "t"},
            {"role": "assistant", "content": null, "refusal": "I will not."},
            {"role": "assistant", "content": "a", "refusal": null, "audio": null, "function_call": null},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ]))
        .unwrap();
        assert_eq!(
            chat.messages,
            [
                serde_json::json!({"role": "assistant", "content": "a", "reasoning_content": "r"}),
                serde_json::json!({"role": "assistant", "content": "a", "reasoning_content": "c"}),
                serde_json::json!({"role": "assistant", "content": "I will not."}),
                serde_json::json!({"role": "assistant", "content": "a"}),
                serde_json::json!({"role": "assistant", "content": "No."}),
            ]
        );
    }

    #[test]
    fn an_assistants_null_content_is_empty() {
        for message in [
            serde_json::json!({"role": "assistant", "content": null}),
            serde_json::json!({"role": "assistant"}),
        ] {
            let chat =
                read(&serde_json::json!([message, {"role": "user", "content": "x"}])).unwrap();
            assert_eq!(
                chat.messages[0],
                serde_json::json!({"role": "assistant", "content": ""})
            );
        }
    }

    #[test]
    fn errors_name_the_place() {
        let cases = [
            (
                serde_json::json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
                "Input validation error: `messages[0].content[0]`: content of type \"image_url\" is not supported \
                 by this model",
            ),
            (
                serde_json::json!([{"role": "user"}]),
                "Failed to deserialize the JSON body into the target type: missing field `messages[0].content`",
            ),
            (
                serde_json::json!([{"content": "x"}]),
                "Failed to deserialize the JSON body into the target type: missing field `messages[0].role`",
            ),
            (
                serde_json::json!([{"role": "user", "content": 7}]),
                "Failed to deserialize the JSON body into the target type: messages[0].content: invalid type: \
                 integer `7`, expected a string or a sequence of parts",
            ),
            (
                serde_json::json!([{"role": "user", "content": [
                    {"type": "text", "text": "x"}, {"type": "input_audio", "input_audio": {}}]}]),
                "Input validation error: `messages[0].content[1]`: content of type \"input_audio\" is not supported \
                 by this model",
            ),
            (
                serde_json::json!([{"role": "assistant", "content": "x", "audio": {"id": "a"}}]),
                "Input validation error: `messages[0].audio`: this field is not supported",
            ),
            (
                serde_json::json!([{"role": "assistant", "content": "x", "reasoning": {}}]),
                "Failed to deserialize the JSON body into the target type: messages[0].reasoning: invalid type: map, \
                 expected a string",
            ),
            (
                serde_json::json!([{"role": "r".repeat(65), "content": "x"}]),
                "Input validation error: `messages[0].role` must have at most 64 bytes. Given: 65",
            ),
            (
                serde_json::json!([{"role": "user", "name": "n".repeat(257), "content": "x"}]),
                "Input validation error: `messages[0].name` must have at most 256 bytes. Given: 257",
            ),
            (
                serde_json::json!([{"role": "tool", "tool_call_id": "n".repeat(257), "content": "x"}]),
                "Input validation error: `messages[0].tool_call_id` must have at most 256 bytes. Given: 257",
            ),
            (
                serde_json::json!([]),
                "Input validation error: `messages` cannot be empty",
            ),
        ];
        for (body, message) in cases {
            assert_eq!(read(&body), Err(message.to_owned()));
        }
    }
}
