//! Prompts with a gap: the ids of what goes before and after it, in the order that a model was trained on.
//!
//! Models that can fill a gap have control tokens for it, and which order they want follows from their names.

use crate::error::TextError;
use crate::tokenizer::{SpecialText, Tokenizer};

/// In which order the parts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Prefix token, prefix, suffix token, suffix, middle token.
    PrefixFirst,
    /// Suffix token, suffix, prefix token, prefix: the model goes on from there.
    SuffixFirst,
}

/// One way of naming the control tokens.
struct Family {
    prefix: &'static str,
    suffix: &'static str,
    middle: Option<&'static str>,
    order: Order,
    /// What else ends a middle, where the vocabulary has it.
    ends: &'static [&'static str],
    /// Its tokenizer puts a space before a text, which a suffix must not get.
    adds_space: bool,
}

const FAMILIES: [Family; 6] = [
    // Qwen2.5-Coder, CodeGemma, Granite.
    Family {
        prefix: "<|fim_prefix|>",
        suffix: "<|fim_suffix|>",
        middle: Some("<|fim_middle|>"),
        order: Order::PrefixFirst,
        ends: &[
            "<|fim_pad|>",
            "<|repo_name|>",
            "<|file_sep|>",
            "<|file_separator|>",
        ],
        adds_space: false,
    },
    // StarCoder, Stable Code, Granite Code.
    Family {
        prefix: "<fim_prefix>",
        suffix: "<fim_suffix>",
        middle: Some("<fim_middle>"),
        order: Order::PrefixFirst,
        ends: &[
            "<fim_pad>",
            "<repo_name>",
            "<reponame>",
            "<file_sep>",
            "<filename>",
        ],
        adds_space: false,
    },
    // SantaCoder.
    Family {
        prefix: "<fim-prefix>",
        suffix: "<fim-suffix>",
        middle: Some("<fim-middle>"),
        order: Order::PrefixFirst,
        ends: &["<fim-pad>"],
        adds_space: false,
    },
    // DeepSeek.
    Family {
        prefix: "<｜fim▁begin｜>",
        suffix: "<｜fim▁hole｜>",
        middle: Some("<｜fim▁end｜>"),
        order: Order::PrefixFirst,
        ends: &[],
        adds_space: false,
    },
    // Code Llama.
    Family {
        prefix: "▁<PRE>",
        suffix: "▁<SUF>",
        middle: Some("▁<MID>"),
        order: Order::PrefixFirst,
        ends: &["▁<EOT>"],
        adds_space: true,
    },
    // Codestral.
    Family {
        prefix: "[PREFIX]",
        suffix: "[SUFFIX]",
        middle: None,
        order: Order::SuffixFirst,
        ends: &["[MIDDLE]"],
        adds_space: true,
    },
];

/// Stands before a text whose first space must not be added, and is taken off again.
const GUARD: &str = "☺";

/// The control tokens of a model that fills gaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infill {
    prefix: u32,
    suffix: u32,
    middle: Option<u32>,
    order: Order,
    adds_space: bool,
    ends: Vec<u32>,
}

impl Infill {
    /// The first family whose tokens are all in the vocabulary, every id below `vocab_size`.
    pub fn find(tokenizer: &Tokenizer, vocab_size: u32) -> Option<Self> {
        let id = |token: &str| tokenizer.token_to_id(token).filter(|id| *id < vocab_size);
        FAMILIES.iter().find_map(|family| {
            let (prefix, suffix) = (id(family.prefix)?, id(family.suffix)?);
            let middle = match family.middle {
                Some(token) => Some(id(token)?),
                None => None,
            };
            let others = family.ends.iter().filter_map(|token| id(token));
            let ends = [prefix, suffix].into_iter().chain(middle).chain(others);
            Some(Self {
                prefix,
                suffix,
                middle,
                order: family.order,
                adds_space: family.adds_space,
                ends: ends.collect(),
            })
        })
    }

    /// Ids that end what fills a gap, besides the model's end ids: control tokens that no text holds.
    pub fn end_ids(&self) -> &[u32] {
        &self.ends
    }

    /// The ids of a prompt with a gap. A control token's letters in either text stay letters.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        (prefix, suffix): (&str, &str),
        add_special_tokens: bool,
    ) -> Result<Vec<u32>, TextError> {
        let before = tokenizer.encode(prefix, false, SpecialText::Plain)?.ids;
        let after = self.encode_suffix(tokenizer, suffix)?;
        let mut ids = match self.order {
            Order::PrefixFirst => [vec![self.prefix], before, vec![self.suffix], after].concat(),
            Order::SuffixFirst => [vec![self.suffix], after, vec![self.prefix], before].concat(),
        };
        ids.extend(self.middle);
        if add_special_tokens {
            ids.splice(0..0, leading(tokenizer)?);
        }
        Ok(ids)
    }

    fn encode_suffix(&self, tokenizer: &Tokenizer, suffix: &str) -> Result<Vec<u32>, TextError> {
        let plain = |text: &str| tokenizer.encode(text, false, SpecialText::Plain);
        if self.adds_space {
            let guard = plain(GUARD)?.ids;
            let mut guarded = plain(&format!("{GUARD}{suffix}"))?.ids;
            if guarded.starts_with(&guard) {
                return Ok(guarded.split_off(guard.len()));
            }
        }
        Ok(plain(suffix)?.ids)
    }
}

/// What the tokenizer puts before a text. What it puts after one is left out here: the end is not reached yet.
fn leading(tokenizer: &Tokenizer) -> Result<Vec<u32>, TextError> {
    let plain = tokenizer.encode(GUARD, false, SpecialText::Plain)?.ids;
    let mut with = tokenizer.encode(GUARD, true, SpecialText::Plain)?.ids;
    let start = with
        .windows(plain.len().max(1))
        .position(|window| window == plain);
    with.truncate(start.unwrap_or(0));
    Ok(with)
}
