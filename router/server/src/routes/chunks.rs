//! What `/v1`'s generation routes share: the served model under a client's name for it, and streams of chunks.

use super::generation::Happening;
use super::reply;
use crate::app::AppState;
use crate::request_id;
use crate::services::ModelServices;
use crate::sse::{DONE, FrameWriter};
use headrace_dialect::choice::TokenStep;
use headrace_dialect::openai::{ChatStream, CompletionStream, Identity, check_model};
use headrace_dialect::refusal::{Refusal, to_json};
use headrace_dialect::terms::Terms;
use headrace_text::Tokenizer;
use std::sync::Arc;

/// The model, if a request may call it so.
pub(super) fn served<'a>(
    state: &'a AppState,
    name: Option<&str>,
) -> Result<&'a ModelServices, Refusal> {
    let services = state.services()?;
    let strict = state.config().strict_model_name;
    check_model(name, &services.document.model_id, strict)?;
    Ok(services)
}

/// What stays the same in every chunk of an answer.
pub(super) fn identity(state: &AppState, prefix: &str, model: String, terms: &Terms) -> Identity {
    Identity {
        id: format!("{prefix}-{}", request_id::fresh()),
        created: reply::unix_seconds(),
        model,
        system_fingerprint: reply::system_fingerprint(state),
        service_tier: terms.names_tier.then_some("default"),
    }
}

/// Chunks of one route.
pub(super) trait Chunks: Send + 'static {
    /// Prompt tokens that a choice found in the prefix cache.
    fn cached(&mut self, choice: usize, cached_tokens: u32);

    /// The chunk of a token, if there is anything to show.
    fn token(&mut self, choice: usize, step: TokenStep, tokenizer: &Tokenizer) -> Option<String>;

    /// The chunk after the last choice's end, if it was asked for.
    fn usage(&self) -> Option<String>;
}

impl Chunks for ChatStream {
    fn cached(&mut self, choice: usize, cached_tokens: u32) {
        // All choices have the one prompt.
        if choice == 0 {
            self.set_cached_tokens(cached_tokens);
        }
    }

    fn token(&mut self, choice: usize, step: TokenStep, tokenizer: &Tokenizer) -> Option<String> {
        self.chunk(choice, step, tokenizer)
            .map(|chunk| to_json(&chunk))
    }

    fn usage(&self) -> Option<String> {
        self.usage_chunk().map(|chunk| to_json(&chunk))
    }
}

/// Text completions: so many sequences belong to each prompt.
pub(super) struct PromptChunks {
    pub(super) stream: CompletionStream,
    pub(super) sequences: usize,
}

impl Chunks for PromptChunks {
    fn cached(&mut self, choice: usize, cached_tokens: u32) {
        if choice.is_multiple_of(self.sequences) {
            self.stream.add_cached_tokens(cached_tokens);
        }
    }

    fn token(&mut self, choice: usize, step: TokenStep, tokenizer: &Tokenizer) -> Option<String> {
        self.stream
            .chunk(choice, step, tokenizer)
            .map(|chunk| to_json(&chunk))
    }

    fn usage(&self) -> Option<String> {
        self.stream.usage_chunk().map(|chunk| to_json(&chunk))
    }
}

/// Writes chunks as `data:` lines, `[DONE]` last.
pub(super) struct ChunkWriter<S> {
    pub(super) chunks: S,
    pub(super) tokenizer: Arc<Tokenizer>,
}

impl<S: Chunks> FrameWriter for ChunkWriter<S> {
    fn happening(&mut self, happening: Happening) -> Option<String> {
        match happening {
            Happening::Started {
                choice,
                cached_tokens,
            } => {
                self.chunks.cached(choice, cached_tokens);
                None
            }
            Happening::PromptLogprobs { .. } => None,
            Happening::Token { choice, step } => self.chunks.token(choice, step, &self.tokenizer),
        }
    }

    fn end(&mut self) -> Vec<String> {
        let usage = self.chunks.usage();
        usage.into_iter().chain([DONE.to_owned()]).collect()
    }
}
