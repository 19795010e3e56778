//! Ids to text, one token at a time.
//!
//! The text of a sequence is the bytes of its output tokens in the context of the last prompt token, special
//! tokens skipped, read as UTF-8 with one U+FFFD for every maximal ill-formed part. A character whose bytes are
//! not all there is held until they are, or until a byte comes that cannot continue it, or until the end; so
//! concatenated deltas equal the whole text for every split, and a bad byte can never stall a stream.
//!
//! "In the context of the last prompt token" matters to tokenizers that drop the space before the first word:
//! that token is run through the same state and its bytes are thrown away, so the first output token is only at
//! the start of a text when nothing visible came before it.

use crate::pieces::Joiner;
use crate::tokenizer::Tokenizer;
use std::sync::Arc;

/// What one token added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Complete characters of the text; empty for special tokens and while a character is incomplete.
    pub text: String,
    /// The same for the native stream's `token.text`: a special token's own text instead of nothing.
    pub token_text: String,
    /// A special token (its text is in `token_text` only).
    pub is_special: bool,
}

/// The detokeniser of one sequence.
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    joiner: Joiner,
    /// The bytes of a character that is not complete: at most three.
    pending: Vec<u8>,
}

impl Detokenizer {
    /// A sequence whose prompt ended with the last of `prompt_ids`.
    pub fn new(tokenizer: Arc<Tokenizer>, prompt_ids: &[u32]) -> Self {
        let mut joiner = Joiner::default();
        if let Some(&last) = prompt_ids.last()
            && !tokenizer.is_special(last)
        {
            joiner.append(tokenizer.pieces(), last, &mut Vec::new());
        }
        Self {
            tokenizer,
            joiner,
            pending: Vec::new(),
        }
    }

    /// Adds one output token. An id outside the vocabulary adds nothing.
    pub fn push(&mut self, id: u32) -> Delta {
        if self.tokenizer.is_special(id) {
            return Delta {
                text: String::new(),
                token_text: self.tokenizer.token_text(id),
                is_special: true,
            };
        }
        self.joiner
            .append(self.tokenizer.pieces(), id, &mut self.pending);
        let text = take_complete(&mut self.pending);
        Delta {
            token_text: text.clone(),
            text,
            is_special: false,
        }
    }

    /// The end of the sequence: what an incomplete character leaves behind.
    pub fn finish(&mut self) -> String {
        let tail = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        tail
    }

    /// The whole text of `ids` after a prompt that ended with the last of `prompt_ids`.
    pub fn decode(tokenizer: Arc<Tokenizer>, prompt_ids: &[u32], ids: &[u32]) -> String {
        let mut detokenizer = Self::new(tokenizer, prompt_ids);
        let mut bytes = Vec::new();
        for &id in ids
            .iter()
            .filter(|&&id| !detokenizer.tokenizer.is_special(id))
        {
            detokenizer
                .joiner
                .append(detokenizer.tokenizer.pieces(), id, &mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The whole text of `ids` by themselves, special tokens as they are spelt.
pub fn decode_with_special(tokenizer: &Tokenizer, ids: &[u32]) -> String {
    let mut joiner = Joiner::default();
    let mut bytes = Vec::new();
    for &id in ids {
        joiner.append(tokenizer.pieces(), id, &mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Takes everything but an incomplete last character out of `pending`.
fn take_complete(pending: &mut Vec<u8>) -> String {
    if let Ok(text) = std::str::from_utf8(pending) {
        let text = text.to_owned();
        pending.clear();
        return text;
    }
    let mut text = String::with_capacity(pending.len());
    let mut consumed = 0;
    while consumed < pending.len() {
        let rest = &pending[consumed..];
        match std::str::from_utf8(rest) {
            Ok(valid) => {
                text.push_str(valid);
                consumed = pending.len();
            }
            Err(error) => {
                let valid = error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&rest[..valid]));
                consumed += valid;
                // No length: the rest is a good start of a character, to be held.
                let Some(length) = error.error_len() else {
                    break;
                };
                text.push(char::REPLACEMENT_CHARACTER);
                consumed += length;
            }
        }
    }
    pending.drain(..consumed);
    text
}
