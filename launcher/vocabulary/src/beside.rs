//! The files beside a vocabulary: named tokens, added tokens, whose code it is.

use crate::error::VocabularyError;
use crate::{MOST_TOKENS, read};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// The files that matter, `config.json` last.
pub(crate) const NAMES: [&str; 4] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "config.json",
];

/// Keys that name one token each.
const NAMED: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];

/// A token that is found in a text before the vocabulary's own way of cutting it up.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the independent flags of an added token"
)]
pub(crate) struct Added {
    pub(crate) content: String,
    pub(crate) is_special: bool,
    pub(crate) left_strip: bool,
    pub(crate) right_strip: bool,
    pub(crate) is_single_word: bool,
    pub(crate) is_normalized: bool,
}

impl Added {
    /// Matched as it stands.
    pub(crate) fn new(content: String, is_special: bool) -> Self {
        Self {
            content,
            is_special,
            left_strip: false,
            right_strip: false,
            is_single_word: false,
            is_normalized: false,
        }
    }
}

/// What the files say.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// `tokenizer_config.json`, or else `special_tokens_map.json`.
    config: Map<String, Value>,
    /// By id: `added_tokens_decoder`, or else `added_tokens.json`.
    pub(crate) added: BTreeMap<u32, Added>,
    /// `model_type` of `config.json`.
    pub(crate) model_type: Option<String>,
    /// `rope_type` of `config.json`, by its newer or older names.
    pub(crate) rope_type: Option<String>,
}

impl Beside {
    pub(crate) fn read(folder: &Path) -> Result<Self, VocabularyError> {
        let [config, names, added, model] = NAMES.map(|name| object(&folder.join(name)));
        let (config, names, added, model) = (config?, names?, added?, model?);
        let model = model.unwrap_or_default();
        let text = |value: Option<&Value>| Some(value?.as_str()?.to_owned());
        let rope = ["rope_parameters", "rope_scaling"];
        let rope = rope.iter().find_map(|key| model.get(*key)?.as_object());
        let mut beside = Self {
            model_type: text(model.get("model_type")),
            rope_type: rope.and_then(|rope| text(rope.get("rope_type").or(rope.get("type")))),
            config: config.or(names).unwrap_or_default(),
            added: BTreeMap::new(),
        };
        let refuse = |name: &str, reason: String| VocabularyError::Refused {
            path: folder.join(name),
            reason,
        };
        if let Some(tokens) = beside.config.get("added_tokens_decoder") {
            let tokens = tokens.as_object().ok_or_else(|| {
                refuse(NAMES[0], "`added_tokens_decoder` is not an object".into())
            })?;
            for (id, token) in tokens {
                let (id, token) = listed(id, token).ok_or_else(|| {
                    refuse(
                        NAMES[0],
                        format!("`added_tokens_decoder` has the entry {id:?}: {token}"),
                    )
                })?;
                beside.added.insert(id, token);
            }
        } else {
            let special = beside.special_texts();
            for (text, id) in added.iter().flatten() {
                let id = id.as_u64().and_then(|id| u32::try_from(id).ok());
                let id = id.filter(|&id| (id as usize) < MOST_TOKENS && !text.is_empty());
                let id = id.ok_or_else(|| refuse(NAMES[2], format!("{text:?} is no id")))?;
                let is_special = special.contains(text);
                beside
                    .added
                    .insert(id, Added::new(text.clone(), is_special));
            }
        }
        Ok(beside)
    }

    /// A named token's text.
    pub(crate) fn named(&self, key: &str) -> Option<String> {
        self.config.get(key).and_then(text_of)
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.config.get(key).and_then(Value::as_bool)
    }

    /// A tokenizer of the repository's own code may do anything to a text.
    pub(crate) fn own_class(&self) -> Option<&str> {
        let map = self.config.get("auto_map")?;
        map.get("AutoTokenizer")?;
        let class = self.config.get("tokenizer_class").and_then(Value::as_str);
        Some(class.unwrap_or("?"))
    }

    /// Named and additional special tokens.
    fn special_texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = NAMED.iter().filter_map(|key| self.named(key)).collect();
        if let Some(Value::Array(more)) = self.config.get("additional_special_tokens") {
            texts.extend(more.iter().filter_map(text_of));
        }
        texts
    }
}

fn text_of(token: &Value) -> Option<String> {
    let text = token
        .as_str()
        .or_else(|| token.get("content").and_then(Value::as_str))?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn listed(id: &str, token: &Value) -> Option<(u32, Added)> {
    let id: u32 = id.parse().ok()?;
    let flag = |key: &str| token.get(key).and_then(Value::as_bool);
    let is_special = flag("special").unwrap_or(false);
    let added = Added {
        content: text_of(token)?,
        is_special,
        left_strip: flag("lstrip").unwrap_or(false),
        right_strip: flag("rstrip").unwrap_or(false),
        is_single_word: flag("single_word").unwrap_or(false),
        is_normalized: flag("normalized").unwrap_or(!is_special),
    };
    ((id as usize) < MOST_TOKENS).then_some((id, added))
}

fn object(path: &Path) -> Result<Option<Map<String, Value>>, VocabularyError> {
    if !path.is_file() {
        return Ok(None);
    }
    serde_json::from_slice(&read(path)?)
        .map(Some)
        .map_err(|error| VocabularyError::Read {
            path: path.to_path_buf(),
            reason: format!("not a JSON object: {error}"),
        })
}
