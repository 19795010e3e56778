//! Mistral's `tekken.json`: ranks of bytes in JSON, with the expression that cuts words. Special tokens have the first
//! ids, the ranks follow.

use crate::Converted;
use crate::beside::{Added, Beside};
use crate::byte_level::{decoder, model, pre_tokenizer, processor};
use crate::write::{Pipeline, check_added};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;

/// Special tokens at most.
const MOST_SPECIAL: usize = 65_536;

/// Those of files up to version 7 that do not list them.
const OLD_SPECIAL: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];

#[derive(Deserialize)]
struct Tekken {
    config: Config,
    vocab: Vec<Ranked>,
    #[serde(default)]
    special_tokens: Option<Vec<Special>>,
}

#[derive(Deserialize)]
struct Config {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
    version: String,
}

#[derive(Deserialize)]
struct Ranked {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct Special {
    rank: usize,
    token_str: String,
    #[serde(default = "yes")]
    is_control: bool,
}

fn yes() -> bool {
    true
}

pub(crate) fn convert(bytes: &[u8], beside: &Beside) -> Result<Converted, String> {
    let file: Tekken = serde_json::from_slice(bytes)
        .map_err(|error| format!("not a tekken vocabulary: {error}"))?;
    let num_special = file.config.default_num_special_tokens;
    if num_special > MOST_SPECIAL {
        return Err(format!("`default_num_special_tokens` is {num_special}"));
    }
    let num_ranks = file
        .config
        .default_vocab_size
        .checked_sub(num_special)
        .filter(|&count| count <= file.vocab.len())
        .ok_or_else(|| {
            format!(
                "`default_vocab_size` is {} for {num_special} special tokens and {} others",
                file.config.default_vocab_size,
                file.vocab.len()
            )
        })?;
    let special = special_tokens(&file, num_special)?;
    let mut ranks = Vec::with_capacity(num_ranks);
    for (place, token) in file.vocab.iter().take(num_ranks).enumerate() {
        if token.rank != place {
            return Err(format!("vocab[{place}] has the rank {}", token.rank));
        }
        let bytes = STANDARD.decode(&token.token_bytes);
        ranks.push(bytes.map_err(|error| format!("vocab[{place}].token_bytes: {error}"))?);
    }
    check_added(file.config.default_vocab_size, beside)?;
    let numbered = || (0_u32..).zip(&special);
    let model = model(
        &ranks,
        num_special,
        numbered().map(|(id, token)| (token.content.clone(), id)),
    )?;
    let named = |text: &str| {
        let mut found = numbered().filter(|(_, token)| token.content == text);
        found.next().map(|(id, token)| (token.content.clone(), id))
    };
    let mut texts = Vec::new();
    for (key, text) in [
        ("bos_token", "<s>"),
        ("eos_token", "</s>"),
        ("unk_token", "<unk>"),
        ("pad_token", "<pad>"),
    ] {
        texts.extend(named(text).map(|(text, _)| (key, text)));
    }
    let begin = named("<s>");
    let mut added: Vec<(u32, Added)> = (0_u32..).zip(special).collect();
    let listed = beside.added.iter();
    added.extend(
        listed
            .filter(|(id, _)| **id as usize >= file.config.default_vocab_size)
            .map(|(id, token)| (*id, token.clone())),
    );
    Pipeline {
        model,
        normalizer: Value::Null,
        pre_tokenizer: pre_tokenizer(&file.config.pattern, false),
        decoder: decoder(),
        processor: Some(processor()),
        added,
        begin,
        end: None,
        named: texts,
        dropped: &[],
    }
    .write(beside)
}

/// All of them by rank, with names for those that have none.
fn special_tokens(file: &Tekken, count: usize) -> Result<Vec<Added>, String> {
    let mut tokens: Vec<Option<Added>> = vec![None; count];
    match &file.special_tokens {
        Some(listed) => {
            for token in listed {
                let place = tokens
                    .get_mut(token.rank)
                    .filter(|place| place.is_none() && !token.token_str.is_empty());
                let place = place.ok_or_else(|| {
                    format!(
                        "the special token {:?} has the rank {} of {count}",
                        token.token_str, token.rank
                    )
                })?;
                *place = Some(Added::new(token.token_str.clone(), token.is_control));
            }
        }
        None if matches!(file.config.version.as_str(), "v1" | "v2" | "v3" | "v7") => {
            for (place, text) in tokens.iter_mut().zip(OLD_SPECIAL) {
                *place = Some(Added::new(text.to_owned(), true));
            }
        }
        None => {
            return Err(format!(
                "version {} lists no `special_tokens`",
                file.config.version
            ));
        }
    }
    let tokens: Vec<Added> = tokens
        .into_iter()
        .enumerate()
        .map(|(rank, token)| token.unwrap_or_else(|| Added::new(format!("<SPECIAL_{rank}>"), true)))
        .collect();
    let mut texts = HashSet::new();
    match tokens.iter().find(|token| !texts.insert(&token.content)) {
        Some(token) => Err(format!(
            "the special token {:?} is there twice",
            token.content
        )),
        None => Ok(tokens),
    }
}
