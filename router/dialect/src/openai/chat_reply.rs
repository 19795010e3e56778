//! Writes chat answers.

use super::common::StreamShape;
use super::logprobs::Naming;
use super::scoring::Scoring;
use super::stream::{Gatherer, Identity, make_usage};
use crate::choice::{ChoiceRecord, TokenStep};
use headrace_api::chat::{
    ChatChoice, ChatChunkChoice, ChatCompletion, ChatCompletionChunk, ChatDelta, OutputMessage,
    Usage,
};
use headrace_text::Tokenizer;

/// What an answer shows beside its text and counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatShown {
    /// Logprobs of the output.
    pub logprobs: bool,
    /// More about tokens.
    pub scoring: Scoring,
    /// The text that each choice begins with, under `echo`.
    pub prefix: String,
}

impl ChatShown {
    fn ids_of(&self, steps: &[TokenStep]) -> Option<Vec<u32>> {
        let ids = || steps.iter().map(|step| step.id).collect();
        self.scoring.token_ids.then(ids)
    }

    fn prompt_ids(&self, ids: &[u32]) -> Option<Vec<u32>> {
        self.scoring.token_ids.then(|| ids.to_vec())
    }
}

/// The answer that is not streamed; `None` if a record has not ended.
pub fn chat_completion(
    identity: &Identity,
    (prompt_ids, records): (&[u32], &[ChoiceRecord]),
    usage: Usage,
    shown: &ChatShown,
    tokenizer: &Tokenizer,
) -> Option<ChatCompletion> {
    let naming = Naming::new(tokenizer, shown.scoring);
    let choices = (0_u32..)
        .zip(records)
        .map(|(index, record)| {
            Some(ChatChoice {
                index,
                message: OutputMessage {
                    role: "assistant",
                    content: format!("{}{}", shown.prefix, record.text),
                    refusal: None,
                },
                logprobs: shown.logprobs.then(|| naming.chat_entries(&record.steps)),
                finish_reason: record.end()?.openai(),
                stop_reason: record.stop_reason(),
                token_ids: shown.ids_of(&record.steps),
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
        // All choices have the one prompt.
        prompt_logprobs: records
            .first()
            .and_then(|record| shown.scoring.prompt_entries(&record.prompt, tokenizer)),
        prompt_token_ids: shown.prompt_ids(prompt_ids),
    })
}

/// Writes the chunks of a chat stream.
#[derive(Clone, Debug)]
pub struct ChatStream {
    identity: Identity,
    shape: StreamShape,
    shown: ChatShown,
    prompt_tokens: usize,
    /// Until the first chunk takes them.
    prompt_ids: Option<Vec<u32>>,
    cached_tokens: u32,
    completion_tokens: u32,
    choices: Vec<Gatherer>,
}

impl ChatStream {
    /// A stream of `n` choices.
    pub fn new(
        identity: Identity,
        shape: StreamShape,
        shown: ChatShown,
        prompt_ids: &[u32],
        n: usize,
    ) -> Self {
        Self {
            identity,
            shape,
            prompt_tokens: prompt_ids.len(),
            prompt_ids: shown.prompt_ids(prompt_ids),
            shown,
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
        let shown = &self.shown;
        let naming = Naming::new(tokenizer, shown.scoring);
        let choice = ChatChunkChoice {
            index: u32::try_from(index).ok()?,
            delta: ChatDelta {
                role: gathered.is_first.then_some("assistant"),
                content: if gathered.is_first {
                    format!("{}{}", shown.prefix, gathered.text)
                } else {
                    gathered.text
                },
            },
            logprobs: shown.logprobs.then(|| naming.chat_entries(&gathered.steps)),
            finish_reason,
            stop_reason,
            token_ids: shown.ids_of(&gathered.steps),
        };
        let usage = self.shape.continuous_usage.then(|| self.usage());
        let mut chunk = self.wrap(vec![choice], usage);
        chunk.prompt_token_ids = self.prompt_ids.take();
        Some(chunk)
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
            prompt_token_ids: None,
        }
    }
}
