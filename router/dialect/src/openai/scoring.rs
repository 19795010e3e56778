//! What `/v1` requests ask to be told of tokens beside their text: `echo`, `prompt_logprobs`, `return_token_ids` and
//! `return_tokens_as_token_ids`, and how answers write the prompt's part of it.

use crate::bounds::Bounds;
use crate::choice::PromptPlace;
use crate::fields::Fields;
use crate::refusal::Refusal;
use headrace_api::chat::{PromptLogprob, PromptLogprobs};
use headrace_text::Tokenizer;

/// The fields, read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scoring {
    /// The prompt goes before the text.
    pub echo: bool,
    /// Show the prompt's logprobs and this many of the likeliest of each place.
    pub prompt_logprobs: Option<u32>,
    /// Show the ids of prompts and choices.
    pub token_ids: bool,
    /// Name tokens in logprobs by their ids.
    pub tokens_as_ids: bool,
}

impl Scoring {
    /// Reads all of them but `echo`, which means something else to a chat.
    pub(super) fn read(
        body: &mut Fields<'_>,
        bounds: &Bounds,
        stream: bool,
    ) -> Result<Self, Refusal> {
        let prompt_logprobs = match body.get("prompt_logprobs")? {
            Some(crate::json::Json::Bool(false)) => None,
            _ => body.u32("prompt_logprobs")?,
        };
        if let Some(top_n) = prompt_logprobs {
            bounds.check_prompt_top_n("prompt_logprobs", top_n)?;
            if stream {
                return Err(Refusal::validation(
                    "prompt_logprobs",
                    "`prompt_logprobs` are not available when `stream` is true",
                ));
            }
        }
        Ok(Self {
            echo: false,
            prompt_logprobs,
            token_ids: body.boolean("return_token_ids")?.unwrap_or(false),
            tokens_as_ids: body.boolean("return_tokens_as_token_ids")?.unwrap_or(false),
        })
    }

    /// `prompt_logprobs` of an answer: nothing is known of the first id.
    pub(super) fn prompt_entries(
        &self,
        places: &[PromptPlace],
        tokenizer: &Tokenizer,
    ) -> Option<Vec<Option<PromptLogprobs>>> {
        let top_n = usize::try_from(self.prompt_logprobs?).unwrap_or(usize::MAX);
        let entries = places
            .iter()
            .map(|place| Some(prompt_entry(place, top_n, tokenizer)));
        Some(std::iter::once(None).chain(entries).collect())
    }
}

/// The prompt's own id first, then the likeliest.
fn prompt_entry(place: &PromptPlace, top_n: usize, tokenizer: &Tokenizer) -> PromptLogprobs {
    let entry = |id: u32, logprob: f32, rank: u32| {
        let described = PromptLogprob {
            logprob,
            rank,
            decoded_token: tokenizer.token_text(id),
        };
        (id, described)
    };
    let likeliest = place
        .top
        .iter()
        .take(top_n)
        .zip(1..)
        .filter(|((id, _), _)| *id != place.id)
        .map(|(&(id, logprob), rank)| entry(id, logprob, rank));
    let own = entry(place.id, place.logprob, place.rank);
    PromptLogprobs(std::iter::once(own).chain(likeliest).collect())
}
