//! Which ids a sequence may sample besides masks: `allowed_token_ids` and `bad_words`.

use headrace_worker_client::pb;

/// The rules at one place of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenRules<'a> {
    sampling: &'a pb::SamplingParams,
    output: &'a [u32],
}

impl<'a> TokenRules<'a> {
    /// After the ids `output`.
    pub(crate) fn new(sampling: &'a pb::SamplingParams, output: &'a [u32]) -> Self {
        Self { sampling, output }
    }

    /// Whether the id may come next.
    pub(crate) fn allow(&self, id: u32) -> bool {
        let allowed = &self.sampling.allowed_token_ids;
        (allowed.is_empty() || allowed.contains(&id)) && !self.completes_a_bad_word(id)
    }

    fn completes_a_bad_word(&self, id: u32) -> bool {
        self.sampling.bad_words.iter().any(|word| {
            word.ids
                .split_last()
                .is_some_and(|(last, before)| *last == id && self.output.ends_with(before))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_ids_and_bad_words() {
        let sampling = pb::SamplingParams {
            allowed_token_ids: vec![1, 2, 3],
            bad_words: [vec![2], vec![1, 1, 3]]
                .map(|ids| pb::TokenIds { ids })
                .to_vec(),
            ..pb::SamplingParams::default()
        };
        let may = |output: &[u32]| -> Vec<u32> {
            let rules = TokenRules::new(&sampling, output);
            (0..5).filter(|id| rules.allow(*id)).collect()
        };
        assert_eq!(may(&[]), [1, 3]);
        assert_eq!(may(&[1]), [1, 3]);
        assert_eq!(may(&[3, 1, 1]), [1]);
        assert_eq!(may(&[1, 1, 3]), [1, 3]);
    }
}
