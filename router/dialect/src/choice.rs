//! From the ids of one choice to its text: detokenising, stops, and the account of what is released when.
//!
//! Stream and non-stream answers go through the same [`ChoiceText`], so their texts are the same by construction.

use crate::end::EndReason;
use headrace_api::chat::StopReason;
use headrace_text::{Detokenizer, StopMatcher, StopMode, TextError, Tokenizer};
use std::sync::Arc;

/// JSON has no infinity; this is what vLLM writes instead.
const LOGPROB_FLOOR: f32 = -9999.0;

/// A sampled id as the engine reports it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RawToken {
    /// The id.
    pub id: u32,
    /// Raw log-softmax, when asked for.
    pub logprob: Option<f32>,
    /// The likeliest of this place, best first.
    pub top: Vec<(u32, f32)>,
}

/// What is told of one prompt id.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptPlace {
    /// The id.
    pub id: u32,
    /// Finite.
    pub logprob: f32,
    /// How many ids were at least as likely, itself counted.
    pub rank: u32,
    /// The likeliest of this place with finite logprobs, best first.
    pub top: Vec<(u32, f32)>,
}

impl PromptPlace {
    /// As the engine reports it.
    pub fn new(token: RawToken, rank: u32) -> Self {
        Self {
            id: token.id,
            logprob: token.logprob.map_or(LOGPROB_FLOOR, finite),
            rank,
            top: finite_top(token.top),
        }
    }
}

/// What one token did.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenStep {
    /// The id.
    pub id: u32,
    /// Its place among the output tokens, from 1.
    pub index: u32,
    /// The text that it completed, as native streams show it: a special token's own text, and cut right after a
    /// stop.
    pub text: String,
    /// A special token: its text is no part of the choice's text.
    pub special: bool,
    /// Finite; 0 when not asked for.
    pub logprob: f32,
    /// The likeliest of this place with finite logprobs, best first.
    pub top: Vec<(u32, f32)>,
    /// Text that the client may see now.
    pub released: String,
    /// Characters of the choice's text before this token's, released or not.
    pub text_offset: usize,
    /// Bytes of text pushed up to and with this token, released or not.
    pub text_end: usize,
    /// The last token of the choice, and why.
    pub end: Option<EndReason>,
    /// The stop string that ended the choice.
    pub stop: Option<String>,
}

impl TokenStep {
    /// What `/v1` calls `stop_reason`: the stop string or stop id that ended the choice.
    pub fn stop_reason(&self) -> Option<StopReason> {
        match self.end? {
            EndReason::StopString(_) => self.stop.clone().map(StopReason::Text),
            EndReason::StopToken(id) => Some(StopReason::Token(id)),
            EndReason::Eos | EndReason::GrammarComplete | EndReason::Length => None,
        }
    }
}

/// Turns ids into text.
#[derive(Debug)]
pub struct ChoiceText {
    tokenizer: Arc<Tokenizer>,
    detokenizer: Detokenizer,
    stops: StopMatcher,
    stop_texts: Vec<String>,
    mode: StopMode,
    shows_special: bool,
    min_tokens: u32,
    generated: u32,
    text_end: usize,
    text_characters: usize,
    ended: bool,
}

impl ChoiceText {
    /// A choice after a prompt that ends with the last of `prompt_ids`.
    pub fn new(
        tokenizer: &Arc<Tokenizer>,
        prompt_ids: &[u32],
        stops: &[String],
        mode: StopMode,
    ) -> Result<Self, TextError> {
        Ok(Self {
            tokenizer: Arc::clone(tokenizer),
            detokenizer: Detokenizer::new(Arc::clone(tokenizer), prompt_ids),
            stops: StopMatcher::new(stops, mode)?,
            stop_texts: stops.to_vec(),
            mode,
            shows_special: false,
            min_tokens: 0,
            generated: 0,
            text_end: 0,
            text_characters: 0,
            ended: false,
        })
    }

    /// The same; with `shows_special` the own text of special tokens is part of the choice's text.
    #[must_use]
    pub fn showing_special(mut self, shows_special: bool) -> Self {
        self.shows_special = shows_special;
        self
    }

    /// The same; a stop string that is complete within the first `min_tokens` tokens ends nothing, as in vLLM.
    #[must_use]
    pub fn with_min_tokens(mut self, min_tokens: u32) -> Self {
        self.min_tokens = min_tokens;
        self
    }

    /// Output tokens so far.
    pub fn generated(&self) -> u32 {
        self.generated
    }

