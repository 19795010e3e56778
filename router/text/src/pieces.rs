//! What each id is worth in bytes, worked out once at load from the tokenizer's decoder.
//!
//! Decoders are chains of small steps (`Replace`, `ByteFallback`, `Fuse`, `Strip`, `ByteLevel`, `Metaspace`). All that
//! such a chain does to a token depends on the token alone, but for three things: whether it is the first one
//! (`Metaspace` drops its leading mark there; without a decoder a space goes before every other one), and how
//! much of a `Strip` over the whole text is still to be stripped. So a table of bytes per id and a state of two
//! small fields ([`Joiner`]) decode as the chain does, token by token. A chain that this does not cover is
//! refused by name.

use crate::error::TextError;
use rustc_hash::FxHashMap;
use serde_json::Value;
use tokenizers::{Decoder, DecoderWrapper};

/// What one id stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes of text in the middle of a sequence; possibly a part of a character. Empty for an unknown id.
    Bytes(&'a [u8]),
    /// A special token's text, which is no part of a decoded text.
    Special(&'a str),
}

/// Bytes of every id.
#[derive(Debug)]
pub(crate) struct PieceTable {
    bytes: Vec<u8>,
    /// Piece `id` is `bytes[ends[id - 1]..ends[id]]`.
    ends: Vec<u32>,
    is_special: Vec<bool>,
    /// Pieces that differ for the first token of a text.
    first: FxHashMap<u32, Vec<u8>>,
    /// Goes before every token but the first.
    separator: &'static [u8],
    /// Byte and how many of it are taken off the start of a text.
    strip: Option<(u8, u8)>,
}

/// One token of the vocabulary.
pub(crate) struct VocabularyEntry {
    /// As the decoder sees it.
    pub(crate) token: String,
    /// Skipped in decoded text.
    pub(crate) is_special: bool,
}

impl PieceTable {
    /// Builds the table; `None` entries are ids without a token.
    pub(crate) fn new(
        entries: impl Iterator<Item = Option<VocabularyEntry>>,
        decoder: Option<&DecoderWrapper>,
    ) -> Result<Self, TextError> {
        let chain = Chain::new(decoder)?;
        let mut table = Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            is_special: Vec::new(),
            first: FxHashMap::default(),
            separator: if chain.has_separator { b" " } else { b"" },
            strip: chain.strip,
        };
        for (id, entry) in (0_u32..).zip(entries) {
            let mut is_special = false;
            if let Some(entry) = entry {
                is_special = entry.is_special;
                let middle = chain.piece(&entry.token, false)?;
                if chain.drops_first_mark {
                    let first = chain.piece(&entry.token, true)?;
                    if first != middle {
                        table.first.insert(id, first);
                    }
                }
                // A special token's text is shown as a whole or not at all.
                if is_special && std::str::from_utf8(&middle).is_err() {
                    table
                        .bytes
                        .extend(String::from_utf8_lossy(&middle).as_bytes());
                } else {
                    table.bytes.extend(middle);
                }
            }
            let end = u32::try_from(table.bytes.len())
                .map_err(|_| TextError::Invalid("the vocabulary is larger than 4 GiB".into()))?;
            table.ends.push(end);
            table.is_special.push(is_special);
        }
        Ok(table)
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_special(&self, id: u32) -> bool {
        self.is_special.get(id as usize).copied().unwrap_or(false)
    }

    /// The bytes of `id` in the middle of a text.
    pub(crate) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else {
            return &[];
        };
        let start = if id == 0 { 0 } else { self.ends[id - 1] };
        &self.bytes[start as usize..end as usize]
    }

    /// Goes before every token but the first.
    pub(crate) fn separator(&self) -> &'static [u8] {
        self.separator
    }

    pub(crate) fn piece(&self, id: u32) -> Piece<'_> {
        let bytes = self.bytes(id);
        match std::str::from_utf8(bytes) {
            Ok(text) if self.is_special(id) => Piece::Special(text),
            Ok(_) | Err(_) => Piece::Bytes(bytes),
        }
    }
}

/// Where a text stands between two tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Joiner {
    is_started: bool,
    num_stripped: u8,
    is_strip_over: bool,
}

impl Joiner {
    /// Appends the bytes of a token that is not special.
    pub(crate) fn append(&mut self, table: &PieceTable, id: u32, out: &mut Vec<u8>) {
        if id as usize >= table.len() {
            return;
        }
        let mut bytes = table.bytes(id);
        if self.is_started {
            out.extend_from_slice(table.separator);
        } else {
            self.is_started = true;
            if let Some(first) = table.first.get(&id) {
                bytes = first;
            }
        }
        if let Some((content, limit)) = table.strip
            && !self.is_strip_over
        {
            while self.num_stripped < limit && bytes.first() == Some(&content) {
                bytes = &bytes[1..];
                self.num_stripped += 1;
            }
            self.is_strip_over = self.num_stripped == limit || !bytes.is_empty();
        }
        out.extend_from_slice(bytes);
    }
}

/// One step on a single token's text.
enum Step {
    /// `Replace`, or a `Strip` that comes before the tokens are joined: done by the library.
    Library(DecoderWrapper),
    /// `<0xNN>` is a byte.
    ByteFallback,
    /// The mark becomes a space.
    Metaspace(char),
    /// Characters of the byte alphabet become bytes.
    ByteLevel,
}

