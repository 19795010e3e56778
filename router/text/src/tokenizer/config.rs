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
            if let Some(token) = value.get(name).and_then(added_token) {
                config.named.insert(
                    name.to_owned(),
                    AddedToken {
                        special: true,
                        ..token
                    },
                );
            }
        }
        if let Some(tokens) = value.get("added_tokens_decoder").and_then(Value::as_object) {
            let mut tokens: Vec<(u64, AddedToken)> = tokens
                .iter()
                .filter_map(|(id, token)| Some((id.parse().ok()?, added_token(token)?)))
                .collect();
            tokens.sort_by_key(|(id, _)| *id);
            config
                .added
                .extend(tokens.into_iter().map(|(_, token)| token));
        }
        for key in ["additional_special_tokens", "extra_special_tokens"] {
            let tokens: Vec<&Value> = match value.get(key) {
                Some(Value::Array(tokens)) => tokens.iter().collect(),
                Some(Value::Object(tokens)) => tokens.values().collect(),
                _ => Vec::new(),
            };
            config
                .added
                .extend(
                    tokens
                        .into_iter()
                        .filter_map(added_token)
                        .map(|token| AddedToken {
                            special: true,
                            ..token
                        }),
                );
        }
        let flag = |key: &str| value.get(key).and_then(Value::as_bool);
        config.ends = match (flag("add_bos_token"), flag("add_eos_token")) {
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

/// A token given as its text or as an object.
fn added_token(value: &Value) -> Option<AddedToken> {
    match value {
        Value::String(text) if !text.is_empty() => Some(AddedToken::from(text.clone(), true)),
        Value::Object(fields) => {
            let text = fields.get("content")?.as_str()?;
            if text.is_empty() {
                return None;
            }
            let flag = |key: &str| fields.get(key).and_then(Value::as_bool);
            let is_special = flag("special").unwrap_or(false);
            Some(AddedToken {
                content: text.to_owned(),
                single_word: flag("single_word").unwrap_or(false),
                lstrip: flag("lstrip").unwrap_or(false),
                rstrip: flag("rstrip").unwrap_or(false),
                normalized: flag("normalized").unwrap_or(!is_special),
                special: is_special,
            })
        }
        _ => None,
    }
}
