//! A planned step as the message that every rank gets.

use crate::pb;
use headrace_scheduler::{NewSequence, SamplingParams, StepPlan};

/// The step's message. Only deltas travel: a decode step of 256 sequences is 256 rows of a few bytes.
pub fn encode_step(plan: &StepPlan) -> pb::Step {
    pb::Step {
        step_id: plan.step_id,
        finished_slots: plan.finished_slots.clone(),
        new_sequences: plan.new_sequences.iter().map(encode_sequence).collect(),
        block_appends: plan
            .block_appends
            .iter()
            .map(|(slot, blocks)| pb::BlockAppend {
                slot: *slot,
                blocks: blocks.clone(),
            })
            .collect(),
        block_copies: plan
            .block_copies
            .iter()
            .map(|copy| pb::BlockCopy {
                source: copy.source,
                destination: copy.destination,
                num_tokens: copy.num_tokens,
            })
            .collect(),
        rows: plan
            .rows
            .iter()
            .map(|row| pb::Row {
                slot: row.slot,
                num_tokens: row.num_tokens,
                sample: row.sample,
                prompt_logprobs: row.prompt_logprobs,
                masked: row.masked,
                draft_token_ids: Vec::new(),
            })
            .collect(),
        acknowledged_failure: plan.acknowledged_failure,
    }
}

fn encode_sequence(sequence: &NewSequence) -> pb::NewSequence {
    pb::NewSequence {
        slot: sequence.slot,
        token_ids: sequence.token_ids.clone(),
        prompt_length: sequence.prompt_length,
        computed_length: sequence.computed_length,
        blocks: sequence.blocks.clone(),
        sampling: Some(encode_sampling(&sequence.sampling)),
        adapter: None,
    }
}