/// A decoder chain, taken apart.
struct Chain {
    steps: Vec<Step>,
    drops_first_mark: bool,
    has_separator: bool,
    strip: Option<(u8, u8)>,
}

impl Chain {
    fn new(decoder: Option<&DecoderWrapper>) -> Result<Self, TextError> {
        let mut chain = Self {
            steps: Vec::new(),
            drops_first_mark: false,
            has_separator: false,
            strip: None,
        };
        let Some(decoder) = decoder else {
            chain.has_separator = true;
            return Ok(chain);
        };
        let mut flat = Vec::new();
        flatten(decoder, &mut flat);
        let mut is_joined = false;
        for decoder in flat {
            chain.push(decoder, &mut is_joined)?;
        }
        Ok(chain)
    }

    fn push(&mut self, decoder: &DecoderWrapper, is_joined: &mut bool) -> Result<(), TextError> {
        let settings = serde_json::to_value(decoder)
            .map_err(|error| TextError::Invalid(format!("decoder: {error}")))?;
        let kind = settings["type"].as_str().unwrap_or_default().to_owned();
        let unsupported = |why: &str| TextError::Unsupported(format!("decoder {kind} {why}"));
        match decoder {
            DecoderWrapper::Fuse(_) => *is_joined = true,
            DecoderWrapper::Strip(_) if *is_joined => self.set_strip(&settings)?,
            _ if *is_joined => return Err(unsupported("after the tokens are joined")),
            DecoderWrapper::Replace(_) | DecoderWrapper::Strip(_) => {
                self.steps.push(Step::Library(decoder.clone()));
            }
            DecoderWrapper::ByteFallback(_) => self.steps.push(Step::ByteFallback),
            DecoderWrapper::ByteLevel(_) => {
                self.steps.push(Step::ByteLevel);
                *is_joined = true;
            }
            DecoderWrapper::Metaspace(_) => {
                let mark = settings["replacement"]
                    .as_str()
                    .and_then(|text| text.chars().next());
                let mark = mark.ok_or_else(|| unsupported("without a replacement"))?;
                self.drops_first_mark = settings["prepend_scheme"].as_str() != Some("never");
                self.steps.push(Step::Metaspace(mark));
            }
            _ => return Err(unsupported("is not for generated text")),
        }
        Ok(())
    }

    /// `Strip` over the whole text.
    fn set_strip(&mut self, settings: &Value) -> Result<(), TextError> {
        let content = settings["content"].as_str().unwrap_or_default();
        let start = settings["start"]
            .as_u64()
            .and_then(|n| u8::try_from(n).ok());
        let (Some(start), &[content], Some(0)) =
            (start, content.as_bytes(), settings["stop"].as_u64())
        else {
            return Err(TextError::Unsupported(format!(
                "decoder Strip with {settings}"
            )));
        };
        if self.strip.is_some() {
            return Err(TextError::Unsupported("two Strip decoders".into()));
        }
        self.strip = (start > 0).then_some((content, start));
        Ok(())
    }

    fn piece(&self, token: &str, is_first: bool) -> Result<Vec<u8>, TextError> {
        let mut text = token.to_owned();
        for step in &self.steps {
            match step {
                Step::Library(decoder) => {
                    text = decoder
                        .decode_chain(vec![text])
                        .map_err(|error| TextError::Invalid(format!("decoder: {error}")))?
                        .concat();
                }
                Step::ByteFallback => {
                    if let Some(byte) = byte_token(&text) {
                        return Ok(vec![byte]);
                    }
                }
                Step::Metaspace(mark) => {
                    let space = if is_first && self.drops_first_mark {
                        ""
                    } else {
                        " "
                    };
                    text = text.replace(*mark, space);
                }
                Step::ByteLevel => {
                    // A token with a character outside the alphabet is text already (added tokens).
                    let bytes: Option<Vec<u8>> = text.chars().map(byte_of_char).collect();
                    return Ok(bytes.unwrap_or_else(|| text.into_bytes()));
                }
            }
        }
        Ok(text.into_bytes())
    }
}

fn flatten<'a>(decoder: &'a DecoderWrapper, out: &mut Vec<&'a DecoderWrapper>) {
    if let DecoderWrapper::Sequence(sequence) = decoder {
        for decoder in sequence.get_decoders() {
            flatten(decoder, out);
        }
    } else {
        out.push(decoder);
    }
}

/// The byte of `<0xNN>`.
pub(crate) fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// GPT-2's byte alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 and up, in order.
fn byte_of_char(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => u8::try_from(code).ok(),
        code @ 0x100..=0x143 => {
            let index = u8::try_from(code - 0x100).ok()?;
            Some(match index {
                0..=0x20 => index,
                0x21..=0x42 => index - 0x21 + 0x7F,
                _ => 0xAD,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    #[test]
    fn the_byte_alphabet_is_the_library_s() {
        let alphabet = ByteLevel::alphabet();
        assert_eq!(alphabet.len(), 256);
        let mut seen = [false; 256];
        for character in alphabet {
            let byte = byte_of_char(character).expect("in the alphabet");
            let decoded = ByteLevel::default()
                .decode_chain(vec![character.to_string()])
                .unwrap();
            let one = String::from_utf8_lossy(&[byte]).into_owned();
            assert_eq!(decoded, vec![one], "{character}");
            assert!(!std::mem::replace(&mut seen[byte as usize], true));
        }
        assert_eq!(byte_of_char(' '), None);
        assert_eq!(byte_of_char('\u{144}'), None);
    }
}
