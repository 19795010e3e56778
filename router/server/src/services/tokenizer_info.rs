//! `/tokenizer_info`: what clients that tokenise from afar want to know.

use super::ServicesError;
use headrace_api::tokenize::TokenizerInfo;
use headrace_text::{ChatTemplate, Tokenizer};
use serde_json::{Map, Value};
use std::path::Path;

/// Keys that are always there, `null` where the model has none: clients look for them before they believe that there is
/// a tokenizer.
const ALWAYS: [&str; 4] = ["bos_token", "eos_token", "unk_token", "pad_token"];

/// `tokenizer_config.json` with each token as its text, the named tokens, and the template that chats are rendered with.
pub(super) fn read(
    config: Option<&Path>,
    tokenizer: &Tokenizer,
    template: Option<&ChatTemplate>,
) -> Result<TokenizerInfo, ServicesError> {
    let mut other = match config {
        Some(path) => {
            let wrong = |problem: String| ServicesError(format!("{}: {problem}", path.display()));
            let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
            match serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))? {
                Value::Object(members) => members,
                _ => return Err(wrong("not a JSON object".to_owned())),
            }
        }
        None => Map::new(),
    };
    other.values_mut().for_each(tokens_to_texts);
    for (name, text) in tokenizer.named_tokens() {
        other.insert(name.clone(), text.clone().into());
    }
    for name in ALWAYS {
        other.entry(name).or_insert(Value::Null);
    }
    match template {
        Some(template) => other.insert("chat_template".to_owned(), template.source().into()),
        None => other.remove("chat_template"),
    };
    let tokenizer_class = match other.remove("tokenizer_class") {
        Some(Value::String(name)) => name,
        _ => "PreTrainedTokenizerFast".to_owned(),
    };
    Ok(TokenizerInfo {
        tokenizer_class,
        other,
    })
}

/// `{"content": "<s>", "lstrip": …}` becomes `"<s>"`, wherever it stands.
fn tokens_to_texts(value: &mut Value) {
    match value {
        Value::Object(members) => {
            if let (Some(Value::String(text)), true) =
                (members.get("content"), members.contains_key("lstrip"))
            {
                *value = Value::String(text.clone());
                return;
            }
            members.values_mut().for_each(tokens_to_texts);
        }
        Value::Array(items) => items.iter_mut().for_each(tokens_to_texts),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_become_their_texts_wherever_they_stand() {
        let token =
            |text: &str| serde_json::json!({"content": text, "lstrip": false, "special": true});
        let mut value = serde_json::json!({
            "eos_token": token("</s>"),
            "added_tokens_decoder": {"0": token("<unk>")},
            "extra": [token("<x>"), {"content": "no token"}],
            "model_max_length": 8192
        });
        tokens_to_texts(&mut value);
        assert_eq!(
            value,
            serde_json::json!({
                "eos_token": "</s>",
                "added_tokens_decoder": {"0": "<unk>"},
                "extra": ["<x>", {"content": "no token"}],
                "model_max_length": 8192
            })
        );
    }
}
