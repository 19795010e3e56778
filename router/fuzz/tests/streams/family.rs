//! Real tokenizers of three families, and a second reading of their files that shares no code with ours.

use headrace_text::{SpecialText, Tokenizer};
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One tokenizer.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) tokenizer: Arc<Tokenizer>,
    /// What `transformers` decodes with.
    pub(crate) library: tokenizers::Tokenizer,
    /// Bytes of each id in the middle of a text; none for ids without a token.
    bytes: Vec<Vec<u8>>,
    special: Vec<bool>,
    /// A text does not begin with the space that its first word's token begins with.
    drops_first_space: bool,
    /// The id of each single byte.
    pub(crate) of_byte: Vec<Option<u32>>,
    pub(crate) special_ids: Vec<u32>,
    /// Added tokens that are part of the text.
    pub(crate) visible_added_ids: Vec<u32>,
    /// Real texts, encoded.
    pub(crate) corpus: Vec<Vec<u32>>,
}

impl Family {
    /// Byte fallback, byte level, and a large vocabulary.
    pub(crate) fn all() -> Vec<Self> {
        ["llama2", "qwen3", "llama3_1"].map(Self::load).into()
    }

    fn load(name: &'static str) -> Self {
        let folder = test_data().join("tokenizers").join(name);
        let path = folder.join("tokenizer.json");
        let json = std::fs::read(&path)
            .unwrap_or_else(|error| panic!("{}: {error}; run `make test-data`", path.display()));
        let file: Value = serde_json::from_slice(&json).unwrap();
        let config = folder.join("tokenizer_config.json");
        let tokenizer = Arc::new(Tokenizer::from_file(&path, Some(&config)).unwrap());
        let library = tokenizers::Tokenizer::from_bytes(&json).unwrap();
        let decoder = file["decoder"].to_string();
        let is_byte_level = decoder.contains("ByteLevel");
        let mut tokens: Vec<(u32, String, bool)> = file["model"]["vocab"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(token, id)| (number(id), token.clone(), false))
            .collect();
        let added = file["added_tokens"].as_array().unwrap();
        tokens.extend(added.iter().map(|token| {
            let text = token["content"].as_str().unwrap().to_owned();
            (number(&token["id"]), text, token["special"] == true)
        }));
        let size = tokens.iter().map(|(id, _, _)| id + 1).max().unwrap() as usize;
        let mut family = Self {
            name,
            tokenizer,
            library,
            bytes: vec![Vec::new(); size],
            special: vec![false; size],
            drops_first_space: decoder.contains("\"Strip\""),
            of_byte: vec![None; 256],
            special_ids: Vec::new(),
            visible_added_ids: Vec::new(),
            corpus: Vec::new(),
        };
        let alphabet = alphabet();
        for (id, token, is_special) in tokens {
            let bytes = if is_byte_level {
                byte_level(&token, &alphabet)
            } else {
                byte_fallback(&token)
            };
            if let [byte] = bytes[..]
                && (is_byte_level || token.starts_with("<0x"))
            {
                family.of_byte[usize::from(byte)] = Some(id);
            }
            if is_special {
                family.special_ids.push(id);
            }
            family.bytes[id as usize] = bytes;
            family.special[id as usize] = is_special;
        }
        for token in added {
            if token["special"] != true {
                family.visible_added_ids.push(number(&token["id"]));
            }
        }
        let texts: Vec<String> =
            serde_json::from_str(include_str!("../../../text/tests/golden/strings.json")).unwrap();
        family.corpus = texts.iter().map(|text| family.encode(text)).collect();
        family
    }

    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        let encoding = self.tokenizer.encode(text, false, SpecialText::Parse);
        encoding.unwrap().ids
    }

    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.special.get(id as usize).copied().unwrap_or(false)
    }

    /// A token's own bytes.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        self.bytes.get(id as usize).map_or(&[], Vec::as_slice)
    }

    /// The bytes of `ids` where `last` stands before them, special tokens skipped.
    pub(crate) fn text_bytes(&self, last: Option<u32>, ids: &[u32]) -> Vec<u8> {
        let whole = |ids: &mut dyn Iterator<Item = &u32>| {
            let visible = ids.filter(|id| !self.is_special(**id));
            let mut bytes: Vec<u8> = visible.flat_map(|id| self.bytes(*id)).copied().collect();
            if self.drops_first_space && bytes.first() == Some(&b' ') {
                bytes.remove(0);
            }
            bytes
        };
        let before = whole(&mut last.iter()).len();
        whole(&mut last.iter().chain(ids)).split_off(before)
    }
}

/// `HEADRACE_TEST_DATA`, or `target/test-data` of this checkout.
fn test_data() -> PathBuf {
    std::env::var_os("HEADRACE_TEST_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-data"),
        PathBuf::from,
    )
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

/// GPT-2's: the printable ones of Latin-1 stand for themselves, the others are numbered from U+0100.
fn alphabet() -> HashMap<char, u8> {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut alphabet = HashMap::new();
    let mut next = 0x100_u32;
    for byte in 0..=255_u8 {
        if is_printable(byte) {
            alphabet.insert(char::from(byte), byte);
        } else {
            alphabet.insert(char::from_u32(next).unwrap(), byte);
            next += 1;
        }
    }
    alphabet
}

fn byte_level(token: &str, alphabet: &HashMap<char, u8>) -> Vec<u8> {
    let bytes: Option<Vec<u8>> = token
        .chars()
        .map(|letter| alphabet.get(&letter).copied())
        .collect();
    bytes.unwrap_or_else(|| token.as_bytes().to_vec())
}

fn byte_fallback(token: &str) -> Vec<u8> {
    if token.len() == 6
        && token.starts_with("<0x")
        && let Ok(byte) = u8::from_str_radix(&token[3..5], 16)
    {
        return vec![byte];
    }
    token.replace('\u{2581}', " ").into_bytes()
}
