//! What a call lets the model sample at all: ids below the vocabulary, and bad words as ids.

use super::prompts::run_on_pool;
use crate::app::AppState;
use crate::tenant::Tenant;
use headrace_dialect::bounds::ContextLimits;
use headrace_dialect::call::Call;
use headrace_dialect::refusal::Refusal;
use headrace_scheduler::{SamplingParams, TokenId};
use headrace_text::{SpecialText, Tokenizer};
use std::sync::Arc;

/// Ids of the request itself must be the model's.
pub(super) fn check_ids(call: &Call, limits: &ContextLimits) -> Result<(), Refusal> {
    let vocab_size = limits.vocab_size;
    let check = |param: &str, outside: Option<u32>| match outside {
        None => Ok(()),
        Some(id) => Err(Refusal::validation(
            param,
            format!("`{param}`: token id {id} is not below the vocabulary size {vocab_size}"),
        )),
    };
    let outside = |id: &u32| *id >= vocab_size;
    let stop_ids = &call.stop_token_ids;
    check("stop_token_ids", stop_ids.iter().copied().find(outside))?;
    let mut biased = call.logit_bias.iter().map(|(id, _)| *id);
    check("logit_bias", biased.find(outside))?;
    let allowed = &call.allowed_token_ids;
    check("allowed_token_ids", allowed.iter().copied().find(outside))?;
    if call.grammar.is_some() && !allowed.is_empty() {
        // What the two leave together is seldom what was meant, and often nothing.
        return Err(Refusal::validation(
            "allowed_token_ids",
            "`allowed_token_ids` and a grammar exclude each other",
        ));
    }
    Ok(())
}

/// The ids of every bad word, with and without a space before it.
pub(super) async fn bad_words(
    state: &AppState,
    tenant: Tenant,
    words: Vec<String>,
    vocab_size: u32,
) -> Result<Arc<[Vec<TokenId>]>, Refusal> {
    if words.is_empty() {
        return Ok(Arc::from([]));
    }
    // Each is tokenised twice.
    let weight = words.iter().map(|word| 2 * word.len() + 1).sum();
    run_on_pool(state, tenant, weight, move |services| {
        let mut sequences = Vec::new();
        for (index, word) in words.iter().enumerate() {
            spell(&services.tokenizer, word, &mut sequences).map_err(|problem| {
                Refusal::validation("bad_words", format!("`bad_words[{index}]`: {problem}"))
            })?;
        }
        // What the model cannot sample needs no ban.
        sequences.retain(|ids| ids.iter().all(|id| *id < vocab_size));
        sequences.sort_unstable();
        sequences.dedup();
        Ok(sequences.into())
    })
    .await
}

/// Adds what the word is at the beginning of a text, and after a space.
fn spell(
    tokenizer: &Tokenizer,
    word: &str,
    sequences: &mut Vec<Vec<TokenId>>,
) -> Result<(), String> {
    let bare = word.trim_start();
    let spellings = if bare.is_empty() {
        vec![word.to_owned()]
    } else {
        vec![bare.to_owned(), format!(" {bare}")]
    };
    for spelling in spellings {
        let encoding = tokenizer
            .encode(&spelling, false, SpecialText::Parse)
            .map_err(|error| error.to_string())?;
        if encoding.ids.is_empty() {
            return Err("the tokenizer makes no token of it".to_owned());
        }
        sequences.push(encoding.ids);
    }
    Ok(())
}

/// Something must be left to sample at the first place.
pub(super) fn check_choice(sampling: &SamplingParams) -> Result<(), Refusal> {
    let allowed = &sampling.allowed_token_ids;
    let is_banned = |id: &TokenId| {
        let is_suppressed = sampling.min_tokens > 0 && sampling.suppressed_token_ids.contains(id);
        is_suppressed || sampling.bad_words.iter().any(|word| **word == [*id])
    };
    if !allowed.is_empty() && allowed.iter().all(is_banned) {
        let why = if sampling.bad_words.is_empty() {
            "until `min_tokens` are out, none of them may come"
        } else if sampling.min_tokens == 0 {
            "`bad_words` leave none of them"
        } else {
            "`bad_words` and `min_tokens` leave none of them"
        };
        let message = format!("`allowed_token_ids`: {why}");
        return Err(Refusal::validation("allowed_token_ids", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_ids_of_which_none_is_left_are_refused() {
        let verdict = |bad: Vec<Vec<u32>>, suppressed: Vec<u32>, min_tokens| {
            check_choice(&SamplingParams {
                allowed_token_ids: [1, 2].into(),
                bad_words: bad.into(),
                suppressed_token_ids: suppressed,
                min_tokens,
                ..SamplingParams::greedy()
            })
            .map_err(|refusal| refusal.param().map(str::to_owned))
        };
        let refused = Err(Some("allowed_token_ids".to_owned()));
        assert_eq!(verdict(vec![vec![1], vec![2]], vec![], 0), refused);
        assert_eq!(verdict(vec![vec![1]], vec![2], 1), refused);
        assert_eq!(verdict(vec![vec![1]], vec![2], 0), Ok(()));
        assert_eq!(verdict(vec![vec![1], vec![3, 2]], vec![], 0), Ok(()));
    }
}
