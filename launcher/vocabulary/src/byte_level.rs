//! Byte-level BPE out of ranks, as tiktoken has it: a piece that is a token is that token, else neighbours are merged by
//! the rank of what they make.

use crate::merges::splits;
use crate::{LONGEST_TOKEN, MOST_TOKENS};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

/// Tokens by rank; their ids begin at `first_id`.
pub(crate) fn model(
    ranks: &[Vec<u8>],
    first_id: usize,
    before: impl Iterator<Item = (String, u32)>,
) -> Result<Value, String> {
    if ranks.len() > MOST_TOKENS {
        return Err(format!("{} tokens", ranks.len()));
    }
    let mut known: HashSet<&[u8]> = HashSet::with_capacity(ranks.len());
    for (rank, token) in ranks.iter().enumerate() {
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Err(format!(
                "the token of rank {rank} has {} bytes",
                token.len()
            ));
        }
        if !known.insert(token) {
            return Err(format!("the token of rank {rank} is there twice"));
        }
    }
    if let Some(byte) = (0..=255_u8).find(|byte| !known.contains(&[*byte][..])) {
        return Err(format!("the byte {byte} has no token"));
    }
    let alphabet = alphabet();
    let letters = |bytes: &[u8]| -> String {
        bytes
            .iter()
            .map(|byte| alphabet[usize::from(*byte)])
            .collect()
    };
    let mut vocabulary = Map::new();
    for (text, id) in before {
        vocabulary.insert(text, id.into());
    }
    let mut merges = Vec::new();
    for (rank, token) in ranks.iter().enumerate() {
        let text = letters(token);
        if vocabulary.insert(text, (first_id + rank).into()).is_some() {
            return Err(format!("the token of rank {rank} is a special one too"));
        }
        for cut in splits(token, |_| true, |half| known.contains(half)) {
            merges.push(json!([letters(&token[..cut]), letters(&token[cut..])]));
        }
    }
    Ok(json!({
        "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
        "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
        "vocab": vocabulary, "merges": merges,
    }))
}

/// Words of `pattern`, then bytes to letters. `adds_space`: before every word that has none, as the library has it.
pub(crate) fn pre_tokenizer(pattern: &str, adds_space: bool) -> Value {
    json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "add_prefix_space": adds_space, "trim_offsets": true, "use_regex": false},
    ]})
}

/// The decoder; the processor is the same with offsets left as they are.
pub(crate) fn decoder() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})
}

/// Offsets are not trimmed.
pub(crate) fn processor() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true})
}

/// GPT-2's letters for bytes: printable Latin-1 for itself, the others from U+0100 on.
fn alphabet() -> Vec<char> {
    let mut next = 0x100_u32;
    (0..=255_u8)
        .map(|byte| {
            if matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) {
                return char::from(byte);
            }
            let letter = char::from_u32(next).unwrap_or(char::REPLACEMENT_CHARACTER);
            next += 1;
            letter
        })
        .collect()
}
