//! Logprob entries of `/v1` answers.

use crate::choice::TokenStep;
use headrace_api::chat::{ChatLogprob, ChatTopLogprob};
use headrace_api::completion::CompletionLogprobs;
use headrace_text::{Piece, Tokenizer};

/// A token's own bytes, without its neighbours.
fn bytes_of(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    match tokenizer.piece(id) {
        Piece::Bytes(bytes) => bytes.to_vec(),
        Piece::Special(text) => text.as_bytes().to_vec(),
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The entry of a chat choice.
pub(super) fn chat_entry(step: &TokenStep, tokenizer: &Tokenizer) -> ChatLogprob {
    let bytes = bytes_of(tokenizer, step.id);
    ChatLogprob {
        token: text_of(&bytes),
        logprob: step.logprob,
        bytes,
        top_logprobs: step
            .top
            .iter()
            .map(|&(id, logprob)| {
                let bytes = bytes_of(tokenizer, id);
                ChatTopLogprob {
                    token: text_of(&bytes),
                    logprob,
                    bytes,
                }
            })
            .collect(),
    }
}

/// Adds the entry of a completion choice.
pub(super) fn push_completion_entry(
    lists: &mut CompletionLogprobs,
    step: &TokenStep,
    tokenizer: &Tokenizer,
) {
    let token = text_of(&bytes_of(tokenizer, step.id));
    let mut top = serde_json::Map::new();
    for &(id, logprob) in &step.top {
        // Two ids may have one text (parts of characters do). The sampled one keeps it, then the likeliest; the
        // others are told apart by their ids.
        let text = text_of(&bytes_of(tokenizer, id));
        let is_taken = top.contains_key(&text) || (text == token && id != step.id);
        let key = if is_taken {
            format!("token_id:{id}")
        } else {
            text
        };
        top.entry(key).or_insert_with(|| number(logprob));
    }
    top.entry(token.clone())
        .or_insert_with(|| number(step.logprob));
    lists.top_logprobs.push(top);
    lists.token_logprobs.push(step.logprob);
    lists.text_offset.push(step.text_offset);
    lists.tokens.push(token);
}

/// The number as f32 prints, not with the digits that f64 would add.
fn number(logprob: f32) -> serde_json::Value {
    serde_json::from_str(&format!("{logprob:?}")).unwrap_or(serde_json::Value::Null)
}
