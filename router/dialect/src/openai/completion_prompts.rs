//! The prompts of `/v1/completions`: texts, ids, lists of either, and texts with a gap.

use crate::bounds::Bounds;
use crate::call::Prompt;
use crate::json::Json;
use crate::refusal::{Cause, Refusal};

/// What a string in `prompt` is.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptForm<'a> {
    pub(super) add_special_tokens: bool,
    pub(super) suffix: Option<&'a str>,
}

impl PromptForm<'_> {
    fn of(self, text: &str) -> Prompt {
        match self.suffix {
            Some(suffix) => Prompt::Infill {
                prefix: text.to_owned(),
                suffix: suffix.to_owned(),
                add_special_tokens: self.add_special_tokens,
            },
            None => Prompt::Text {
                text: text.to_owned(),
                add_special_tokens: self.add_special_tokens,
            },
        }
    }
}

/// A string, ids, or a list of either.
pub(super) fn read_prompts(
    json: &Json,
    bounds: &Bounds,
    form: PromptForm<'_>,
) -> Result<Vec<Prompt>, Refusal> {
    let text = |text: &String| form.of(text);
    let prompts = match json {
        Json::String(one) => vec![text(one)],
        Json::Ids(ids) => vec![Prompt::Ids(ids.clone())],
        Json::Array(items) => {
            if items.len() > bounds.prompts {
                return Err(Refusal::validation(
                    "prompt",
                    format!(
                        "Number of prompts exceeds the maximum allowed batch size of {}",
                        bounds.prompts
                    ),
                )
                .because(Cause::BatchSize));
            }
            check_ids(items)?;
            items
                .iter()
                .enumerate()
                .map(|(index, item)| match item {
                    Json::String(one) => Ok(text(one)),
                    Json::Ids(ids) => Ok(Prompt::Ids(ids.clone())),
                    Json::Array(none) if none.is_empty() => Ok(Prompt::Ids(Vec::new())),
                    other => Err(Refusal::wrong_type(
                        &format!("prompt[{index}]"),
                        &other.describe(),
                        "a string or a sequence of token ids",
                    )),
                })
                .collect::<Result<_, _>>()?
        }
        other => {
            return Err(Refusal::wrong_type(
                "prompt",
                &other.describe(),
                "a string, a sequence of token ids, or a sequence of either",
            ));
        }
    };
    let is_empty = |prompt: &Prompt| match prompt {
        Prompt::Text { text, .. } => text.is_empty(),
        Prompt::Ids(ids) => ids.is_empty(),
        Prompt::Chat(_) | Prompt::Infill { .. } => false,
    };
    if prompts.is_empty() || prompts.iter().any(is_empty) {
        return Err(Refusal::validation("prompt", "`prompt` cannot be empty"));
    }
    if form.suffix.is_some() && prompts.iter().any(|it| matches!(it, Prompt::Ids(_))) {
        return Err(Refusal::validation(
            "suffix",
            "`suffix` needs prompts that are text, not token ids",
        ));
    }
    Ok(prompts)
}

/// A list that begins with an id is one of ids: what is wrong in it is the first that is none.
fn check_ids(items: &[Json]) -> Result<(), Refusal> {
    let is_id = |item: &Json| {
        let id = match item {
            Json::Number(number) => number.as_u64(),
            _ => None,
        };
        id.is_some_and(|id| u32::try_from(id).is_ok())
    };
    let begins_with_number = matches!(items.first(), Some(Json::Number(_)));
    match items.iter().enumerate().find(|(_, item)| !is_id(item)) {
        Some((index, wrong)) if begins_with_number => Err(Refusal::wrong_type(
            &format!("prompt[{index}]"),
            &wrong.describe(),
            "a token id",
        )),
        _ => Ok(()),
    }
}

/// The model has no tokens for a prompt with a gap; in TGI's words.
pub fn fills_no_gaps() -> Refusal {
    Refusal::validation(
        "suffix",
        "Suffix is not supported and can be achieved by preprocessing the prompt.",
    )
    .because(Cause::Suffix)
}

pub(super) fn check_suffix(echo: bool, is_cut: bool) -> Result<(), Refusal> {
    let refuse = |message: &str| Err(Refusal::validation("suffix", message));
    if echo {
        return refuse("`suffix` is not supported together with `echo`");
    }
    if is_cut {
        return refuse("`suffix` is not supported together with a truncated prompt");
    }
    Ok(())
}
