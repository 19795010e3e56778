//! Past tool calls of a chat's assistant.

use super::messages::read_short;
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::Refusal;
use serde_json::{Map, Value};

/// Bytes of a call's id at most.
pub(super) const ID_BYTES: usize = 256;

/// Bytes of a function's or a speaker's name at most.
pub(super) const NAME_BYTES: usize = 256;

/// Calls of one message at most.
const MAX_CALLS: usize = 256;

/// The older form of calls, `function_call`, has no ids: they get one each, so that templates see the newer form only.
#[derive(Debug, Default)]
pub(super) struct FunctionCalls {
    num_calls: usize,
    /// Name and id of the last one.
    last: Option<(String, String)>,
}

impl FunctionCalls {
    fn add(&mut self, name: &str) -> String {
        let id = format!("call_{}", self.num_calls);
        self.num_calls += 1;
        self.last = Some((name.to_owned(), id.clone()));
        id
    }

    /// The id of the call that a result with this name answers.
    pub(super) fn answered(&self, name: Option<&str>) -> Option<String> {
        self.last
            .as_ref()
            .filter(|(called, _)| name.is_none_or(|name| name == called))
            .map(|(_, id)| id.clone())
    }
}

/// `tool_calls` of a message, or its `function_call` in the same shape; `None` where there is no call.
pub(super) fn read_calls(
    message: &mut Fields<'_>,
    functions: &mut FunctionCalls,
    ignored: &mut Ignored,
) -> Result<Option<Value>, Refusal> {
    let function_call = message.get("function_call")?;
    if let Some(calls) = message.get("tool_calls")?.filter(|calls| !calls.is_empty()) {
        return read_tool_calls(calls, &message.path_of("tool_calls"), ignored).map(Some);
    }
    let Some(call) = function_call else {
        return Ok(None);
    };
    let (name, function) = read_function(call, &message.path_of("function_call"), ignored)?;
    let id = functions.add(&name);
    Ok(Some(serde_json::json!([
        {"id": id, "type": "function", "function": function}
    ])))
}

/// An id, a type, and a function with a name and arguments. Templates get these keys and no other.
fn read_tool_calls(json: &Json, path: &str, ignored: &mut Ignored) -> Result<Value, Refusal> {
    let Json::Array(calls) = json else {
        return Err(Refusal::wrong_type(
            path,
            &json.describe(),
            "a sequence of tool calls",
        ));
    };
    if calls.len() > MAX_CALLS {
        return Err(Refusal::validation(
            path,
            format!(
                "`{path}` supports up to {MAX_CALLS} calls. Given: {}",
                calls.len()
            ),
        ));
    }
    let mut read = Vec::with_capacity(calls.len());
    for (index, call) in calls.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let mut fields = Fields::of(call, &path)?;
        let (_, function) = read_function(
            fields.required("function")?,
            &fields.path_of("function"),
            ignored,
        )?;
        let mut kept = Map::new();
        for (key, most) in [("id", ID_BYTES), ("type", NAME_BYTES)] {
            if let Some(text) = read_short(&mut fields, key, most)? {
                kept.insert(key.to_owned(), text.into());
            }
        }
        if let Some(index) = fields.u32("index")? {
            kept.insert("index".to_owned(), index.into());
        }
        fields.finish(ignored);
        kept.insert("function".to_owned(), function);
        read.push(Value::Object(kept));
    }
    Ok(Value::Array(read))
}

