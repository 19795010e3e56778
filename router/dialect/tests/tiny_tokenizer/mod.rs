//! A small byte-level tokenizer: four special tokens, all 256 bytes, a few words.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    dead_code,
    reason = "test code, shared by several test binaries"
)]

use serde_json::{Value, json};

/// Beginning of sequence; added to raw prompts.
pub const BOS: u32 = 0;
/// End of sequence.
pub const EOS: u32 = 1;
/// Opens a message.
pub const START: u32 = 2;
/// Closes a message; also an end id.
pub const END: u32 = 3;
/// The id of byte 0; the other bytes follow.
pub const BYTES: u32 = 4;
/// The first word.
pub const WORDS: u32 = BYTES + 256;

const SPECIAL: [&str; 4] = ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"];
const WORD_LIST: [&str; 5] = ["Hello", " w", "user", "assistant", " and"];

/// Ids: special tokens, bytes, then every step of merging the words.
pub fn vocab_size() -> u32 {
    u32::try_from(tokens().len()).unwrap()
}

/// The id of a whole word.
pub fn word(text: &str) -> u32 {
    let shown: String = text.bytes().map(shown_byte).collect();
    let index = tokens().iter().position(|token| *token == shown).unwrap();
    u32::try_from(index).unwrap()
}

/// The ids of a text, byte by byte.
pub fn bytes_of(text: &str) -> Vec<u32> {
    text.bytes().map(|byte| BYTES + u32::from(byte)).collect()
}

/// How byte-level tokenizers write a byte (GPT-2's table).
fn shown_byte(byte: u8) -> char {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte);
    }
    let rank = (0..byte).filter(|other| !printable(*other)).count();
    char::from_u32(256 + u32::try_from(rank).unwrap()).unwrap()
}

fn merges() -> Vec<(String, String)> {
    let mut merges: Vec<(String, String)> = Vec::new();
    for word in WORD_LIST {
        let shown: Vec<char> = word.bytes().map(shown_byte).collect();
        for end in 1..shown.len() {
            let pair = (shown[..end].iter().collect(), shown[end].to_string());
            if !merges.contains(&pair) {
                merges.push(pair);
            }
        }
    }
    merges
}

fn tokens() -> Vec<String> {
    let mut tokens: Vec<String> = SPECIAL.iter().map(|token| (*token).to_owned()).collect();
    tokens.extend((0..=255).map(|byte| shown_byte(byte).to_string()));
    for (left, right) in merges() {
        tokens.push(format!("{left}{right}"));
    }
    tokens
}

/// `tokenizer.json`.
pub fn json() -> Value {
    let vocab: serde_json::Map<String, Value> = tokens()
        .into_iter()
        .enumerate()
        .map(|(id, token)| (token, id.into()))
        .collect();
    let merges: Vec<Value> = merges()
        .into_iter()
        .map(|(left, right)| json!([left, right]))
        .collect();
    let added: Vec<Value> = SPECIAL
        .iter()
        .enumerate()
        .map(|(id, token)| {
            json!({"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true})
        })
        .collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<|bos|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<|bos|>": {"id": "<|bos|>", "ids": [0], "tokens": ["<|bos|>"]}}},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges}
    })
}
