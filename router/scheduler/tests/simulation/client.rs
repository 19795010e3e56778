//! What one sequence's owner expects and has heard.

use headrace_scheduler::{Event, FinishReason, SequenceFailure, SequenceRequest, Time, TokenId};

use crate::worker::{histories, next_id};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    Cancelled,
    Finished,
    Failed,
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct Client {
    pub(crate) request: SequenceRequest,
    pub(crate) state: State,
    pub(crate) paused: bool,
    /// The token that ends the workers.
    pub(crate) poison: Option<usize>,
    /// Killed from outside with it alone in isolation: how many ids it had heard.
    pub(crate) killed_alone: Option<usize>,
    expected: Vec<TokenId>,
    reason: FinishReason,
    heard: Vec<TokenId>,
    logprobs: usize,
    started: bool,
    /// Faults that its rows had: the only ones that it may fail with.
    pub(crate) non_finite: bool,
    pub(crate) refused: bool,
    pub(crate) failed_alone: bool,
    /// Steps with it that failed whole, since one succeeded.
    pub(crate) lost_steps: u32,
}

impl Client {
    pub(crate) fn new(request: SequenceRequest, vocabulary: u32) -> Self {
        let (expected, reason) = undisturbed(&request, vocabulary);
        Self {
            request,
            state: State::Open,
            paused: false,
            poison: None,
            killed_alone: None,
            expected,
            reason,
            heard: Vec::new(),
            logprobs: 0,
            started: false,
            non_finite: false,
            refused: false,
            failed_alone: false,
            lost_steps: 0,
        }
    }

    /// Ids still to come at most, prompt included: the work a fresh start costs.
    pub(crate) fn work(&self) -> usize {
        self.request.prompt.len() + self.expected.len()
    }

    pub(crate) fn heard(&self) -> usize {
        self.heard.len()
    }

    /// It is to end without anybody's doing.
    pub(crate) fn goes_on(&self) -> bool {
        self.state == State::Open && !self.paused
    }

    /// Its deadline has passed.
    pub(crate) fn is_late(&self, now: Time) -> bool {
        self.request
            .deadline
            .is_some_and(|deadline| deadline <= now)
    }

    pub(crate) fn hear(&mut self, now: Time, event: Event) {
        let id = self.request.id;
        assert_eq!(
            self.state,
            State::Open,
            "{id:?} hears {event:?} after its end"
        );
        assert!(self.started || matches!(event, Event::Started { .. } | Event::Failed { .. }));
        match event {
            Event::Started { cached_tokens, .. } => {
                assert!(!self.started, "{id:?} starts twice");
                self.started = true;
                assert!((cached_tokens as usize) <= self.request.prompt.len());
                assert!(cached_tokens == 0 || !self.request.prompt_logprobs);
            }
            Event::PromptLogprobs { tokens, .. } => {
                assert!(self.request.prompt_logprobs && !tokens.is_empty());
                for token in tokens {
                    self.logprobs += 1;
                    assert_eq!(token.id, self.request.prompt[self.logprobs], "{id:?}");
                }
            }
            Event::Token { token, .. } => {
                if self.request.prompt_logprobs {
                    assert_eq!(
                        self.logprobs + 1,
                        self.request.prompt.len(),
                        "{id:?}: logprobs"
                    );
                }
                self.heard.push(token.id);
                assert!(
                    self.expected.starts_with(&self.heard),
                    "{id:?}: {:?}",
                    self.heard
                );
            }
            Event::Finished { reason, .. } => {
                assert_eq!(self.heard, self.expected, "{id:?} ends early");
                assert_eq!(reason, self.reason, "{id:?}");
                self.state = State::Finished;
            }
            Event::Failed { failure, .. } => {
                let due = match failure {
                    SequenceFailure::NonFinite => self.non_finite,
                    SequenceFailure::Row(_) => self.refused,
                    SequenceFailure::DeadlineExceeded => !self.started && self.is_late(now),
                    SequenceFailure::WorkerCrash => self.poison.is_some(),
                    SequenceFailure::Step(_) | SequenceFailure::OutOfMemory => self.failed_alone,
                };
                assert!(due, "{id:?} fails without a cause: {failure:?}");
                self.state = State::Failed;
            }
        }
    }
}

/// What the request gives alone and without faults, by the rules of the interface.
fn undisturbed(request: &SequenceRequest, vocabulary: u32) -> (Vec<TokenId>, FinishReason) {
    let mut ids = request.prompt.to_vec();
    let mut output = Vec::new();
    loop {
        let history = *histories(request.namespace, &ids).last().unwrap();
        let id = next_id(history, vocabulary);
        let may_end = output.len() >= request.stop.min_tokens as usize;
        ids.push(id);
        output.push(id);
        if may_end && request.stop.eos_token_ids.contains(&id) {
            return (output, FinishReason::Eos);
        }
        if may_end && request.stop.stop_token_ids.contains(&id) {
            return (output, FinishReason::StopToken(id));
        }
        if output.len() == request.stop.max_new_tokens as usize {
            return (output, FinishReason::Length);
        }
    }
}
