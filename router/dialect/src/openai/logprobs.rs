//! Logprob entries of `/v1` answers.

use super::scoring::Scoring;
use crate::choice::{PromptPlace, TokenStep};
use crate::shown_prompt::EchoText;
use headrace_api::chat::{ChatLogprob, ChatLogprobs, ChatTopLogprob};
use headrace_api::completion::{CompletionLogprobs, TopLogprobs};
use headrace_text::{Piece, Tokenizer};

/// How tokens are named in entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    /// `token_id:N` instead of texts.
    pub(super) as_ids: bool,
}

impl<'a> Naming<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, scoring: Scoring) -> Self {
        Self {
            tokenizer,
            as_ids: scoring.tokens_as_ids,
        }
    }

    /// A token's own bytes, without its neighbours.
    fn bytes_of(self, id: u32) -> Vec<u8> {
        match self.tokenizer.piece(id) {
            Piece::Bytes(bytes) => bytes.to_vec(),
            Piece::Special(text) => text.as_bytes().to_vec(),
        }
    }

    fn name_of(self, id: u32) -> String {
        if self.as_ids {
            id_name(id)
        } else {
            String::from_utf8_lossy(&self.bytes_of(id)).into_owned()
        }
    }

    /// The entries of a chat choice.
    pub(super) fn chat_entries(self, steps: &[TokenStep]) -> ChatLogprobs {
        ChatLogprobs {
            content: steps.iter().map(|step| self.chat_entry(step)).collect(),
        }
    }

    fn chat_entry(self, step: &TokenStep) -> ChatLogprob {
        ChatLogprob {
            token: self.name_of(step.id),
            logprob: step.logprob,
            bytes: self.bytes_of(step.id),
            top_logprobs: step
                .top
                .iter()
                .map(|&(id, logprob)| ChatTopLogprob {
                    token: self.name_of(id),
                    logprob,
                    bytes: self.bytes_of(id),
                })
                .collect(),
        }
    }

    /// Adds the entries of the prompt that a choice begins with: nothing is known of its first id.
    pub(super) fn push_prompt(
        self,
        lists: &mut CompletionLogprobs,
        (ids, echo): (&[u32], &EchoText),
        places: &[PromptPlace],
        top_n: u32,
    ) {
        let top_n = usize::try_from(top_n).unwrap_or(usize::MAX);
        for (index, (&id, &offset)) in ids.iter().zip(&echo.offsets).enumerate() {
            let place = index.checked_sub(1).and_then(|before| places.get(before));
            let token = self.name_of(id);
            lists.top_logprobs.push(place.map(|place| {
                let likeliest = place.top.get(..top_n).unwrap_or(&place.top);
                self.top(likeliest, (id, place.logprob), &token)
            }));
            lists.token_logprobs.push(place.map(|place| place.logprob));
            lists.text_offset.push(offset);
            lists.tokens.push(token);
        }
    }

    /// Adds the entries of output tokens, `offset` characters into the choice's text.
    pub(super) fn push_steps(
        self,
        lists: &mut CompletionLogprobs,
        steps: &[TokenStep],
        offset: usize,
    ) {
        for step in steps {
            let token = self.name_of(step.id);
            let top = self.top(&step.top, (step.id, step.logprob), &token);
            lists.top_logprobs.push(Some(top));
            lists.token_logprobs.push(Some(step.logprob));
            lists.text_offset.push(offset + step.text_offset);
            lists.tokens.push(token);
        }
    }

    /// The likeliest, and the id that is there, named `token`.
    fn top(self, likeliest: &[(u32, f32)], own: (u32, f32), token: &str) -> TopLogprobs {
        let mut top: Vec<(String, f32)> = Vec::with_capacity(likeliest.len() + 1);
        for &(id, logprob) in likeliest {
            // Two ids may have one text (parts of characters do). The one that is there keeps it, then the likeliest;
            // the others are told apart by their ids.
            let name = self.name_of(id);
            let is_taken =
                top.iter().any(|(taken, _)| *taken == name) || (name == token && id != own.0);
            top.push((if is_taken { id_name(id) } else { name }, logprob));
        }
        if !top.iter().any(|(name, _)| name == token) {
            top.push((token.to_owned(), own.1));
        }
        TopLogprobs(top)
    }
}

fn id_name(id: u32) -> String {
    format!("token_id:{id}")
}
