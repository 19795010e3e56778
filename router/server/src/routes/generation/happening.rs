//! What happens to a request's choices, and what is known of its prompts.

use headrace_dialect::choice::{PromptPlace, TokenStep};
use headrace_dialect::shown_prompt::{EchoText, ShownPrompt};
use std::sync::Arc;

/// What the answer needs to know about the prompts.
#[derive(Clone, Debug)]
pub(crate) struct PromptInfo {
    /// Ids of each prompt.
    pub(crate) ids: Vec<Arc<[u32]>>,
    /// Choices to answer with, for each prompt.
    pub(crate) choices: usize,
    /// Sequences that run for each prompt.
    pub(crate) sequences: usize,
    /// The text of each prompt, where the answer begins with it.
    pub(crate) echoes: Vec<Option<Arc<EchoText>>>,
}

impl PromptInfo {
    /// As answers show them.
    pub(crate) fn shown(&self) -> Vec<ShownPrompt> {
        let prompts = self.ids.iter().zip(&self.echoes);
        prompts
            .map(|(ids, echo)| ShownPrompt {
                ids: Arc::clone(ids),
                echo: echo.clone(),
            })
            .collect()
    }

    /// Of all prompts.
    pub(crate) fn tokens(&self) -> usize {
        self.ids.iter().map(|ids| ids.len()).sum()
    }

    pub(crate) fn lengths(&self) -> Vec<usize> {
        self.ids.iter().map(|ids| ids.len()).collect()
    }
}

/// One thing that happened to one choice (prompt × sequences + choice).
#[derive(Debug)]
pub(crate) enum Happening {
    /// It entered its first step.
    Started { choice: usize, cached_tokens: u32 },
    /// What is told of the next prompt ids.
    PromptLogprobs {
        choice: usize,
        places: Vec<PromptPlace>,
    },
    /// The end of a choice that is its prompt: nothing was to be generated.
    PromptOnly { choice: usize },
    /// A token, the last one of the choice if it has an end.
    Token { choice: usize, step: TokenStep },
}
