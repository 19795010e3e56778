//! Writes text-completion answers.

use super::common::StreamShape;
use super::logprobs::push_completion_entry;
use super::stream::{Gatherer, Identity, make_usage};
use crate::choice::{ChoiceRecord, TokenStep};
use headrace_api::chat::Usage;
use headrace_api::completion::{ChunkUsage, Completion, CompletionChoice, CompletionLogprobs};
use headrace_text::Tokenizer;

/// The answer that is not streamed: `records[prompt][choice]`, each prompt's list cut to `n`. `None` if one has not
/// ended.
pub fn completion(
    identity: &Identity,
    records: &[Vec<ChoiceRecord>],
    usage: Usage,
    logprobs: bool,
    tokenizer: &Tokenizer,
) -> Option<Completion> {
    let choices = (0_u32..)
        .zip(records.iter().flatten())
        .map(|(index, record)| {
            Some(CompletionChoice {
                index,
                text: record.text.clone(),
                logprobs: logprobs.then(|| entries(&record.steps, tokenizer)),
                finish_reason: Some(record.end()?.openai()),
                stop_reason: record.stop_reason(),
            })
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Completion {
        id: identity.id.clone(),
        object: "text_completion",
        created: identity.created,
        model: identity.model.clone(),
        system_fingerprint: identity.system_fingerprint.clone(),
        choices,
        usage: Some(ChunkUsage::Known(usage)),
        service_tier: identity.service_tier,
    })
}

fn entries(steps: &[TokenStep], tokenizer: &Tokenizer) -> CompletionLogprobs {
    let mut lists = CompletionLogprobs::default();
    for step in steps {
        push_completion_entry(&mut lists, step, tokenizer);
    }
    lists
}

/// Writes the chunks of a completion stream.
#[derive(Clone, Debug)]
pub struct CompletionStream {
    identity: Identity,
    shape: StreamShape,
    logprobs: bool,
    prompt_tokens: usize,
    cached_tokens: u32,
    completion_tokens: u32,
    choices: Vec<Gatherer>,
}

impl CompletionStream {
    /// A stream of `choices` = prompts × n choices.
    pub fn new(
        identity: Identity,
        shape: StreamShape,
        logprobs: bool,
        prompt_tokens: usize,
        choices: usize,
    ) -> Self {
        Self {
            identity,
            shape,
            logprobs,
            prompt_tokens,
            cached_tokens: 0,
            completion_tokens: 0,
            choices: vec![Gatherer::default(); choices],
        }
    }

    /// Prompt tokens found in the cache by the first choice of one more prompt.
    pub fn add_cached_tokens(&mut self, cached_tokens: u32) {
        self.cached_tokens += cached_tokens;
    }

    /// The chunk of a step, if it has anything to show.
    pub fn chunk(
        &mut self,
        index: usize,
        step: TokenStep,
        tokenizer: &Tokenizer,
    ) -> Option<Completion> {
        self.completion_tokens += 1;
        let finish_reason = step.end.map(crate::end::EndReason::openai);
        let stop_reason = step.stop_reason();
        let chunk = self.choices.get_mut(index)?.push(step)?;
        let choice = CompletionChoice {
            index: u32::try_from(index).ok()?,
            text: chunk.text,
            logprobs: self.logprobs.then(|| entries(&chunk.steps, tokenizer)),
            finish_reason,
            stop_reason,
        };
        let usage = if self.shape.continuous_usage {
            Some(ChunkUsage::Known(self.usage()))
        } else {
            self.shape.include_usage.then_some(ChunkUsage::Pending(()))
        };
        Some(self.wrap(vec![choice], usage))
    }

    /// The chunk after the last choice's end, if it was asked for.
    pub fn usage_chunk(&self) -> Option<Completion> {
        self.shape
            .include_usage
            .then(|| self.wrap(Vec::new(), Some(ChunkUsage::Known(self.usage()))))
    }

    fn usage(&self) -> Usage {
        make_usage(
            self.prompt_tokens,
            self.completion_tokens,
            self.cached_tokens,
        )
    }

    fn wrap(&self, choices: Vec<CompletionChoice>, usage: Option<ChunkUsage>) -> Completion {
        Completion {
            id: self.identity.id.clone(),
            object: "text_completion",
            created: self.identity.created,
            model: self.identity.model.clone(),
            system_fingerprint: self.identity.system_fingerprint.clone(),
            choices,
            usage,
            service_tier: self.identity.service_tier,
        }
    }
}
