//! One request's owner: what it expects, what it has heard, and how it reads.

use crate::grammars;
use crate::worker::{after, next_id, start_of};
use headrace_grammar::CompiledGrammar;
use headrace_router::engine::{
    Interruption, SequenceEvent, SequenceStream, SubmitFailure, SubmittedSequence,
};
use headrace_scheduler::{FinishReason, SequenceFailure, SequenceRequest, Time, TokenId};

/// How a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// All that is there, at once.
    Prompt,
    /// One event now and then.
    Slow,
    /// Nothing, until the world is calm.
    Stalled,
}

/// What the client holds.
pub(crate) enum Hold {
    /// Asked, without a verdict.
    Asked(SubmittedSequence),
    /// Taken.
    Open(SequenceStream),
    /// Refused, ended or left.
    Nothing,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Finished,
    Failed(SequenceFailure),
    /// Its grammar allows nothing more.
    Stuck,
    Interrupted(Interruption),
    Refused(SubmitFailure),
    /// It left by itself.
    Left,
}

/// What the world did to it: the only causes that it may fail for.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct Causes {
    pub(crate) non_finite: bool,
    pub(crate) refused_row: bool,
    pub(crate) failed_alone: bool,
    pub(crate) drain_cut: bool,
    pub(crate) group_lost: bool,
}

#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct Client {
    pub(crate) request: SequenceRequest,
    pub(crate) reader: Reader,
    pub(crate) hold: Hold,
    pub(crate) end: Option<End>,
    pub(crate) causes: Causes,
    pub(crate) started: bool,
    /// Its group died after it had begun.
    pub(crate) resumed: bool,
    /// It came before the first group was ready.
    pub(crate) early: bool,
    /// It ends the worker whenever a step has it.
    pub(crate) poison: bool,
    /// Groups that died with it in their steps.
    pub(crate) deaths: u32,
    /// Groups die for other causes too.
    pub(crate) outside_kills: bool,
    /// Steps with it that failed whole since one succeeded.
    pub(crate) lost_steps: u32,
    heard: Vec<TokenId>,
    expected: Vec<TokenId>,
    /// `None`: a dead end.
    reason: Option<FinishReason>,
}

