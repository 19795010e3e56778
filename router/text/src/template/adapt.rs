//! Messages in the shape that a template wants.

use crate::error::TemplateError;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// How a model's tool calls are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCallIds {
    /// `call_…`: any text.
    Call,
    /// Exactly nine letters and digits (Mistral).
    NineAlphanumerics,
    /// `functions.NAME:INDEX`: the id carries the function's name (Kimi).
    FunctionIndex,
}

/// What a template wants of its messages; found out by probing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent findings about one template"
)]
pub(super) struct Shape {
    /// Contents are lists of parts; else texts.
    pub(super) wants_parts: bool,
    /// `content: null` is understood; else it becomes an empty text.
    pub(super) takes_null: bool,
    /// `arguments` are a JSON text; else an object.
    pub(super) wants_argument_text: bool,
    /// The role `developer` is shown; else it becomes `system`.
    pub(super) knows_developer: bool,
    /// The role `function` is shown; else it becomes `tool`.
    pub(super) knows_function: bool,
    /// Tool definitions are shown.
    pub(super) shows_tools: bool,
    pub(super) ids: ToolCallIds,
}

impl Shape {
    /// What is changed in messages, one name each.
    pub(super) fn names(self) -> Vec<&'static str> {
        let ids = match self.ids {
            ToolCallIds::Call => None,
            ToolCallIds::NineAlphanumerics => Some("tool ids as 9 letters and digits"),
            ToolCallIds::FunctionIndex => Some("tool ids as functions.NAME:INDEX"),
        };
        [
            self.wants_parts.then_some("text as parts"),
            (!self.takes_null).then_some("null content as empty text"),
            self.wants_argument_text.then_some("arguments as JSON text"),
            (!self.knows_developer).then_some("developer as system"),
            (!self.knows_function).then_some("function as tool"),
            ids,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Names under which reasoning is sent; templates read the first, some the second.
const REASONING_KEYS: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

pub(super) fn adapt(messages: &[Value], shape: Shape) -> Result<Vec<Value>, TemplateError> {
    let mut ids = CallIds {
        kind: shape.ids,
        map: HashMap::new(),
        num_calls: 0,
    };
    let mut out = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let Value::Object(message) = message else {
            return Err(refused(index, "is not an object"));
        };
        let mut message = message.clone();
        let Some(Value::String(role)) = message.get_mut("role") else {
            return Err(refused(index, "has no role"));
        };
        match role.as_str() {
            "developer" if !shape.knows_developer => "system".clone_into(role),
            "function" if !shape.knows_function => "tool".clone_into(role),
            _ => {}
        }
        let content = message.remove("content").unwrap_or(Value::Null);
        let content = adapt_content(content, shape).map_err(|why| refused(index, &why))?;
        message.insert("content".into(), content);
        alias_reasoning(&mut message);
        if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
            for call in calls {
                adapt_call(call, shape, &mut ids);
            }
        }
        if let Some(Value::String(id)) = message.get_mut("tool_call_id") {
            *id = ids.of_result(id);
        }
        out.push(Value::Object(message));
    }
    Ok(out)
}

fn refused(index: usize, why: &str) -> TemplateError {
    TemplateError::Messages(format!("messages[{index}] {why}"))
}

fn adapt_content(content: Value, shape: Shape) -> Result<Value, String> {
    let text = match content {
        Value::Null if shape.takes_null => return Ok(Value::Null),
        Value::Null => String::new(),
        Value::String(text) => text,
        Value::Array(parts) => {
            let mut text = String::new();
            for part in &parts {
                text.push_str(part_text(part)?);
            }
            text
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            return Err("has a content that is neither a text nor a list of parts".into());
        }
    };
    if shape.wants_parts {
        return Ok(serde_json::json!([{"type": "text", "text": text}]));
    }
    Ok(Value::String(text))
}

fn part_text(part: &Value) -> Result<&str, String> {
    if let Value::String(text) = part {
        return Ok(text);
    }
    match part.get("type").and_then(Value::as_str) {
        Some("text") | None => part
            .get("text")
            .and_then(Value::as_str)
            .ok_or_else(|| "has a content part without text".into()),
        Some(kind) => Err(format!(
            "has a content part of type {kind:?}, which this model does not take"
        )),
    }
}

/// `transformers` shows reasoning to templates under both names.
fn alias_reasoning(message: &mut Map<String, Value>) {
    let reasoning = REASONING_KEYS
        .iter()
        .find_map(|key| message.get(*key).filter(|value| !value.is_null()))
        .cloned();
    if let Some(reasoning) = reasoning {
        if !message.contains_key("thinking") {
            message.insert("thinking".into(), reasoning.clone());
        }
        message.insert("reasoning_content".into(), reasoning);
    }
}

fn adapt_call(call: &mut Value, shape: Shape, ids: &mut CallIds) {
    let name = call
        .pointer("/function/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if let Some(Value::String(id)) = call.get_mut("id") {
        *id = ids.of_call(id, &name);
    }
    let Some(arguments) = call.pointer_mut("/function/arguments") else {
        return;
    };
    match arguments {
        Value::String(text) if !shape.wants_argument_text => {
            // Calls without arguments come with an empty text, too.
            if text.trim().is_empty() {
                *arguments = Value::Object(Map::new());
            } else if let Ok(parsed @ Value::Object(_)) = serde_json::from_str(text) {
                *arguments = parsed;
            }
        }
        Value::Object(_) if shape.wants_argument_text => {
            *arguments = Value::String(arguments.to_string());
        }
        _ => {}
    }
}

/// Ids in the model's own form, the same for a call and its result.
struct CallIds {
    kind: ToolCallIds,
    map: HashMap<String, String>,
    num_calls: usize,
}

impl CallIds {
    fn of_call(&mut self, id: &str, name: &str) -> String {
        let index = self.num_calls;
        self.num_calls += 1;
        let own = match self.kind {
            ToolCallIds::Call => id.to_owned(),
            ToolCallIds::NineAlphanumerics => nine_alphanumerics(id),
            ToolCallIds::FunctionIndex if is_function_index(id) => id.to_owned(),
            ToolCallIds::FunctionIndex => format!("functions.{name}:{index}"),
        };
        self.map.insert(id.to_owned(), own.clone());
        own
    }

    fn of_result(&self, id: &str) -> String {
        match (self.map.get(id), self.kind) {
            (Some(own), _) => own.clone(),
            (None, ToolCallIds::NineAlphanumerics) => nine_alphanumerics(id),
            (None, ToolCallIds::Call | ToolCallIds::FunctionIndex) => id.to_owned(),
        }
    }
}

fn is_function_index(id: &str) -> bool {
    id.strip_prefix("functions.")
        .and_then(|rest| rest.rsplit_once(':'))
        .is_some_and(|(name, index)| !name.is_empty() && index.parse::<u32>().is_ok())
}

/// The id itself if it has the form, else nine characters made from its hash (FNV-1a).
fn nine_alphanumerics(id: &str) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return id.to_owned();
    }
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let mut out = String::with_capacity(9);
    for _ in 0..9 {
        let digit = usize::try_from(hash % 62).unwrap_or(0);
        out.push(char::from(ALPHABET[digit]));
        hash /= 62;
    }
    out
}
