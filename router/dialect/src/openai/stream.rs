//! What chat and completion answers share: identity, usage, and which steps a chunk covers.

use crate::choice::{ChoiceRecord, TokenStep};
use headrace_api::chat::{CompletionTokensDetails, PromptTokensDetails, Usage};
use std::collections::VecDeque;

/// What stays the same in every chunk of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `chatcmpl-…`, `cmpl-…`.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// Echoed or served name.
    pub model: String,
    /// `VERSION-LABEL`.
    pub system_fingerprint: String,
    /// Told to those who name one.
    pub service_tier: Option<&'static str>,
}

/// Sums the counts of an answer. `records` are all sequences that ran; each prompt counts once, and so does what
/// its first sequence found in the cache.
pub fn usage(prompt_tokens: &[usize], records: &[Vec<ChoiceRecord>]) -> Usage {
    let completion = records.iter().flatten().map(ChoiceRecord::generated).sum();
    let cached = records
        .iter()
        .filter_map(|choices| choices.first())
        .map(|record| record.cached_tokens)
        .sum();
    make_usage(prompt_tokens.iter().sum(), completion, cached)
}

pub(super) fn make_usage(prompt: usize, completion: u32, cached: u32) -> Usage {
    let prompt = u32::try_from(prompt).unwrap_or(u32::MAX);
    Usage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        total_tokens: prompt.saturating_add(completion),
        prompt_tokens_details: PromptTokensDetails {
            cached_tokens: cached,
        },
        completion_tokens_details: CompletionTokensDetails::default(),
    }
}

/// Gathers steps into chunks: a chunk is written when there is text, at a choice's first token and at its end, and
/// covers the steps whose text it completes.
#[derive(Clone, Debug, Default)]
pub(super) struct Gatherer {
    waiting: VecDeque<TokenStep>,
    released: usize,
    has_begun: bool,
}

/// What one chunk holds.
pub(super) struct Gathered {
    pub(super) text: String,
    pub(super) steps: Vec<TokenStep>,
    pub(super) is_first: bool,
}

impl Gatherer {
    /// Takes a step; `None` while there is nothing to show.
    pub(super) fn push(&mut self, step: TokenStep) -> Option<Gathered> {
        let text = step.released.clone();
        let is_last = step.end.is_some();
        self.released += text.len();
        self.waiting.push_back(step);
        let is_first = !self.has_begun;
        if text.is_empty() && !is_first && !is_last {
            return None;
        }
        self.has_begun = true;
        let mut steps = Vec::new();
        while self
            .waiting
            .front()
            .is_some_and(|step| is_last || step.text_end <= self.released)
        {
            steps.extend(self.waiting.pop_front());
        }
        Some(Gathered {
            text,
            steps,
            is_first,
        })
    }
}
