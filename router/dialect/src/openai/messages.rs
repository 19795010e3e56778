//! Reads the messages of a chat into what templates get.

use crate::bounds::Bounds;
use crate::call::ChatPrompt;
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::Refusal;
use serde_json::{Map, Value};

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
    for (index, item) in items.iter().enumerate() {
        let message = read_message(item, &format!("messages[{index}]"), &mut chat, ignored)?;
        chat.messages.push(message);
    }
    Ok(chat)
}

fn read_message(
    json: &Json,
    path: &str,
    chat: &mut ChatPrompt,
    ignored: &mut Ignored,
) -> Result<Value, Refusal> {
    let mut fields = Fields::of(json, path)?;
    let mut message = Map::new();
    let role = match fields.required("role")? {
        Json::String(role) => role.clone(),
        other => {
            return Err(Refusal::wrong_type(
                &fields.path_of("role"),
                &other.describe(),
                "a string",
            ));
        }
    };
    let tool_calls = fields.get("tool_calls")?.filter(|calls| !calls.is_empty());
    let has_calls = tool_calls.is_some();
    let content = match fields.get("content")? {
        // An assistant's turn without text is how histories tell of an empty answer.
        None if role == "assistant" && !has_calls => Some(String::new()),
        None => None,
        Some(json) => Some(read_content(json, &fields.path_of("content"), ignored)?),
    };
    let call_path = fields.path_of("tool_calls");
    let name = fields.string("name")?;
    let tool_call_id = fields.string("tool_call_id")?;
    fields.advisory(&["refusal", "annotations", "audio", "function_call"])?;
    if content.is_none() && tool_calls.is_none() {
        let path = fields.path_of("content");
        return Err(Refusal::shape(&path, &format!("missing field `{path}`")));
    }
    fields.finish(ignored);
    message.insert("role".to_owned(), role.into());
    if let Some(text) = &content {
        chat.characters += text.chars().count();
        chat.weight += text.len();
    }
    message.insert(
        "content".to_owned(),
        content.map_or(Value::Null, Value::from),
    );
    if let Some(name) = name {
        message.insert("name".to_owned(), name.into());
    }
    if let Some(calls) = tool_calls {
        let calls = read_tool_calls(calls, &call_path, ignored)?;
        chat.weight += calls.to_string().len();
        message.insert("tool_calls".to_owned(), calls);
    }
    if let Some(id) = tool_call_id {
        message.insert("tool_call_id".to_owned(), id.into());
    }
    Ok(Value::Object(message))
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

/// Past calls of the assistant: an id, a type, and a function with a name and arguments. Templates get these keys
/// and no other.
fn read_tool_calls(json: &Json, path: &str, ignored: &mut Ignored) -> Result<Value, Refusal> {
    let Json::Array(calls) = json else {
        return Err(Refusal::wrong_type(
            path,
            &json.describe(),
            "a sequence of tool calls",
        ));
    };
    let mut read = Vec::with_capacity(calls.len());
    for (index, call) in calls.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut fields = Fields::of(call, &path)?;
        let mut function = Fields::of(fields.required("function")?, &fields.path_of("function"))?;
        if function.string("name")?.is_none() {
            let path = function.path_of("name");
            return Err(Refusal::shape(&path, &format!("missing field `{path}`")));
        }
        let mut kept = Map::new();
        for key in ["id", "type", "index"] {
            if let Some(value) = fields.get(key)? {
                kept.insert(key.to_owned(), value.to_value());
            }
        }
        let mut kept_function = Map::new();
        for key in ["name", "arguments"] {
            if let Some(value) = function.get(key)? {
                kept_function.insert(key.to_owned(), value.to_value());
            }
        }
        function.finish(ignored);
        fields.finish(ignored);
        kept.insert("function".to_owned(), Value::Object(kept_function));
        read.push(Value::Object(kept));
    }
    Ok(Value::Array(read))
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
        let flags = Flags {
            max_best_of: 2,
            max_stop_sequences: 4,
            max_top_n_tokens: 5,
            max_client_batch_size: 4,
        };
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
                serde_json::json!([]),
                "Input validation error: `messages` cannot be empty",
            ),
        ];
        for (body, message) in cases {
            assert_eq!(read(&body), Err(message.to_owned()));
        }
    }
}