    /// A stop was found or an end was pushed.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Adds a token. `end` says that it is the last one by its id or by the count; a stop string that it
    /// completes comes first.
    pub fn push(&mut self, token: RawToken, end: Option<EndReason>) -> TokenStep {
        self.generated += 1;
        self.stops.set_early(self.generated <= self.min_tokens);
        let text_offset = self.text_characters;
        let special = self.tokenizer.is_special(token.id);
        let mut matched = None;
        let mut released = String::new();
        // An end id ends the text before itself, but on native routes an unflagged one stays visible, as in TGI.
        let is_end_id = matches!(end, Some(EndReason::Eos | EndReason::StopToken(_)));
        let mut text = String::new();
        if special && self.shows_special {
            // What a character before it has left behind stands before it.
            let mut visible = self.detokenizer.finish();
            if !(is_end_id && self.mode == StopMode::CutStop) {
                visible.push_str(&self.detokenizer.push(token.id).token_text);
            }
            self.feed(&visible, &mut released, &mut matched);
            text.clone_from(&released);
        } else if special {
            if end.is_some() {
                let tail = self.detokenizer.finish();
                self.feed(&tail, &mut released, &mut matched);
                text.push_str(&tail);
            }
            let delta = self.detokenizer.push(token.id);
            if matched.is_none() && !is_end_id {
                let step = self.stops.push_hidden(&delta.token_text);
                released.push_str(&step.released);
                matched = step.matched;
            }
            text.push_str(&delta.token_text);
        } else {
            let mut visible = if is_end_id && self.mode == StopMode::CutStop {
                String::new()
            } else {
                self.detokenizer.push(token.id).text
            };
            if end.is_some() {
                visible.push_str(&self.detokenizer.finish());
            }
            self.feed(&visible, &mut released, &mut matched);
            text.clone_from(&released);
        }
        let end = matched.map(EndReason::StopString).or(end);
        if end.is_some() {
            released.push_str(&self.stops.finish());
            self.ended = true;
        }
        TokenStep {
            id: token.id,
            index: self.generated,
            text,
            special,
            logprob: token.logprob.map_or(0.0, finite),
            top: finite_top(token.top),
            released,
            text_offset,
            text_end: self.text_end,
            stop: matched.and_then(|index| self.stop_texts.get(index).cloned()),
            end,
        }
    }

    fn feed(&mut self, text: &str, released: &mut String, matched: &mut Option<usize>) {
        self.text_end += text.len();
        self.text_characters += text.chars().count();
        let step = self.stops.push(text);
        released.push_str(&step.released);
        *matched = step.matched;
    }
}

fn finite_top(mut top: Vec<(u32, f32)>) -> Vec<(u32, f32)> {
    for (_, logprob) in &mut top {
        *logprob = finite(*logprob);
    }
    top
}

fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() {
        logprob
    } else {
        LOGPROB_FLOOR
    }
}

/// A whole choice, for answers that are not streamed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceRecord {
    /// The choice's text.
    pub text: String,
    /// Its tokens.
    pub steps: Vec<TokenStep>,
    /// What is told of the prompt ids from the second one on; choices of one prompt may share it.
    pub prompt: Arc<Vec<PromptPlace>>,
    /// Nothing was to be generated, and the prompt is done.
    pub prompt_only: bool,
    /// Prompt tokens found in the prefix cache.
    pub cached_tokens: u32,
    /// The seed that it ran with, when sampling.
    pub seed: Option<u64>,
}

impl ChoiceRecord {
    /// Adds a step.
    pub fn push(&mut self, step: TokenStep) {
        self.text.push_str(&step.released);
        self.steps.push(step);
    }

    /// Adds what is told of the next prompt ids.
    pub fn push_prompt(&mut self, places: impl IntoIterator<Item = PromptPlace>) {
        Arc::make_mut(&mut self.prompt).extend(places);
    }

    /// Output tokens.
    pub fn generated(&self) -> u32 {
        self.steps.last().map_or(0, |step| step.index)
    }

    /// Why it ended; `None` while it has not.
    pub fn end(&self) -> Option<EndReason> {
        if self.prompt_only {
            return Some(EndReason::Length);
        }
        self.steps.last().and_then(|step| step.end)
    }

    /// See [`TokenStep::stop_reason`].
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.steps.last().and_then(TokenStep::stop_reason)
    }

    /// What `best_of` ranks by.
    pub fn mean_logprob(&self) -> f64 {
        if self.steps.is_empty() {
            return f64::NEG_INFINITY;
        }
        let sum: f64 = self.steps.iter().map(|step| f64::from(step.logprob)).sum();
        sum / self.steps.len() as f64
    }
}

/// Puts the likeliest `keep` records first, likeliest first among all; equal ones keep their order.
pub fn rank(records: &mut [ChoiceRecord]) {
    records.sort_by(|left, right| right.mean_logprob().total_cmp(&left.mean_logprob()));
}