impl Client {
    pub(crate) fn new(
        request: SequenceRequest,
        grammar: Option<&CompiledGrammar>,
        reader: Reader,
        asked: SubmittedSequence,
    ) -> Self {
        let (expected, reason) = match grammar {
            Some(grammar) => constrained(&request, grammar),
            None => undisturbed(&request),
        };
        Self {
            request,
            reader,
            hold: Hold::Asked(asked),
            end: None,
            causes: Causes::default(),
            started: false,
            resumed: false,
            early: false,
            poison: false,
            deaths: 0,
            outside_kills: false,
            lost_steps: 0,
            heard: Vec::new(),
            expected,
            reason,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// Ids still to come at most, prompt included.
    pub(crate) fn work(&self) -> usize {
        self.request.prompt.len() + self.expected.len()
    }

    pub(crate) fn heard(&self) -> usize {
        self.heard.len()
    }

    /// Takes the verdict, if there is one.
    pub(crate) fn settle(&mut self) {
        let Hold::Asked(asked) = std::mem::replace(&mut self.hold, Hold::Nothing) else {
            panic!("no verdict is due");
        };
        match asked.try_settle() {
            Err(asked) => self.hold = Hold::Asked(asked),
            Ok(Ok(stream)) => self.hold = Hold::Open(stream),
            Ok(Err(failure)) => self.end = Some(End::Refused(failure)),
        }
    }

    /// Leaves, in whatever state it is.
    pub(crate) fn leave(&mut self) {
        self.hold = Hold::Nothing;
        self.end = Some(End::Left);
    }

    /// Reads up to `most` events. Gives how many there were.
    pub(crate) fn read(&mut self, now: Time, most: usize) -> usize {
        let mut count = 0;
        while count < most {
            let Hold::Open(stream) = &mut self.hold else {
                break;
            };
            let Some(event) = stream.try_recv() else {
                break;
            };
            count += 1;
            let is_last = event.is_last();
            self.hear(now, event);
            if is_last {
                let Hold::Open(mut stream) = std::mem::replace(&mut self.hold, Hold::Nothing)
                else {
                    break;
                };
                assert!(stream.has_ended());
                assert_eq!(stream.try_recv(), None, "an event after the end");
            }
        }
        count
    }

    fn hear(&mut self, now: Time, event: SequenceEvent) {
        let id = self.request.id;
        assert!(self.end.is_none(), "{id:?} hears {event:?} after its end");
        match event {
            SequenceEvent::Started { cached_tokens, at } => {
                assert!(at <= now, "{id:?} starts at {at:?}");
                assert!(!self.started, "{id:?} starts twice");
                self.started = true;
                assert!((cached_tokens as usize) < self.request.prompt.len());
            }
            SequenceEvent::PromptLogprobs(_) => panic!("{id:?} did not ask for them"),
            SequenceEvent::Token(token) => {
                assert!(self.started, "{id:?}: a token before the start");
                self.heard.push(token.id);
                assert!(
                    self.expected.starts_with(&self.heard),
                    "{id:?} hears {:?} and is due {:?}",
                    self.heard,
                    self.expected
                );
            }
            SequenceEvent::Finished(reason) => {
                assert!(!self.poison, "{id:?} cannot run");
                assert_eq!(self.heard, self.expected, "{id:?} ends early");
                assert_eq!(Some(reason), self.reason);
                self.end = Some(End::Finished);
            }
            SequenceEvent::Failed(failure) => {
                let deadline = self.request.deadline;
                let due = match failure {
                    SequenceFailure::NonFinite => self.causes.non_finite,
                    SequenceFailure::Row(_) => self.causes.refused_row,
                    SequenceFailure::DeadlineExceeded => {
                        !self.started && deadline.is_some_and(|deadline| deadline <= now)
                    }
                    SequenceFailure::Step(_) | SequenceFailure::OutOfMemory => {
                        self.causes.failed_alone
                    }
                    SequenceFailure::WorkerCrash => {
                        self.deaths > 1 && (self.poison || self.outside_kills)
                    }
                };
                assert!(due, "{id:?} fails without a cause: {failure:?}");
                self.end = Some(End::Failed(failure));
            }
            SequenceEvent::GrammarDeadEnd(_) => {
                assert_eq!(self.reason, None, "{id:?} could go on");
                assert_eq!(self.heard, self.expected, "{id:?} ends early");
                self.end = Some(End::Stuck);
            }
            SequenceEvent::Interrupted(why) => {
                let due = match &why {
                    Interruption::DrainDeadline => self.causes.drain_cut,
                    Interruption::WorkersLost(_) => self.causes.group_lost,
                    Interruption::Stalled => self.reader != Reader::Prompt,
                };
                assert!(due, "{id:?} is interrupted without a cause: {why:?}");
                self.end = Some(End::Interrupted(why));
            }
        }
    }
}

fn constrained(
    request: &SequenceRequest,
    grammar: &CompiledGrammar,
) -> (Vec<TokenId>, Option<FinishReason>) {
    let most = request.stop.max_new_tokens as usize;
    let (output, goes_on) =
        grammars::undisturbed(grammar, request.namespace, &request.prompt, most);
    let reason = match output.last() {
        Some(&grammars::EOS) => Some(FinishReason::Eos),
        _ => goes_on.then_some(FinishReason::Length),
    };
    (output, reason)
}

/// What the request gives alone and without faults.
fn undisturbed(request: &SequenceRequest) -> (Vec<TokenId>, Option<FinishReason>) {
    let mut history = request
        .prompt
        .iter()
        .fold(start_of(request.namespace), |history, &id| {
            after(history, id)
        });
    let mut output = Vec::new();
    loop {
        let id = next_id(history);
        history = after(history, id);
        output.push(id);
        if request.stop.eos_token_ids.contains(&id) {
            return (output, Some(FinishReason::Eos));
        }
        if output.len() == request.stop.max_new_tokens as usize {
            return (output, Some(FinishReason::Length));
        }
    }
}
