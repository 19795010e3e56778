//! Reads what a request says about its chat template.

use crate::call::ChatPrompt;
use crate::fields::Fields;
use crate::json::Json;
use crate::refusal::Refusal;
use serde_json::{Map, Value};

/// Members of `chat_template_kwargs` at most.
const MAX_VARIABLES: usize = 64;

/// Bytes of one variable's name at most.
const NAME_BYTES: usize = 64;

/// Bytes of `chat_template_kwargs`, written as JSON, at most.
const VARIABLE_BYTES: usize = 64 << 10;

/// Entries of `documents` at most.
const MAX_DOCUMENTS: usize = 1024;

/// Names that a template gets from the server or from other fields of the request.
const TAKEN: [&str; 21] = [
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "conversation",
    "tokenize",
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "additional_special_tokens",
    "raise_exception",
    "strftime_now",
    "namespace",
    "range",
    "dict",
];

/// Fields that only chats have; on other routes they are refused.
pub(super) const TEMPLATE_FIELDS: [&str; 3] =
    ["chat_template", "chat_template_kwargs", "documents"];

/// Reads the fields into `chat`.
pub(super) fn read_template_fields(
    body: &mut Fields<'_>,
    chat: &mut ChatPrompt,
) -> Result<(), Refusal> {
    chat.add_generation_prompt = body.boolean("add_generation_prompt")?;
    chat.continue_final_message = body.boolean("continue_final_message")?;
    chat.add_special_tokens = body.boolean("add_special_tokens")?.unwrap_or(false);
    if chat.add_generation_prompt == Some(true) && chat.continue_final_message == Some(true) {
        return Err(Refusal::validation(
            "continue_final_message",
            "`continue_final_message` and `add_generation_prompt` exclude each other",
        ));
    }
    if let Some(json) = body.get("chat_template_kwargs")? {
        chat.variables = read_variables(json)?;
    }
    if let Some(json) = body.get("documents")? {
        chat.documents = read_documents(json)?;
        chat.weight += chat
            .documents
            .iter()
            .map(|document| document.to_string().len())
            .sum::<usize>();
    }
    // A template is a program: the model's own is the operator's choice, one of a request would be anybody's.
    let own = body.string("chat_template")?;
    if own.is_some_and(|text| !text.is_empty()) {
        return Err(Refusal::validation(
            "chat_template",
            "`chat_template`: a request's own template is not supported",
        ));
    }
    Ok(())
}

fn read_variables(json: &Json) -> Result<Map<String, Value>, Refusal> {
    const FIELD: &str = "chat_template_kwargs";
    let Json::Object(members) = json else {
        return Err(Refusal::wrong_type(FIELD, &json.describe(), "a map"));
    };
    let refuse = |message: String| Err(Refusal::validation(FIELD, message));
    if members.len() > MAX_VARIABLES {
        return refuse(format!(
            "`{FIELD}` supports up to {MAX_VARIABLES} keys. Given: {}",
            members.len()
        ));
    }
    let mut variables = Map::new();
    for (name, value) in members {
        let shown: String = name.chars().take(NAME_BYTES).collect();
        if name.is_empty() || name.len() > NAME_BYTES {
            return refuse(format!(
                "`{FIELD}`: key {shown:?} must have 1 to {NAME_BYTES} bytes"
            ));
        }
        if TAKEN.contains(&name.as_str()) {
            return refuse(format!(
                "`{FIELD}`: {shown:?} is set by the server or by a field of the request"
            ));
        }
        if variables.insert(name.clone(), value.to_value()).is_some() {
            return refuse(format!("`{FIELD}`: key {shown:?} is given twice"));
        }
    }
    let variables = Value::Object(variables);
    let bytes = variables.to_string().len();
    match variables {
        Value::Object(variables) if bytes <= VARIABLE_BYTES => Ok(variables),
        _ => refuse(format!(
            "`{FIELD}` must have at most {VARIABLE_BYTES} bytes. Given: {bytes}"
        )),
    }
}

