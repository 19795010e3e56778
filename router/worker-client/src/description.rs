//! What a group is, out of its ranks' `Describe` answers.

use crate::error::StartError;
use crate::pb;

/// The ranks agree on all of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDescription {
    /// Ranks.
    pub world_size: usize,
    /// Rank 0's: `cpu`, `cuda:0`.
    pub device: String,
    /// `float32`, `bfloat16`, `float16`.
    pub compute_dtype: String,
    /// Rows of the output projection: every id is below it.
    pub vocab_size: u32,
    /// The model's own context length.
    pub max_position_embeddings: u32,
    /// Steps that every rank accepts before the first has answered.
    pub max_steps_in_flight: u32,
    /// `native-avx512`, `torch` …
    pub kernel_set: String,
    /// Chosen at the worker's start.
    pub attention_backend: String,
    /// `decoder_input_details` can be answered.
    pub prompt_logprobs: bool,
}

impl GroupDescription {
    /// Checks rank order, world size and that the ranks run the same thing.
    pub fn from_replies(replies: &[pb::DescribeReply]) -> Result<Self, StartError> {
        let mismatch = |rank: usize, what: String| StartError::Mismatch { rank, what };
        let Some(first) = replies.first() else {
            return Err(mismatch(0, "a group needs at least one rank".to_owned()));
        };
        for (rank, reply) in replies.iter().enumerate() {
            if usize::try_from(reply.rank) != Ok(rank) {
                return Err(mismatch(
                    rank,
                    format!("it says that it is rank {}", reply.rank),
                ));
            }
            if usize::try_from(reply.world_size) != Ok(replies.len()) {
                return Err(mismatch(
                    rank,
                    format!(
                        "it expects {} ranks, the group has {}",
                        reply.world_size,
                        replies.len()
                    ),
                ));
            }
            if reply.vocab_size == 0 || reply.max_position_embeddings == 0 {
                return Err(mismatch(
                    rank,
                    "vocab_size or max_position_embeddings is 0".to_owned(),
                ));
            }
            if reply.max_steps_in_flight == 0 {
                return Err(mismatch(rank, "max_steps_in_flight is 0".to_owned()));
            }
            if reply.kv_groups.len() != 1 {
                return Err(mismatch(
                    rank,
                    format!(
                        "{} KV groups; this router keeps one table a sequence",
                        reply.kv_groups.len()
                    ),
                ));
            }
            let same = reply.vocab_size == first.vocab_size
                && reply.max_position_embeddings == first.max_position_embeddings
                && reply.compute_dtype == first.compute_dtype
                && reply.kernel_set == first.kernel_set
                && reply.attention_backend == first.attention_backend;
            if !same {
                return Err(mismatch(
                    rank,
                    format!(
                        "it differs from rank 0 in vocabulary, context, dtype or kernels: \
                         {} {} {} {} against {} {} {} {}",
                        reply.vocab_size,
                        reply.compute_dtype,
                        reply.kernel_set,
                        reply.attention_backend,
                        first.vocab_size,
                        first.compute_dtype,
                        first.kernel_set,
                        first.attention_backend
                    ),
                ));
            }
        }
        Ok(Self {
            world_size: replies.len(),
            device: first.device.clone(),
            compute_dtype: first.compute_dtype.clone(),
            vocab_size: first.vocab_size,
            max_position_embeddings: first.max_position_embeddings,
            max_steps_in_flight: replies
                .iter()
                .map(|reply| reply.max_steps_in_flight)
                .min()
                .unwrap_or(1),
            kernel_set: first.kernel_set.clone(),
            attention_backend: first.attention_backend.clone(),
            prompt_logprobs: replies.iter().all(|reply| reply.prompt_logprobs),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(rank: u32, world_size: u32) -> pb::DescribeReply {
        pb::DescribeReply {
            rank,
            world_size,
            device: "cpu".to_owned(),
            compute_dtype: "float32".to_owned(),
            vocab_size: 100,
            max_position_embeddings: 64,
            kv_groups: vec![pb::KvGroup::default()],
            max_steps_in_flight: 2 - rank.min(1),
            kernel_set: "torch".to_owned(),
            prompt_logprobs: true,
            attention_backend: "torch".to_owned(),
        }
    }

    #[test]
    fn the_smallest_number_of_steps_in_flight_counts() {
        let group = GroupDescription::from_replies(&[reply(0, 2), reply(1, 2)]).unwrap();
        assert_eq!((group.world_size, group.max_steps_in_flight), (2, 1));
    }

    #[test]
    fn ranks_that_do_not_fit_are_refused_for_good() {
        let mut swapped = vec![reply(1, 2), reply(0, 2)];
        assert!(
            GroupDescription::from_replies(&swapped)
                .unwrap_err()
                .is_final()
        );
        swapped.reverse();
        swapped[1].vocab_size = 99;
        assert!(GroupDescription::from_replies(&swapped).is_err());
        assert!(GroupDescription::from_replies(&[reply(0, 2)]).is_err());
        assert!(GroupDescription::from_replies(&[]).is_err());
        let mut windowed = reply(0, 1);
        windowed.kv_groups.push(pb::KvGroup::default());
        assert!(GroupDescription::from_replies(&[windowed]).is_err());
    }
}
