//! The one type that reaches the scheduler: a sequence whose ids and numbers were checked against the model.
//!
//! Routes build their sequences in `validate`, with errors that name a client's field. This is the second line: it
//! knows nothing of dialects and holds for every door, those of later days included, so that what one of them forgot
//! to check ends as that request's error and never in a worker.

use headrace_scheduler::{SamplingParams, SequenceRequest, TokenId};

/// A sequence that passed the checks; made by [`ValidatedSequence::new`] alone.
#[derive(Clone, Debug)]
pub(crate) struct ValidatedSequence(SequenceRequest);

/// What a door let through and should not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSequence {
    /// An id of the prompt, a stop id, a bias, a suppressed or allowed id, or one of a bad word.
    #[error("{field} has the id {id}, and the vocabulary ends at {vocab_size}")]
    Id {
        /// Which list.
        field: &'static str,
        /// The id.
        id: TokenId,
        /// The model's.
        vocab_size: u32,
    },
    /// A number outside the range that its field states, or not finite.
    #[error("{0} is out of range")]
    Number(&'static str),
}

impl ValidatedSequence {
    /// Checks every id and number.
    pub(crate) fn new(request: SequenceRequest, vocab_size: u32) -> Result<Self, InvalidSequence> {
        let sampling = &request.sampling;
        let check = |field, found: Option<TokenId>| match found {
            Some(id) => Err(InvalidSequence::Id {
                field,
                id,
                vocab_size,
            }),
            None => Ok(()),
        };
        let outside = |id: &TokenId| *id >= vocab_size;
        check("prompt", request.prompt.iter().copied().find(outside))?;
        let stop = &request.stop;
        check(
            "stop_token_ids",
            stop.stop_token_ids.iter().copied().find(outside),
        )?;
        let mut biased = sampling.logit_bias.iter().map(|(id, _)| *id);
        check("logit_bias", biased.find(outside))?;
        let suppressed = &sampling.suppressed_token_ids;
        check(
            "suppressed_token_ids",
            suppressed.iter().copied().find(outside),
        )?;
        let allowed = &sampling.allowed_token_ids;
        check("allowed_token_ids", allowed.iter().copied().find(outside))?;
        let mut words = sampling.bad_words.iter().flatten().copied();
        check("bad_words", words.find(outside))?;
        if sampling.bad_words.iter().any(Vec::is_empty) {
            return Err(InvalidSequence::Number("bad_words"));
        }
        check_numbers(sampling)?;
        Ok(Self(request))
    }

    /// What was checked.
    pub(crate) fn request(&self) -> &SequenceRequest {
        &self.0
    }

    /// For the scheduler.
    pub(crate) fn into_request(self) -> SequenceRequest {
        self.0
    }
}

fn check_numbers(sampling: &SamplingParams) -> Result<(), InvalidSequence> {
    let within = |field, value: Option<f32>, test: fn(f32) -> bool| match value {
        // NaN passes no comparison, so each test refuses it.
        Some(value) if !(value.is_finite() && test(value)) => Err(InvalidSequence::Number(field)),
        _ => Ok(()),
    };
    let penalty = |value: f32| (-2.0..=2.0).contains(&value);
    within("temperature", sampling.temperature, |value| value > 0.0)?;
    within("top_p", sampling.top_p, |value| value > 0.0 && value <= 1.0)?;
    within("min_p", sampling.min_p, |value| {
        (0.0..=1.0).contains(&value)
    })?;
    within("typical_p", sampling.typical_p, |value| {
        value > 0.0 && value < 1.0
    })?;
    within("repetition_penalty", sampling.repetition_penalty, |value| {
        value > 0.0
    })?;
    within("frequency_penalty", sampling.frequency_penalty, penalty)?;
    within("presence_penalty", sampling.presence_penalty, penalty)?;
    if sampling.top_k == Some(0) {
        return Err(InvalidSequence::Number("top_k"));
    }
    let bias = sampling.logit_bias.iter().map(|(_, bias)| *bias);
    match bias
        .into_iter()
        .find(|bias| !(-100.0..=100.0).contains(bias))
    {
        Some(_) => Err(InvalidSequence::Number("logit_bias")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headrace_scheduler::SequenceId;

    fn request() -> SequenceRequest {
        SequenceRequest::greedy(SequenceId(1), [1, 9], 1)
    }

    fn verdict(change: impl FnOnce(&mut SequenceRequest)) -> Result<(), InvalidSequence> {
        let mut request = request();
        change(&mut request);
        ValidatedSequence::new(request, 10).map(|_| ())
    }

    #[test]
    fn ids_at_the_vocabulary_are_refused_in_every_list() {
        assert_eq!(verdict(|_| ()), Ok(()));
        let refused = |field| {
            Err(InvalidSequence::Id {
                field,
                id: 10,
                vocab_size: 10,
            })
        };
        assert_eq!(verdict(|r| r.prompt = [10].into()), refused("prompt"));
        assert_eq!(
            verdict(|r| r.stop.stop_token_ids = vec![10]),
            refused("stop_token_ids")
        );
        assert_eq!(
            verdict(|r| r.sampling.logit_bias = vec![(10, 1.0)]),
            refused("logit_bias")
        );
        assert_eq!(
            verdict(|r| r.sampling.suppressed_token_ids = vec![10]),
            refused("suppressed_token_ids")
        );
        assert_eq!(
            verdict(|r| r.sampling.allowed_token_ids = [9, 10].into()),
            refused("allowed_token_ids")
        );
        assert_eq!(
            verdict(|r| r.sampling.bad_words = [vec![9, 10]].into()),
            refused("bad_words")
        );
        assert_eq!(
            verdict(|r| r.sampling.bad_words = [vec![]].into()),
            Err(InvalidSequence::Number("bad_words"))
        );
    }

    #[test]
    fn numbers_that_are_not_finite_or_outside_are_refused_by_name() {
        for bad in [f32::NAN, f32::INFINITY, -1.0, 0.0] {
            assert_eq!(
                verdict(|r| r.sampling.temperature = Some(bad)),
                Err(InvalidSequence::Number("temperature"))
            );
        }
        assert_eq!(
            verdict(|r| r.sampling.logit_bias = vec![(1, f32::NAN)]),
            Err(InvalidSequence::Number("logit_bias"))
        );
        assert_eq!(
            verdict(|r| r.sampling.presence_penalty = Some(2.1)),
            Err(InvalidSequence::Number("presence_penalty"))
        );
        assert_eq!(
            verdict(|r| r.sampling.top_k = Some(0)),
            Err(InvalidSequence::Number("top_k"))
        );
        assert_eq!(verdict(|r| r.sampling.top_p = Some(1.0)), Ok(()));
    }
}