/// The name, and the object that templates get. Absent arguments are none.
fn read_function(
    json: &Json,
    path: &str,
    ignored: &mut Ignored,
) -> Result<(String, Value), Refusal> {
    let mut fields = Fields::of(json, path)?;
    let Some(name) = read_short(&mut fields, "name", NAME_BYTES)? else {
        let path = fields.path_of("name");
        return Err(Refusal::shape(&path, &format!("missing field `{path}`")));
    };
    let arguments = match fields.get("arguments")? {
        None => Value::from("{}"),
        Some(arguments @ (Json::String(_) | Json::Object(_))) => arguments.to_value(),
        Some(other) => {
            return Err(Refusal::wrong_type(
                &fields.path_of("arguments"),
                &other.describe(),
                "a string or a map",
            ));
        }
    };
    fields.finish(ignored);
    let function = serde_json::json!({"name": name, "arguments": arguments});
    Ok((name.to_owned(), function))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(messages: &Value) -> Result<Vec<Option<Value>>, String> {
        let mut functions = FunctionCalls::default();
        let mut read = Vec::new();
        for message in messages.as_array().unwrap() {
            let json = Json::parse(message.to_string().as_bytes()).unwrap();
            let mut fields = Fields::of(&json, "m").unwrap();
            let calls = read_calls(&mut fields, &mut functions, &mut Ignored::default())
                .map_err(|refusal| refusal.message().to_owned())?;
            read.push(calls);
        }
        Ok(read)
    }

    #[test]
    fn the_older_form_becomes_a_tool_call_with_an_id() {
        let mut functions = FunctionCalls::default();
        let body = json!({"function_call": {"name": "f", "arguments": "{\"a\": 1}"}});
        let json = Json::parse(body.to_string().as_bytes()).unwrap();
        let mut fields = Fields::of(&json, "m").unwrap();
        let calls = read_calls(&mut fields, &mut functions, &mut Ignored::default()).unwrap();
        assert_eq!(
            calls,
            Some(json!([{"id": "call_0", "type": "function",
                "function": {"name": "f", "arguments": "{\"a\": 1}"}}]))
        );
        assert_eq!(functions.answered(Some("f")).as_deref(), Some("call_0"));
        assert_eq!(functions.answered(None).as_deref(), Some("call_0"));
        assert_eq!(functions.answered(Some("g")), None);
    }

    #[test]
    fn absent_arguments_are_none_and_empty_lists_are_no_calls() {
        let read = read(&json!([
            {"tool_calls": [{"id": "1", "function": {"name": "f"}}]},
            {"tool_calls": []},
            {"tool_calls": null, "function_call": null},
        ]))
        .unwrap();
        assert_eq!(
            read,
            [
                Some(json!([{"id": "1", "function": {"name": "f", "arguments": "{}"}}])),
                None,
                None
            ]
        );
    }

    #[test]
    fn errors_name_the_place() {
        let shape = "Failed to deserialize the JSON body into the target type: ";
        let call = |function: Value| json!([{"tool_calls": [{"id": "1", "function": function}]}]);
        let cases = [
            (
                call(json!({"name": "f", "arguments": [1]})),
                format!(
                    "{shape}m.tool_calls[0].function.arguments: invalid type: sequence, expected a string or a map"
                ),
            ),
            (
                call(json!({"arguments": "{}"})),
                format!("{shape}missing field `m.tool_calls[0].function.name`"),
            ),
            (
                json!([{"tool_calls": [{"id": 1, "function": {"name": "f"}}]}]),
                format!(
                    "{shape}m.tool_calls[0].id: invalid type: integer `1`, expected a string"
                ),
            ),
            (
                json!([{"tool_calls": [{"id": "x".repeat(257), "function": {"name": "f"}}]}]),
                "Input validation error: `m.tool_calls[0].id` must have at most 256 bytes. Given: 257"
                    .to_owned(),
            ),
            (
                json!([{"tool_calls": vec![json!({"function": {"name": "f"}}); 257]}]),
                "Input validation error: `m.tool_calls` supports up to 256 calls. Given: 257".to_owned(),
            ),
            (
                json!([{"tool_calls": {"id": "1"}}]),
                format!("{shape}m.tool_calls: invalid type: map, expected a sequence of tool calls"),
            ),
        ];
        for (messages, message) in cases {
            assert_eq!(read(&messages), Err(message));
        }
    }
}
