//! What `/v1`'s generation routes share: the served model under a client's name for it, and streams of chunks.

use super::generation::Happening;
use super::reply;
use crate::app::AppState;
use crate::request_id;
use crate::services::ModelServices;
use crate::sse::{DONE, FrameWriter};
use headrace_dialect::choice::{PromptPlace, TokenStep};
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

    /// What is told of the next ids of a choice's prompt.
    fn prompt(&mut self, choice: usize, places: Vec<PromptPlace>);

    /// The chunk of a choice that is its prompt.
    fn prompt_only(&mut self, choice: usize, tokenizer: &Tokenizer) -> Option<String>;

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

    /// Streams of chats show none.
    fn prompt(&mut self, _: usize, _: Vec<PromptPlace>) {}

    fn prompt_only(&mut self, _: usize, _: &Tokenizer) -> Option<String> {
        None
    }

    fn token(&mut self, choice: usize, step: TokenStep, tokenizer: &Tokenizer) -> Option<String> {
        self.chunk(choice, step, tokenizer)
            .map(|chunk| to_json(&chunk))
    }

    fn usage(&self) -> Option<String> {
        self.usage_chunk().map(|chunk| to_json(&chunk))
    }
}

impl Chunks for CompletionStream {
    fn cached(&mut self, choice: usize, cached_tokens: u32) {
        self.note_cached_tokens(choice, cached_tokens);
    }

    fn prompt(&mut self, choice: usize, places: Vec<PromptPlace>) {
        self.take_prompt(choice, places);
    }

    fn prompt_only(&mut self, choice: usize, tokenizer: &Tokenizer) -> Option<String> {
        self.prompt_chunk(choice, tokenizer)
            .map(|chunk| to_json(&chunk))
    }

    fn token(&mut self, choice: usize, step: TokenStep, tokenizer: &Tokenizer) -> Option<String> {
        self.chunk(choice, step, tokenizer)
            .map(|chunk| to_json(&chunk))
    }

    fn usage(&self) -> Option<String> {
        self.usage_chunk().map(|chunk| to_json(&chunk))
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
            Happening::PromptLogprobs { choice, places } => {
                self.chunks.prompt(choice, places);
                None
            }
            Happening::PromptOnly { choice } => self.chunks.prompt_only(choice, &self.tokenizer),
            Happening::Token { choice, step } => self.chunks.token(choice, step, &self.tokenizer),
        }
    }

    fn end(&mut self) -> Vec<String> {
        let usage = self.chunks.usage();
        usage.into_iter().chain([DONE.to_owned()]).collect()
    }
}
