//! The made-up model.
//!
//! `state(0) = mix(START, ids[0])`, `state(p) = mix(state(p - 1), ids[p])`; the id that follows position `p` is
//! `spread(state(p) ^ salt) % vocab_size`, where `salt` is 0 for greedy sequences and otherwise a function of the
//! sequence's seed and the output's index. Ids that are suppressed, not allowed, or would complete a
//! bad word, and ids that a mask does not allow, are stepped over, upwards.

use crate::masks::Allowed;
use crate::rules::TokenRules;
use headrace_worker_client::pb;

/// The state before the first token.
pub(crate) const START: u64 = 0x243f_6a88_85a3_08d3;

/// Stands in a KV place that nothing was written to; reading it is like reading NaN.
pub(crate) const UNWRITTEN: u64 = u64::MAX;

/// The KV number of a token after `before`.
pub(crate) fn mix(before: u64, id: u32) -> u64 {
    let state = spread(before.rotate_left(17) ^ u64::from(id).wrapping_add(0x9e37_79b9));
    if state == UNWRITTEN { 0 } else { state }
}

/// splitmix64's finaliser: every input bit reaches every output bit.
fn spread(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The id after a token whose KV number is `state`; `output_index` counts the sequence's output ids from 0.
pub(crate) fn next_id(
    state: u64,
    sampling: &pb::SamplingParams,
    output_index: u32,
    vocab_size: u32,
) -> u32 {
    let rules = TokenRules::new(sampling, &[]);
    next_allowed_id(state, sampling, output_index, vocab_size, &rules, None).unwrap_or(0)
}

/// As [`next_id`], but for the ids that the rules or a mask do not allow; `None`: none is left.
pub(crate) fn next_allowed_id(
    state: u64,
    sampling: &pb::SamplingParams,
    output_index: u32,
    vocab_size: u32,
    rules: &TokenRules<'_>,
    allowed: Option<&Allowed>,
) -> Option<u32> {
    let salt = if sampling.do_sample {
        spread(sampling.seed ^ u64::from(output_index).wrapping_mul(0x2545_f491_4f6c_dd1d))
    } else {
        0
    };
    let vocab = vocab_size.max(1);
    let first = u32::try_from(spread(state ^ salt) % u64::from(vocab)).unwrap_or(0);
    let suppressed: &[u32] = if output_index < sampling.min_tokens {
        &sampling.suppressed_token_ids
    } else {
        &[]
    };
    let fits = |id: u32| !suppressed.contains(&id) && rules.allow(id);
    match allowed {
        None => (first..vocab).chain(0..first).find(|&id| fits(id)),
        Some(allowed) => allowed.first_from(first, vocab, fits),
    }
}

/// `count` greedy ids after `prompt`, or fewer when one of `end_ids` comes, which is then the last.
pub fn expected_output(prompt: &[u32], count: usize, end_ids: &[u32], vocab_size: u32) -> Vec<u32> {
    expected(
        prompt,
        count,
        end_ids,
        vocab_size,
        &pb::SamplingParams::default(),
    )
}

/// As [`expected_output`], for a sequence that samples with `seed`.
pub fn expected_sampled_output(
    prompt: &[u32],
    count: usize,
    end_ids: &[u32],
    vocab_size: u32,
    seed: u64,
) -> Vec<u32> {
    let sampling = pb::SamplingParams {
        do_sample: true,
        seed,
        ..pb::SamplingParams::default()
    };
    expected(prompt, count, end_ids, vocab_size, &sampling)
}

fn expected(
    prompt: &[u32],
    count: usize,
    end_ids: &[u32],
    vocab_size: u32,
    sampling: &pb::SamplingParams,
) -> Vec<u32> {
    let mut state = prompt.iter().fold(START, |state, id| mix(state, *id));
    let mut output = Vec::with_capacity(count);
    for index in 0..count {
        let id = next_id(
            state,
            sampling,
            u32::try_from(index).unwrap_or(u32::MAX),
            vocab_size,
        );
        output.push(id);
        if end_ids.contains(&id) {
            break;
        }
        state = mix(state, id);
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_id_matters() {
        let prompt: Vec<u32> = (0..40).collect();
        let whole = expected_output(&prompt, 8, &[], 1000);
        for position in 0..prompt.len() {
            let mut other = prompt.clone();
            other[position] += 100;
            assert_ne!(
                expected_output(&other, 8, &[], 1000),
                whole,
                "position {position}"
            );
        }
        assert_ne!(expected_output(&prompt[1..], 8, &[], 1000), whole);
        assert_ne!(expected_sampled_output(&prompt, 8, &[], 1000, 1), whole);
    }

    #[test]
    fn suppressed_ids_do_not_come_early() {
        let free = pb::SamplingParams::default();
        let id = next_id(1, &free, 0, 50);
        let held = pb::SamplingParams {
            suppressed_token_ids: vec![id, (id + 1) % 50],
            min_tokens: 3,
            ..pb::SamplingParams::default()
        };
        assert_eq!(next_id(1, &held, 2, 50), (id + 2) % 50);
        assert_eq!(next_id(1, &held, 3, 50), id);
    }
}
