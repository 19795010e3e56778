//! `tokenizer_config.json`: what it says beyond `tokenizer.json`.

use crate::error::TextError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use tokenizers::{AddedToken, Tokenizer as Library};

/// Keys that name one token each; templates see them as variables.
const NAMED: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// The parts of the file that matter here.
#[derive(Debug, Default)]
pub(super) struct TokenizerConfig {
    /// By key of [`NAMED`].
    named: BTreeMap<String, AddedToken>,
    /// Tokens to be added where `tokenizer.json` lacks them, in order of ids.
    added: Vec<AddedToken>,
    /// `add_bos_token` and `add_eos_token`, if at least one is given: they replace the post-processor.
    pub(super) ends: Option<AddedEnds>,
}

/// Which ends of a sequence get a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct AddedEnds {
    pub(super) bos: bool,
    pub(super) eos: bool,
}

/// Tokens with a name.
#[derive(Debug, Default)]
pub(super) struct NamedTokens {
    /// `bos_token` … and their texts.
    pub(super) texts: BTreeMap<String, String>,
    pub(super) bos_id: Option<u32>,
    pub(super) eos_ids: Vec<u32>,
}

impl TokenizerConfig {
    pub(super) fn from_json(json: &[u8]) -> Result<Self, TextError> {
        let value: Map<String, Value> = serde_json::from_slice(json)
            .map_err(|error| TextError::Invalid(format!("not a JSON object: {error}")))?;
        let mut config = Self::default();
        for name in NAMED {
            let token = value.get(name).filter(|token| !token.is_null());
            let token = token.map(|token| added_token(name, token)).transpose()?;
            if let Some(token) = token.flatten() {
                config.named.insert(
                    name.to_owned(),
                    AddedToken {
                        special: true,
                        ..token
                    },
                );
            }
        }
        config.added = listed_tokens(&value)?;
        config.added.extend(more_tokens(&value)?);
        config.ends = match (
            flag(&value, "add_bos_token")?,
            flag(&value, "add_eos_token")?,
        ) {
            (None, None) => None,
            (bos, eos) => Some(AddedEnds {
                bos: bos.unwrap_or(false),
                eos: eos.unwrap_or(false),
            }),
        };
        Ok(config)
    }

    /// Adds the tokens that `tokenizer.json` does not list as added ones.
    pub(super) fn add_missing_tokens(&self, library: &mut Library) -> Result<(), TextError> {
        let known = library.get_added_vocabulary().get_vocab();
        let mut missing: Vec<AddedToken> = Vec::new();
        for token in self.added.iter().chain(self.named.values()) {
            let is_known = known.contains_key(&token.content)
                || missing.iter().any(|other| other.content == token.content);
            if !is_known {
                missing.push(token.clone());
            }
        }
        if !missing.is_empty() {
            library
                .add_tokens(missing)
                .map_err(|error| TextError::Invalid(format!("added tokens: {error}")))?;
        }
        Ok(())
    }

    pub(super) fn named_tokens(&self, library: &Library) -> NamedTokens {
        let id = |name: &str| {
            self.named
                .get(name)
                .and_then(|token| library.token_to_id(&token.content))
        };
        NamedTokens {
            bos_id: id("bos_token"),
            eos_ids: id("eos_token").into_iter().collect(),
            texts: self
                .named
                .iter()
                .map(|(name, token)| (name.clone(), token.content.clone()))
                .collect(),
        }
    }
}

/// `added_tokens_decoder`, by id.
fn listed_tokens(config: &Map<String, Value>) -> Result<Vec<AddedToken>, TextError> {
    let key = "added_tokens_decoder";
    let tokens = match config.get(key) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(tokens)) => tokens,
        Some(other) => return Err(wrong(key, "is not an object", other)),
    };
    let mut listed: Vec<(u64, AddedToken)> = Vec::with_capacity(tokens.len());
    for (id, token) in tokens {
        let name = format!("{key}.{id}");
        let id = id.parse().map_err(|_| wrong(&name, "is no id", token))?;
        listed.extend(added_token(&name, token)?.map(|token| (id, token)));
    }
    listed.sort_by_key(|(id, _)| *id);
    Ok(listed.into_iter().map(|(_, token)| token).collect())
}

/// Further special tokens: a list, or texts by name.
fn more_tokens(config: &Map<String, Value>) -> Result<Vec<AddedToken>, TextError> {
    let mut more = Vec::new();
    for key in ["additional_special_tokens", "extra_special_tokens"] {
        let tokens: Vec<&Value> = match config.get(key) {
            None | Some(Value::Null) => continue,
            Some(Value::Array(tokens)) => tokens.iter().collect(),
            Some(Value::Object(tokens)) => tokens.values().collect(),
            Some(other) => return Err(wrong(key, "is neither a list nor an object", other)),
        };
        for token in tokens {
            more.extend(added_token(key, token)?.map(|token| AddedToken {
                special: true,
                ..token
            }));
        }
    }
    Ok(more)
}