fn encode_sampling(sampling: &SamplingParams) -> pb::SamplingParams {
    pb::SamplingParams {
        do_sample: sampling.do_sample,
        temperature: sampling.temperature,
        top_k: sampling.top_k,
        top_p: sampling.top_p,
        min_p: sampling.min_p,
        typical_p: sampling.typical_p,
        repetition_penalty: sampling.repetition_penalty,
        frequency_penalty: sampling.frequency_penalty,
        presence_penalty: sampling.presence_penalty,
        seed: sampling.seed,
        top_n: sampling.top_n,
        prompt_top_n: sampling.prompt_top_n,
        logprobs: sampling.logprobs,
        logit_bias: sampling
            .logit_bias
            .iter()
            .map(|&(token_id, bias)| pb::LogitBias { token_id, bias })
            .collect(),
        suppressed_token_ids: sampling.suppressed_token_ids.clone(),
        min_tokens: sampling.min_tokens,
        allowed_token_ids: sampling.allowed_token_ids.to_vec(),
        bad_words: sampling
            .bad_words
            .iter()
            .map(|ids| pb::TokenIds { ids: ids.clone() })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headrace_scheduler::{BlockCopy, GroupId, Row};
    use prost::Message;

    /// Every field set to a value of its own, so that two swapped fields show.
    fn full_plan() -> StepPlan {
        StepPlan {
            group: GroupId(0),
            step_id: 7,
            finished_slots: vec![3, 1],
            new_sequences: vec![NewSequence {
                slot: 2,
                token_ids: vec![10, 11, 12, 13],
                prompt_length: 3,
                computed_length: 1,
                blocks: vec![40, 41],
                sampling: SamplingParams {
                    do_sample: true,
                    temperature: Some(0.5),
                    top_k: Some(20),
                    top_p: Some(0.9),
                    min_p: Some(0.05),
                    typical_p: Some(0.8),
                    repetition_penalty: Some(1.1),
                    frequency_penalty: Some(-0.2),
                    presence_penalty: Some(0.3),
                    seed: u64::MAX,
                    top_n: 4,
                    prompt_top_n: 8,
                    logprobs: true,
                    logit_bias: vec![(5, -100.0)],
                    suppressed_token_ids: vec![0, 2],
                    min_tokens: 6,
                    allowed_token_ids: [0, 9].into(),
                    bad_words: [vec![3], vec![8, 1]].into(),
                },
            }],
            block_appends: vec![(5, vec![42, 43])],
            block_copies: vec![BlockCopy {
                source: 40,
                destination: 44,
                num_tokens: 9,
            }],
            rows: vec![
                Row {
                    slot: 5,
                    num_tokens: 1,
                    sample: true,
                    prompt_logprobs: false,
                    masked: false,
                },
                Row {
                    slot: 2,
                    num_tokens: 3,
                    sample: false,
                    prompt_logprobs: true,
                    masked: false,
                },
            ],
            masks: Vec::new(),
            acknowledged_failure: Some(6),
        }
    }

    #[test]
    fn every_field_arrives() {
        let bytes = encode_step(&full_plan()).encode_to_vec();
        let step = pb::Step::decode(bytes.as_slice()).unwrap();
        assert_eq!((step.step_id, step.acknowledged_failure), (7, Some(6)));
        assert_eq!(step.finished_slots, [3, 1]);
        let sequence = &step.new_sequences[0];
        assert_eq!(
            (
                sequence.slot,
                sequence.prompt_length,
                sequence.computed_length
            ),
            (2, 3, 1)
        );
        assert_eq!(sequence.token_ids, [10, 11, 12, 13]);
        assert_eq!(sequence.blocks, [40, 41]);
        assert_eq!(sequence.adapter, None);
        assert_eq!(
            step.block_appends,
            [pb::BlockAppend {
                slot: 5,
                blocks: vec![42, 43]
            }]
        );
        assert_eq!(
            step.block_copies,
            [pb::BlockCopy {
                source: 40,
                destination: 44,
                num_tokens: 9
            }]
        );
        let rows: Vec<_> = step
            .rows
            .iter()
            .map(|row| {
                (
                    row.slot,
                    row.num_tokens,
                    row.sample,
                    row.prompt_logprobs,
                    row.masked,
                )
            })
            .collect();
        assert_eq!(
            rows,
            [(5, 1, true, false, false), (2, 3, false, true, false)]
        );
    }

    #[test]
    fn every_sampling_field_arrives() {
        let bytes = encode_step(&full_plan()).encode_to_vec();
        let step = pb::Step::decode(bytes.as_slice()).unwrap();
        let sampling = step.new_sequences[0].sampling.as_ref().unwrap();
        assert!(sampling.do_sample && sampling.logprobs);
        assert_eq!(
            (
                sampling.temperature,
                sampling.top_p,
                sampling.min_p,
                sampling.typical_p
            ),
            (Some(0.5), Some(0.9), Some(0.05), Some(0.8))
        );
        assert_eq!(
            (
                sampling.repetition_penalty,
                sampling.frequency_penalty,
                sampling.presence_penalty
            ),
            (Some(1.1), Some(-0.2), Some(0.3))
        );
        assert_eq!(
            (
                sampling.top_k,
                sampling.seed,
                sampling.top_n,
                sampling.prompt_top_n,
                sampling.min_tokens
            ),
            (Some(20), u64::MAX, 4, 8, 6)
        );
        assert_eq!(
            sampling.logit_bias,
            [pb::LogitBias {
                token_id: 5,
                bias: -100.0
            }]
        );
        assert_eq!(sampling.suppressed_token_ids, [0, 2]);
    }

    #[test]
    fn what_is_absent_stays_absent() {
        let mut plan = full_plan();
        plan.acknowledged_failure = None;
        plan.new_sequences[0].sampling = SamplingParams::greedy();
        let bytes = encode_step(&plan).encode_to_vec();
        let step = pb::Step::decode(bytes.as_slice()).unwrap();
        assert_eq!(step.acknowledged_failure, None);
        let sampling = step.new_sequences[0].sampling.as_ref().unwrap();
        assert_eq!(
            (sampling.temperature, sampling.top_k, sampling.top_p),
            (None, None, None)
        );
        assert!(!sampling.do_sample);
    }

    #[test]
    fn a_decode_step_of_256_sequences_is_a_few_kilobytes() {
        let rows = (0..256)
            .map(|slot| Row {
                slot,
                num_tokens: 1,
                sample: true,
                prompt_logprobs: false,
                masked: false,
            })
            .collect();
        let plan = StepPlan {
            step_id: 1 << 40,
            rows,
            ..StepPlan::default()
        };
        let bytes = encode_step(&plan).encoded_len();
        assert!(bytes < 4096, "{bytes} bytes");
    }
}
