//! The choice of an id, under a mask if one came, and what is told beside it.

use crate::masks::Placed;
use crate::model::{START, mix, next_allowed_id};
use crate::rules::TokenRules;
use crate::script::LiteralOutputs;
use headrace_worker_client::pb;

/// Where an id is to be chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The made-up model's state after the last token.
    pub(crate) state: u64,
    pub(crate) prompt: &'a [u32],
    /// Ids sampled before.
    pub(crate) output: &'a [u32],
    pub(crate) vocab_size: u32,
}

/// The sampled id; `None`: the row was called off; an error: why the row fails.
pub(crate) fn choose(
    place: &Place<'_>,
    sampling: &pb::SamplingParams,
    literal: Option<&LiteralOutputs>,
    placed: Option<&Placed>,
) -> Result<Option<u32>, String> {
    let position = u32::try_from(place.output.len()).unwrap_or(u32::MAX);
    let vocab_size = place.vocab_size;
    let allowed = match placed {
        None => None,
        Some(Placed::CalledOff) => return Ok(None),
        Some(Placed::Fault(words)) => return Err(words.clone()),
        Some(Placed::Mask {
            position: made_for, ..
        }) if *made_for != position => {
            return Err(format!(
                "a mask for output {made_for} came for output {position}"
            ));
        }
        Some(Placed::Mask { allowed, .. }) => Some(allowed.as_ref()),
    };
    if allowed.is_some_and(|allowed| allowed.unknown_id(vocab_size).is_some()) {
        return Err(format!(
            "the mask names an id outside the vocabulary of {vocab_size}"
        ));
    }
    let rules = TokenRules::new(sampling, place.output);
    literal
        .and_then(|literal| literal.next_id(place.prompt, place.output.len()))
        .filter(|id| rules.allow(*id) && allowed.is_none_or(|allowed| allowed.holds(*id)))
        .or_else(|| next_allowed_id(place.state, sampling, position, vocab_size, &rules, allowed))
        .map(Some)
        .ok_or_else(|| "no id of the vocabulary may be sampled".to_owned())
}

/// The id with the logprobs asked for: the sampled id is the best, and its successors follow.
pub(crate) fn described(id: u32, sampling: &pb::SamplingParams, vocab: u32) -> pb::SampledToken {
    let top = (0..sampling.top_n.min(vocab))
        .map(|rank| pb::TokenLogprob {
            id: (id + rank) % vocab,
            logprob: -0.5 * (1.0 + rank as f32),
        })
        .collect();
    let logprob = sampling.logprobs.then_some(-0.5);
    pb::SampledToken {
        id,
        logprob,
        top,
        rank: None,
    }
}

/// A prompt id as told with its place: it is the first, second or third best by its own number, and all logprobs there
/// are lower by a part that the KV before it says.
pub(crate) fn described_prompt(
    id: u32,
    before: u64,
    sampling: &pb::SamplingParams,
    vocab: u32,
) -> pb::SampledToken {
    let rank = prompt_rank(id, vocab);
    let logprob = |rank: u32| prompt_logprob(rank, before);
    let top = (1..=sampling.prompt_top_n.min(vocab)).map(|place| pb::TokenLogprob {
        id: (id + vocab + place - rank) % vocab,
        logprob: logprob(place),
    });
    pb::SampledToken {
        id,
        logprob: Some(logprob(rank)),
        top: top.collect(),
        rank: Some(rank),
    }
}

fn prompt_rank(id: u32, vocab: u32) -> u32 {
    (1 + id % 3).min(vocab)
}

/// Exact in binary; the part is the same for all ranks of a place.
fn prompt_logprob(rank: u32, before: u64) -> f32 {
    let part = (before % 64) as f32 / 256.0;
    -0.5 * rank as f32 - part
}

/// The logprobs that must come out for the ids of a prompt, from the second one on.
pub fn expected_prompt_logprobs(prompt: &[u32], vocab_size: u32) -> Vec<f32> {
    let mut state = START;
    let pairs = prompt.iter().zip(prompt.iter().skip(1));
    pairs
        .map(|(&id, &next)| {
            state = mix(state, id);
            prompt_logprob(prompt_rank(next, vocab_size), state)
        })
        .collect()
}

/// Whether every parameter is within the protocol's bounds.
pub(crate) fn check_sampling(sampling: &pb::SamplingParams, vocab_size: u32) -> bool {
    let known = |ids: &[u32]| ids.iter().all(|id| *id < vocab_size);
    let inside = |value: Option<f32>, low: f32, high: f32| {
        value.is_none_or(|value| value.is_finite() && value >= low && value <= high)
    };
    let positive = |value: Option<f32>| value.is_none_or(|value| value.is_finite() && value > 0.0);
    positive(sampling.temperature)
        && sampling.top_k != Some(0)
        && positive(sampling.top_p)
        && inside(sampling.top_p, 0.0, 1.0)
        && inside(sampling.min_p, 0.0, 1.0)
        && inside(sampling.typical_p, 0.0, 1.0)
        && positive(sampling.repetition_penalty)
        && inside(sampling.frequency_penalty, -2.0, 2.0)
        && inside(sampling.presence_penalty, -2.0, 2.0)
        && sampling
            .logit_bias
            .iter()
            .all(|entry| entry.bias.is_finite() && entry.token_id < vocab_size)
        && known(&sampling.suppressed_token_ids)
        && known(&sampling.allowed_token_ids)
        && sampling
            .bad_words
            .iter()
            .all(|word| !word.ids.is_empty() && known(&word.ids))
}
