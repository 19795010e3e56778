//! `tokenizer.ggml.pre`: the name of the pre-tokeniser that a byte-level BPE vocabulary was trained with.
//!
//! The names are llama.cpp's; each stands for the regular expressions of the `tokenizer.json` that the model
//! family ships, applied one after the other, matches and gaps alike staying pieces. Where llama.cpp rewrote an
//! expression for its own engine, the family's own is used here.

use crate::error::TextError;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

const DIGIT: &str = r"\p{N}";
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_V3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const CHINESE_AND_KANA: &str = "[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const FALCON_PUNCTUATION: &str = r"[\p{P}\$\+<=>\^~\|`]+";
const DEFAULT_PUNCTUATION: &str = r"[\p{P}\$\+<=>\^~\|]+";
const THREE_DIGITS: &str = "[0-9][0-9][0-9]";

/// One row of the table.
#[derive(Debug)]
pub(super) struct PreTokenizerKind {
    names: &'static [&'static str],
    expressions: &'static [&'static str],
    /// A word that is a token is that token, whatever the merges would make of it.
    pub(super) takes_whole_words: bool,
    /// Whether sequences begin with the beginning-of-sequence token where the metadata does not say.
    pub(super) adds_bos: bool,
}

impl PreTokenizerKind {
    const fn new(names: &'static [&'static str], expressions: &'static [&'static str]) -> Self {
        Self {
            names,
            expressions,
            takes_whole_words: false,
            adds_bos: false,
        }
    }

    const fn whole_words(mut self) -> Self {
        self.takes_whole_words = true;
        self
    }

    const fn with_bos(mut self) -> Self {
        self.adds_bos = true;
        self
    }

    pub(super) fn build(&self) -> Result<Sequence, TextError> {
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for expression in self.expressions {
            let pattern = SplitPattern::Regex((*expression).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|error| TextError::Invalid(format!("pre-tokeniser: {error}")))?;
            steps.push(split.into());
        }
        steps.push(ByteLevel::new(false, true, false).into());
        Ok(Sequence::new(steps))
    }
}

static KINDS: [PreTokenizerKind; 16] = [
    PreTokenizerKind::new(
        &["default"],
        &[DEFAULT_PUNCTUATION, GPT2, r"\p{N}+", THREE_DIGITS],
    ),
    PreTokenizerKind::new(
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
        ],
        &[GPT2],
    ),
    PreTokenizerKind::new(
        &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[DIGIT, GPT2],
    ),
    PreTokenizerKind::new(
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        &[LLAMA3],
    )
    .whole_words()
    .with_bos(),
    PreTokenizerKind::new(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[LLAMA3]),
    PreTokenizerKind::new(&["glm4", "glm5"], &[LLAMA3]).whole_words(),
    PreTokenizerKind::new(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[QWEN2],
    ),
    PreTokenizerKind::new(&["qwen35"], &[QWEN35]),
    PreTokenizerKind::new(&["tekken"], &[TEKKEN])
        .whole_words()
        .with_bos(),
    PreTokenizerKind::new(
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        &[GPT4O],
    ),
    PreTokenizerKind::new(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[r"\p{N}{1,3}", CHINESE_AND_KANA, DEEPSEEK_V3],
    ),
    PreTokenizerKind::new(&["falcon"], &[FALCON_PUNCTUATION, GPT2, THREE_DIGITS]),
    PreTokenizerKind::new(&["seed-coder"], &[SEED_CODER]),
    PreTokenizerKind::new(&["bailingmoe", "bailingmoe2", "llada-moe"], &[BAILING]),
    PreTokenizerKind::new(&["minicpm5"], &[r"\p{N}{1,3}", LLAMA3_ANY_DIGITS]).whole_words(),
    PreTokenizerKind::new(&["laguna"], &[r"[^\n]+|[\n]+", QWEN2]),
];

const LLAMA3_ANY_DIGITS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The row of a name; files without one are old and mean `default`.
pub(super) fn find(name: Option<&str>) -> Result<&'static PreTokenizerKind, TextError> {
    let name = name.unwrap_or("default");
    KINDS
        .iter()
        .find(|kind| kind.names.contains(&name))
        .ok_or_else(|| TextError::Unsupported(format!("tokenizer.ggml.pre {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_builds_and_no_name_stands_twice() {
        let mut names = std::collections::BTreeSet::new();
        for kind in &KINDS {
            kind.build().unwrap();
            for name in kind.names {
                assert!(names.insert(*name), "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_name_is_refused_by_name() {
        let error = find(Some("smollm3-next")).unwrap_err().to_string();
        assert_eq!(
            error,
            "unsupported tokenizer: tokenizer.ggml.pre \"smollm3-next\""
        );
    }
}
