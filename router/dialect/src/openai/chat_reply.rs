//! Writes chat answers.

use super::common::StreamShape;
use super::logprobs::chat_entry;
use super::stream::{Gatherer, Identity, make_usage};
use crate::choice::{ChoiceRecord, TokenStep};
use headrace_api::chat::{
    ChatChoice, ChatChunkChoice, ChatCompletion, ChatCompletionChunk, ChatDelta, ChatLogprobs,
    OutputMessage, Usage,
};
use headrace_text::Tokenizer;

/// The answer that is not streamed; `None` if a record has not ended.
pub fn chat_completion(
    identity: &Identity,
    records: &[ChoiceRecord],
    usage: Usage,
    logprobs: bool,
    tokenizer: &Tokenizer,
) -> Option<ChatCompletion> {
    let choices = (0_u32..)
        .zip(records)
        .map(|(index, record)| {
            Some(ChatChoice {
                index,
                message: OutputMessage {
                    role: "assistant",
                    content: record.text.clone(),
                    refusal: None,
                },
                logprobs: logprobs.then(|| entries(&record.steps, tokenizer)),
                finish_reason: record.end()?.openai(),
                stop_reason: record.stop_reason(),
            })
        })
        .collect::<Option<Vec<_>>>()?;
    Some(ChatCompletion {
        id: identity.id.clone(),
        object: "chat.completion",
        created: identity.created,
        model: identity.model.clone(),
        system_fingerprint: identity.system_fingerprint.clone(),
        choices,
        usage,
        service_tier: identity.service_tier,
    })
}

fn entries(steps: &[TokenStep], tokenizer: &Tokenizer) -> ChatLogprobs {
    ChatLogprobs {
        content: steps
            .iter()
            .map(|step| chat_entry(step, tokenizer))
            .collect(),
    }
}

/// Writes the chunks of a chat stream.
#[derive(Clone, Debug)]
pub struct ChatStream {
    identity: Identity,
    shape: StreamShape,
    logprobs: bool,
    prompt_tokens: usize,
    cached_tokens: u32,
    completion_tokens: u32,
    choices: Vec<Gatherer>,
}

impl ChatStream {
    /// A stream of `n` choices.
    pub fn new(
        identity: Identity,
        shape: StreamShape,
        logprobs: bool,
        prompt_tokens: usize,
        n: usize,
    ) -> Self {
        Self {
            identity,
            shape,
            logprobs,
            prompt_tokens,
            cached_tokens: 0,
            completion_tokens: 0,
            choices: vec![Gatherer::default(); n],
        }
    }

    /// Prompt tokens found in the cache by the first choice.
    pub fn set_cached_tokens(&mut self, cached_tokens: u32) {
        self.cached_tokens = cached_tokens;
    }

    /// The chunk of a step, if it has anything to show.
    pub fn chunk(
        &mut self,
        index: usize,
        step: TokenStep,
        tokenizer: &Tokenizer,
    ) -> Option<ChatCompletionChunk> {
        self.completion_tokens += 1;
        let finish_reason = step.end.map(crate::end::EndReason::openai);
        let stop_reason = step.stop_reason();
        let gathered = self.choices.get_mut(index)?.push(step)?;
        let choice = ChatChunkChoice {
            index: u32::try_from(index).ok()?,
            delta: ChatDelta {
                role: gathered.is_first.then_some("assistant"),
                content: gathered.text,
            },
            logprobs: self.logprobs.then(|| entries(&gathered.steps, tokenizer)),
            finish_reason,
            stop_reason,
        };
        let usage = self.shape.continuous_usage.then(|| self.usage());
        Some(self.wrap(vec![choice], usage))
    }

    /// The chunk after the last choice's end, if it was asked for.
    pub fn usage_chunk(&self) -> Option<ChatCompletionChunk> {
        self.shape
            .include_usage
            .then(|| self.wrap(Vec::new(), Some(self.usage())))
    }

    fn usage(&self) -> Usage {
        make_usage(
            self.prompt_tokens,
            self.completion_tokens,
            self.cached_tokens,
        )
    }

    fn wrap(&self, choices: Vec<ChatChunkChoice>, usage: Option<Usage>) -> ChatCompletionChunk {
        ChatCompletionChunk {
            id: self.identity.id.clone(),
            object: "chat.completion.chunk",
            created: self.identity.created,
            model: self.identity.model.clone(),
            system_fingerprint: self.identity.system_fingerprint.clone(),
            choices,
            usage,
            service_tier: self.identity.service_tier,
        }
    }
}