fn flag(config: &Map<String, Value>, key: &str) -> Result<Option<bool>, TextError> {
    match config.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(wrong(key, "is neither true nor false", other)),
    }
}

fn wrong(key: &str, why: &str, value: &Value) -> TextError {
    let shown: String = value.to_string().chars().take(80).collect();
    TextError::Invalid(format!("`{key}` {why}: {shown}"))
}

/// A token given as its text or as an object; nothing for no text.
fn added_token(key: &str, value: &Value) -> Result<Option<AddedToken>, TextError> {
    let text = match value {
        Value::Object(fields) => fields.get("content").and_then(Value::as_str),
        value => value.as_str(),
    };
    let Some(text) = text else {
        return Err(wrong(
            key,
            "is neither a text nor an object with `content`",
            value,
        ));
    };
    if text.is_empty() {
        return Ok(None);
    }
    if value.is_string() {
        return Ok(Some(AddedToken::from(text.to_owned(), true)));
    }
    let flag = |name: &str| match value.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(wrong(
            &format!("{key}.{name}"),
            "is neither true nor false",
            other,
        )),
    };
    let is_special = flag("special")?.unwrap_or(false);
    Ok(Some(AddedToken {
        content: text.to_owned(),
        single_word: flag("single_word")?.unwrap_or(false),
        lstrip: flag("lstrip")?.unwrap_or(false),
        rstrip: flag("rstrip")?.unwrap_or(false),
        normalized: flag("normalized")?.unwrap_or(!is_special),
        special: is_special,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_contents_of_tokenizer_config_load() {
        for json in [
            "{}",
            r#"{"bos_token": null, "eos_token": "", "pad_token": {"content": "<p>", "__type": "AddedToken"}}"#,
            r#"{"chat_template": null, "model_max_length": 1000000000000000019884624838656, "tokenizer_class": null}"#,
            r#"{"chat_template": [{"name": "default", "template": "x"}], "added_tokens_decoder": {}}"#,
            r#"{"added_tokens_decoder": null, "additional_special_tokens": null, "add_bos_token": null}"#,
            r#"{"added_tokens_decoder": {"0": {"content": "", "lstrip": null}}, "extra_special_tokens": {"image": "<i>"}}"#,
            r#"{"additional_special_tokens": ["<a>", {"content": "<b>", "lstrip": true}], "truncation": {"x": 1}}"#,
        ] {
            TokenizerConfig::from_json(json.as_bytes()).unwrap();
        }
        let config = TokenizerConfig::from_json(
            br#"{"added_tokens_decoder": {"12": {"content": "<b>"}, "3": {"content": "<a>", "special": true}}}"#,
        )
        .unwrap();
        let added: Vec<(&str, bool)> = config
            .added
            .iter()
            .map(|token| (token.content.as_str(), token.special))
            .collect();
        assert_eq!(added, [("<a>", true), ("<b>", false)]);
    }

    #[test]
    fn what_is_no_token_is_named_by_its_key() {
        for (json, key) in [
            (r#"{"bos_token": 5}"#, "`bos_token` is neither"),
            (r#"{"eos_token": ["</s>"]}"#, "`eos_token` is neither"),
            (r#"{"eos_token": false}"#, "`eos_token` is neither"),
            (r#"{"unk_token": {"text": "x"}}"#, "`unk_token` is neither"),
            (r#"{"pad_token": {"content": 7}}"#, "`pad_token` is neither"),
            (
                r#"{"pad_token": {"content": "<p>", "lstrip": "no"}}"#,
                "`pad_token.lstrip` is neither true nor false",
            ),
            (
                r#"{"added_tokens_decoder": []}"#,
                "`added_tokens_decoder` is not an object",
            ),
            (
                r#"{"added_tokens_decoder": {"x": {"content": "a"}}}"#,
                "`added_tokens_decoder.x` is no id",
            ),
            (
                r#"{"added_tokens_decoder": {"7": null}}"#,
                "`added_tokens_decoder.7` is neither",
            ),
            (
                r#"{"additional_special_tokens": "<a>"}"#,
                "`additional_special_tokens` is neither a list",
            ),
            (
                r#"{"extra_special_tokens": [1]}"#,
                "`extra_special_tokens` is neither a text",
            ),
            (
                r#"{"add_bos_token": "yes"}"#,
                "`add_bos_token` is neither true nor false",
            ),
            ("[]", "not a JSON object"),
        ] {
            let error = TokenizerConfig::from_json(json.as_bytes()).unwrap_err();
            let line = error.to_string();
            assert!(line.contains(key), "{line:?} lacks {key:?}");
            assert_eq!(line.lines().count(), 1);
        }
    }
}