fn read_documents(json: &Json) -> Result<Vec<Value>, Refusal> {
    const FIELD: &str = "documents";
    let items = match json {
        Json::Array(items) => items,
        Json::Ids(_) => {
            return Err(Refusal::wrong_type("documents[0]", "an integer", "a map"));
        }
        other => {
            return Err(Refusal::wrong_type(
                FIELD,
                &other.describe(),
                "a sequence of maps",
            ));
        }
    };
    if items.len() > MAX_DOCUMENTS {
        return Err(Refusal::validation(
            FIELD,
            format!(
                "`{FIELD}` supports up to {MAX_DOCUMENTS} documents. Given: {}",
                items.len()
            ),
        ));
    }
    items
        .iter()
        .enumerate()
        .map(|(index, item)| match item {
            Json::Object(_) => Ok(item.to_value()),
            other => Err(Refusal::wrong_type(
                &format!("{FIELD}[{index}]"),
                &other.describe(),
                "a map",
            )),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(body: &Value) -> Result<ChatPrompt, String> {
        read_json(&Json::parse(body.to_string().as_bytes()).unwrap())
    }

    fn read_json(json: &Json) -> Result<ChatPrompt, String> {
        let mut fields = Fields::of(json, "").unwrap();
        let mut chat = ChatPrompt::default();
        read_template_fields(&mut fields, &mut chat)
            .map(|()| chat)
            .map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn a_requests_own_template_is_refused() {
        assert_eq!(
            read(&json!({"chat_template": "{{ messages }}"})).unwrap_err(),
            "Input validation error: `chat_template`: a request's own template is not supported"
        );
        assert!(read(&json!({"chat_template": ""})).is_ok());
    }

    #[test]
    fn fields_are_read() {
        let chat = read(&json!({
            "chat_template_kwargs": {"enable_thinking": false, "budget": 3, "words": ["a"]},
            "documents": [{"title": "t", "text": "x"}],
            "add_generation_prompt": false, "continue_final_message": true, "add_special_tokens": true,
        }))
        .unwrap();
        assert_eq!(
            Value::Object(chat.variables),
            json!({"enable_thinking": false, "budget": 3, "words": ["a"]})
        );
        assert_eq!(chat.documents, [json!({"title": "t", "text": "x"})]);
        assert_eq!(chat.continue_final_message, Some(true));
        assert!(chat.add_special_tokens);
        let none = json!({"chat_template_kwargs": null, "documents": [], "chat_template": ""});
        assert_eq!(read(&none), Ok(ChatPrompt::default()));
    }

    #[test]
    fn bounds_name_the_field() {
        let many: Map<String, Value> = (0..65).map(|i| (format!("k{i}"), json!(1))).collect();
        let long = "x".repeat(64 << 10);
        let documents = vec![json!({}); 1025];
        let prefix = "Input validation error: ";
        let shape = "Failed to deserialize the JSON body into the target type: ";
        let cases = [
            (
                json!({"chat_template_kwargs": many}),
                format!("{prefix}`chat_template_kwargs` supports up to 64 keys. Given: 65"),
            ),
            (
                json!({"chat_template_kwargs": {"messages": []}}),
                format!(
                    "{prefix}`chat_template_kwargs`: \"messages\" is set by the server or by a field of the request"
                ),
            ),
            (
                json!({"chat_template_kwargs": {"bos_token": "x"}}),
                format!(
                    "{prefix}`chat_template_kwargs`: \"bos_token\" is set by the server or by a field of the request"
                ),
            ),
            (
                json!({"chat_template_kwargs": {"": 1}}),
                format!("{prefix}`chat_template_kwargs`: key \"\" must have 1 to 64 bytes"),
            ),
            (
                json!({"chat_template_kwargs": {"a": long}}),
                format!(
                    "{prefix}`chat_template_kwargs` must have at most 65536 bytes. Given: 65544"
                ),
            ),
            (
                json!({"chat_template_kwargs": [1]}),
                format!("{shape}chat_template_kwargs: invalid type: sequence, expected a map"),
            ),
            (
                json!({"documents": documents}),
                format!("{prefix}`documents` supports up to 1024 documents. Given: 1025"),
            ),
            (
                json!({"documents": [{}, "x"]}),
                format!("{shape}documents[1]: invalid type: string \"x\", expected a map"),
            ),
            (
                json!({"documents": {"a": 1}}),
                format!("{shape}documents: invalid type: map, expected a sequence of maps"),
            ),
            (
                json!({"chat_template": {}}),
                format!("{shape}chat_template: invalid type: map, expected a string"),
            ),
        ];
        for (body, message) in cases {
            assert_eq!(read(&body), Err(message));
        }
        let twice = Json::parse(br#"{"chat_template_kwargs": {"a": 1, "a": 2}}"#).unwrap();
        let message = read_json(&twice).unwrap_err();
        assert!(message.ends_with("key \"a\" is given twice"));
    }
}
