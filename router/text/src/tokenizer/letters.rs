//! `SentencePiece`'s rules for letters (`precompiled_charsmap`): at every place of a text the longest text that the map
//! knows becomes another.
//!
//! The library's `Precompiled` looks at clusters of letters and takes the shortest text that the map knows: a mark after
//! a letter that changes is lost. Published files are read with it, for `transformers` does so too; the launcher asks for
//! this one in the files that it makes of a `SentencePiece` model.

use crate::error::TextError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokenizers::NormalizedString;

/// What the launcher writes beside a map; `launcher/vocabulary` has the same.
const MARK: &str = "headrace_match";

/// A map: a double-array trie over UTF-8, and what its texts become.
#[derive(Debug)]
pub(super) struct LetterRules {
    units: Vec<u32>,
    /// Each ends with NUL.
    texts: String,
}

impl LetterRules {
    /// Takes the map out of a `tokenizer.json` that asks for the longest text: the map, and the file without it.
    pub(super) fn take_out(json: &[u8]) -> Result<Option<(Self, Vec<u8>)>, TextError> {
        let invalid = |error: &dyn std::fmt::Display| TextError::Invalid(error.to_string());
        if !std::str::from_utf8(json).is_ok_and(|text| text.contains(MARK)) {
            return Ok(None);
        }
        let mut file: Value = serde_json::from_slice(json).map_err(|error| invalid(&error))?;
        let is_asked = |step: &Value| step[MARK] == "longest";
        let normalizer = &mut file["normalizer"];
        let step = if is_asked(normalizer) {
            normalizer.take()
        } else {
            // What comes before it would come after it.
            match normalizer["normalizers"].as_array_mut() {
                Some(steps) if steps.first().is_some_and(is_asked) => steps.remove(0),
                _ => return Ok(None),
            }
        };
        let map = step["precompiled_charsmap"].as_str().unwrap_or_default();
        let rules = STANDARD
            .decode(map)
            .ok()
            .and_then(|bytes| Self::parse(&bytes))
            .ok_or_else(|| invalid(&"`precompiled_charsmap` is no map of letters"))?;
        let rest = serde_json::to_vec(&file).map_err(|error| invalid(&error))?;
        Ok(Some((rules, rest)))
    }

    /// Four bytes of length, the trie, the texts.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (trie, texts) = rest.split_at_checked(length)?;
        let (units, odd) = trie.as_chunks::<4>();
        (!units.is_empty() && odd.is_empty()).then_some(())?;
        Some(Self {
            units: units.iter().copied().map(u32::from_le_bytes).collect(),
            texts: String::from_utf8(texts.to_vec()).ok()?,
        })
    }

    /// Bytes of the longest known text that `text` begins with, and what it becomes.
    fn longest<'a>(&'a self, text: &str) -> Option<(usize, &'a str)> {
        // A unit's low byte is the letter that leads to it, bit 8 tells of a value among its children, bits 10 and up are
        // how far these are off, in units of 256 if bit 9 is set. A value has its highest bit set.
        let offset = |unit: u32| (unit >> 10) << ((unit & 0x200) >> 6);
        let unit = |place: u32| self.units.get(usize::try_from(place).ok()?).copied();
        let mut place = offset(unit(0)?);
        let mut found = None;
        for (index, byte) in text.bytes().enumerate() {
            if byte == 0 {
                break;
            }
            let Some(child) = unit(place ^ u32::from(byte)) else {
                break;
            };
            if child & 0x8000_00FF != u32::from(byte) {
                break;
            }
            place ^= u32::from(byte) ^ offset(child);
            if child & 0x100 != 0
                && text.is_char_boundary(index + 1)
                && let Some(value) = unit(place)
                && let Ok(start) = usize::try_from(value & 0x7FFF_FFFF)
                && let Some(becomes) = self.texts.get(start..)
            {
                let becomes = becomes.split('\0').next().unwrap_or_default();
                found = Some((index + 1, becomes));
            }
        }
        found
    }

    /// Applies the map; every letter keeps its place in the original text.
    pub(super) fn normalize(&self, text: &mut NormalizedString) {
        let mut letters: Vec<(char, isize)> = Vec::with_capacity(text.get().len());
        let mut num_dropped_first = 0;
        let mut is_other = false;
        let mut rest = text.get();
        while let Some(first) = rest.chars().next() {
            let Some((length, becomes)) = self.longest(rest) else {
                letters.push((first, 0));
                rest = &rest[first.len_utf8()..];
                continue;
            };
            is_other = true;
            let (old, rest_of) = rest.split_at(length);
            rest = rest_of;
            let mut num_old = old.chars().count();
            for letter in becomes.chars() {
                // New ones stand beside the last that they are made of.
                letters.push((letter, isize::from(num_old == 0)));
                num_old = num_old.saturating_sub(1);
            }
            match letters.last_mut() {
                Some((_, change)) => *change -= num_old.cast_signed(),
                None => num_dropped_first += num_old,
            }
        }
        if is_other {
            text.transform(letters, num_dropped_first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn files_without_the_mark_are_the_library_s() {
        let published =
            br#"{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}"#;
        assert!(LetterRules::take_out(published).unwrap().is_none());
    }

    #[test]
    fn a_map_that_is_none_is_refused() {
        for map in ["", "!", "AAAA", "AAAAAA==", "BQAAAAAAAAAA", "/////wAAAAA="] {
            let file = format!(
                r#"{{"normalizer": {{"precompiled_charsmap": "{map}", "{MARK}": "longest"}}}}"#
            );
            let error = LetterRules::take_out(file.as_bytes()).unwrap_err();
            assert!(
                error.to_string().contains("`precompiled_charsmap`"),
                "{map}"
            );
        }
    }

    proptest! {
        /// Whatever a map holds, no text makes it panic or loop.
        #[test]
        fn any_units_end(
            units in proptest::collection::vec(any::<u32>(), 1..600),
            texts in "[a-z\0é]{0,40}",
            text in "\\PC{0,30}",
        ) {
            let rules = LetterRules { units, texts };
            let mut text = NormalizedString::from(text);
            rules.normalize(&mut text);
        }
    }
}
