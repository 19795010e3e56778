//! Writes TGI's generate answers.

use crate::choice::{ChoiceRecord, TokenStep};
use crate::end::EndReason;
use headrace_api::native::{
    BestOfSequence, Details, GenerateResponse, PrefillToken, StreamDetails, StreamResponse, Token,
};
use headrace_text::Tokenizer;

/// What the answer shows besides the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeOutput {
    /// Put before the generated text, under `return_full_text`.
    pub full_text_prefix: Option<String>,
    /// Report details.
    pub details: bool,
    /// Report the prompt's tokens.
    pub prefill: bool,
    /// Report top tokens.
    pub top_tokens: bool,
}

impl NativeOutput {
    fn whole(&self, text: &str) -> String {
        match &self.full_text_prefix {
            Some(prefix) => format!("{prefix}{text}"),
            None => text.to_owned(),
        }
    }
}

/// The answer of `/generate`. `records` are ranked: the first is the answer, the rest are `best_of_sequences`.
pub fn response(
    output: &NativeOutput,
    records: &[ChoiceRecord],
    prompt_ids: &[u32],
    tokenizer: &Tokenizer,
) -> Option<GenerateResponse> {
    let (best, others) = records.split_first()?;
    let end = best.end()?;
    if !output.details {
        return Some(GenerateResponse {
            generated_text: output.whole(&best.text),
            details: None,
        });
    }
    let others: Option<Vec<BestOfSequence>> = others
        .iter()
        .map(|record| {
            Some(BestOfSequence {
                generated_text: output.whole(&record.text),
                finish_reason: record.end()?.native(),
                generated_tokens: record.generated(),
                seed: record.seed,
                prefill: prefill(output, record, prompt_ids, tokenizer),
                tokens: tokens(record),
                top_tokens: top_tokens(output, record, tokenizer),
            })
        })
        .collect();
    Some(GenerateResponse {
        generated_text: output.whole(&best.text),
        details: Some(Details {
            finish_reason: end.native(),
            generated_tokens: best.generated(),
            seed: best.seed,
            prefill: prefill(output, best, prompt_ids, tokenizer),
            tokens: tokens(best),
            best_of_sequences: Some(others?).filter(|others| !others.is_empty()),
            top_tokens: top_tokens(output, best, tokenizer),
        }),
    })
}

fn prefill(
    output: &NativeOutput,
    record: &ChoiceRecord,
    prompt_ids: &[u32],
    tokenizer: &Tokenizer,
) -> Vec<PrefillToken> {
    if !output.prefill {
        return Vec::new();
    }
    let places = record.prompt.iter().map(|place| Some(place.logprob));
    let logprobs = std::iter::once(None).chain(places);
    prompt_ids
        .iter()
        .zip(logprobs)
        .map(|(&id, logprob)| PrefillToken {
            id,
            text: tokenizer.token_text(id),
            logprob,
        })
        .collect()
}

fn tokens(record: &ChoiceRecord) -> Vec<Token> {
    record.steps.iter().map(token).collect()
}

fn token(step: &TokenStep) -> Token {
    Token {
        id: step.id,
        text: step.text.clone(),
        logprob: step.logprob,
        special: step.special,
    }
}

fn top_tokens(
    output: &NativeOutput,
    record: &ChoiceRecord,
    tokenizer: &Tokenizer,
) -> Vec<Vec<Token>> {
    if !output.top_tokens {
        return Vec::new();
    }
    record
        .steps
        .iter()
        .map(|step| top_of(step, tokenizer))
        .collect()
}

fn top_of(step: &TokenStep, tokenizer: &Tokenizer) -> Vec<Token> {
    step.top
        .iter()
        .map(|&(id, logprob)| Token {
            id,
            text: tokenizer.token_text(id),
            logprob,
            special: tokenizer.is_special(id),
        })
        .collect()
}

/// Writes the events of a native stream.
#[derive(Clone, Debug)]
pub struct NativeStream {
    output: NativeOutput,
    input_length: u32,
    seed: Option<u64>,
    text: String,
}

impl NativeStream {
    /// A stream for a prompt of `input_length` tokens; `seed` when sampling.
    pub fn new(output: NativeOutput, input_length: u32, seed: Option<u64>) -> Self {
        Self {
            output,
            input_length,
            seed,
            text: String::new(),
        }
    }

    /// The event of a token.
    pub fn event(&mut self, step: &TokenStep, tokenizer: &Tokenizer) -> StreamResponse {
        self.text.push_str(&step.released);
        let last = step.end.map(|end| self.last(step, end));
        let (generated_text, details) = last.unwrap_or((None, None));
        StreamResponse {
            index: step.index,
            token: token(step),
            top_tokens: if self.output.top_tokens {
                top_of(step, tokenizer)
            } else {
                Vec::new()
            },
            generated_text,
            details,
        }
    }

    fn last(&self, step: &TokenStep, end: EndReason) -> (Option<String>, Option<StreamDetails>) {
        let details = self.output.details.then(|| StreamDetails {
            finish_reason: end.native(),
            generated_tokens: step.index,
            seed: self.seed,
            input_length: self.input_length,
        });
        (Some(self.output.whole(&self.text)), details)
    }
}
