//! The cheap, cloneable way into the engine task, and the stream that comes back.

use headrace_scheduler::{FinishReason, SampledToken, SequenceFailure, SequenceRequest, SubmitError};
use tokio::sync::{mpsc, oneshot};

/// What the engine task hears from requests.
#[derive(Debug)]
pub(crate) enum Command {
    /// A validated sequence, where its events go, and where the verdict goes.
    Submit {
        /// What to run.
        request: SequenceRequest,
        /// The bounded buffer of this sequence.
        events: mpsc::Sender<SequenceEvent>,
        /// Taken or not.
        verdict: oneshot::Sender<Result<(), SubmitError>>,
    },
    /// The client left, or a stop string was found. Idempotent.
    Cancel(headrace_scheduler::SequenceId),
}

/// What a request's task hears about one sequence. `Finished` or `Failed` comes once and last.
#[derive(Clone, Debug)]
pub enum SequenceEvent {
    /// First admission to a step.
    Started {
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u32,
    },
    /// Logprobs of the next prompt positions, from position 1 on.
    PromptLogprobs(Vec<SampledToken>),
    /// The next output id.
    Token(SampledToken),
    /// The end.
    Finished(FinishReason),
    /// The end, by an error.
    Failed(SequenceFailure),
}
