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

/// Lists of further special tokens, the newer name first.
const MORE: [&str; 2] = ["extra_special_tokens", "additional_special_tokens"];

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
    /// `tokenizer_config.json` with what `special_tokens_map.json` changes of it.
    config: Map<String, Value>,
    /// Whether `tokenizer_config.json` is there and says all that `config` says.
    pub(crate) is_whole: bool,
    /// By id: `added_tokens_decoder`, or else `added_tokens.json`.
    pub(crate) added: BTreeMap<u32, Added>,
    /// `model_type` of `config.json`.
    pub(crate) model_type: Option<String>,
    /// `rope_type` of `config.json`, by its newer or older names.
    pub(crate) rope_type: Option<String>,
    /// `tokenizer_class` of `config.json`.
    model_class: Option<String>,
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
            model_class: text(model.get("tokenizer_class")),
            is_whole: config.is_some(),
            config: config.unwrap_or_default(),
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
            check_named(names.as_ref()).map_err(|reason| refuse(NAMES[1], reason))?;
            beside.overlay(names.unwrap_or_default());
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
        check_named(Some(&beside.config)).map_err(|reason| refuse(NAMES[0], reason))?;
        Ok(beside)
    }

    /// Where `tokenizer_config.json` lists no added tokens, `special_tokens_map.json` goes before it, as in
    /// `transformers`; but for the additional tokens, of which the first list counts.
    fn overlay(&mut self, names: Map<String, Value>) {
        for (key, mut value) in names {
            let has_more = MORE
                .iter()
                .any(|more| self.config.get(*more).is_some_and(|list| !list.is_null()));
            if MORE.contains(&key.as_str()) && has_more {
                continue;
            }
            if let Value::Object(fields) = &mut value
                && !MORE.contains(&key.as_str())
            {
                fields.insert("special".to_owned(), true.into());
            }
            if self.config.get(&key).map(text_of) != Some(text_of(&value))
                || MORE.contains(&key.as_str())
            {
                self.is_whole = false;
            }
            self.config.insert(key, value);
        }
    }

    /// A named token's text.
    pub(crate) fn named(&self, key: &str) -> Option<String> {
        self.config.get(key).and_then(text_of)
    }

    /// Whether a file names the token, or says that there is none.
    pub(crate) fn names(&self, key: &str) -> bool {
        self.config.contains_key(key)
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.config.get(key).and_then(Value::as_bool)
    }

    /// The class that is to read the vocabulary, without `Fast`.
    pub(crate) fn class(&self) -> Option<&str> {
        let class = self.config.get("tokenizer_class").and_then(Value::as_str);
        let class = class.or(self.model_class.as_deref())?;
        Some(class.strip_suffix("Fast").unwrap_or(class))
    }

    /// A tokenizer of the repository's own code may do anything to a text.
    pub(crate) fn own_class(&self) -> Option<&str> {
        let map = self.config.get("auto_map")?;
        if !map.is_array() {
            map.get("AutoTokenizer")?;
        }
        let class = self.config.get("tokenizer_class").and_then(Value::as_str);
        Some(class.unwrap_or("?"))
    }

    /// The named tokens in the order in which `transformers` adds them, then the additional ones. `known` names what no
    /// file does.
    pub(crate) fn special_tokens(&self, known: &[(&'static str, &'static str)]) -> Vec<Added> {
        let known = |key: &str| {
            let mut known = known.iter().filter(|(name, _)| *name == key);
            known
                .next()
                .map(|(_, text)| Added::new((*text).to_owned(), true))
        };
        let listed = |token: &Value| {
            let text = text_of(token)?;
            let found = self.added.values().find(|added| added.content == text);
            let token = found.cloned().or_else(|| added_of(token))?;
            Some(Added {
                is_special: true,
                ..token
            })
        };
        let named = NAMED.iter().filter_map(|key| match self.config.get(*key) {
            Some(token) => listed(token),
            None => known(key),
        });
        let own = self.config.iter().filter(|(key, value)| {
            key.ends_with("_token") && !NAMED.contains(&key.as_str()) && value.is_string()
        });
        let own = own.filter_map(|(_, token)| listed(token));
        named
            .chain(own)
            .chain(self.more().into_iter().filter_map(listed))
            .collect()
    }

    /// Additional special tokens, by the newer or the older name.
    fn more(&self) -> Vec<&Value> {
        let lists = MORE.iter().filter_map(|key| match self.config.get(*key)? {
            Value::Array(tokens) if !tokens.is_empty() => Some(tokens.iter().collect()),
            Value::Object(tokens) if !tokens.is_empty() => Some(tokens.values().collect()),
            _ => None,
        });
        lists.into_iter().next().unwrap_or_default()
    }

    /// Named and additional special tokens.
    fn special_texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = NAMED.iter().filter_map(|key| self.named(key)).collect();
        texts.extend(self.more().into_iter().filter_map(text_of));
        texts
    }

    /// The configuration with `known` where no file names a token and without what `dropped` has; nothing where the
    /// folder's own says the same.
    pub(crate) fn config(
        &self,
        known: Vec<(&'static str, String)>,
        dropped: &[&str],
    ) -> Option<Map<String, Value>> {
        let mut config = self.config.clone();
        let mut is_whole = self.is_whole;
        for (key, text) in known {
            if !config.contains_key(key) {
                config.insert(key.to_owned(), text.into());
                is_whole = false;
            }
        }
        for key in dropped {
            is_whole &= config.shift_remove(*key).is_none();
        }
        (!is_whole).then_some(config)
    }
}

/// A named token is a text, an object with one, or nothing.
fn check_named(config: Option<&Map<String, Value>>) -> Result<(), String> {
    for key in NAMED {
        let token = config.and_then(|config| config.get(key));
        if let Some(token) = token.filter(|token| {
            let is_text = token.is_null() || token.is_string();
            !is_text && !token.get("content").is_some_and(Value::is_string)
        }) {
            return Err(format!(
                "`{key}` is neither a text nor an object with `content`: {token}"
            ));
        }
    }
    Ok(())
}

fn text_of(token: &Value) -> Option<String> {
    let text = token
        .as_str()
        .or_else(|| token.get("content").and_then(Value::as_str))?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn listed(id: &str, token: &Value) -> Option<(u32, Added)> {
    let id: u32 = id.parse().ok()?;
    ((id as usize) < MOST_TOKENS)
        .then(|| added_of(token))?
        .map(|token| (id, token))
}

/// A token with its flags; a bare text is a special one.
fn added_of(token: &Value) -> Option<Added> {
    let flag = |key: &str| token.get(key).and_then(Value::as_bool);
    let is_special = flag("special").unwrap_or(token.is_string());
    Some(Added {
        content: text_of(token)?,
        is_special,
        left_strip: flag("lstrip").unwrap_or(false),
        right_strip: flag("rstrip").unwrap_or(false),
        is_single_word: flag("single_word").unwrap_or(false),
        is_normalized: flag("normalized").unwrap_or(!is_special),
    })
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
