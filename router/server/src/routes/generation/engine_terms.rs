//! The engine's words in the dialects' terms.

use crate::engine::Interruption;
use headrace_dialect::choice::{PromptPlace, RawToken};
use headrace_dialect::failure::Failure;
use headrace_scheduler::{SampledToken, SequenceFailure};

pub(super) fn raw_token(token: SampledToken) -> RawToken {
    RawToken {
        id: token.id,
        logprob: token.logprob,
        top: token.top,
    }
}

pub(super) fn prompt_place(token: SampledToken) -> PromptPlace {
    // The worker's answers were checked: a prompt id has its rank.
    let rank = token.rank.unwrap_or_default();
    PromptPlace::new(raw_token(token), rank)
}

/// The scheduler's reason in the dialects' terms.
pub(super) fn failure_of(failure: SequenceFailure) -> Failure {
    match failure {
        SequenceFailure::NonFinite => Failure::Numeric,
        SequenceFailure::Row(words) | SequenceFailure::Step(words) => Failure::Worker(words),
        SequenceFailure::OutOfMemory => Failure::OutOfMemory,
        SequenceFailure::DeadlineExceeded => Failure::Deadline,
        SequenceFailure::WorkerCrash => Failure::WorkerCrash,
    }
}

/// The engine's.
pub(super) fn interruption(cause: Interruption) -> Failure {
    match cause {
        Interruption::DrainDeadline => Failure::Draining,
        Interruption::Stalled => Failure::Stalled,
        Interruption::WorkersLost(cause) => Failure::WorkersLost(cause),
    }
}
