//! The cheap, cloneable way into the engine task, and the stream that comes back.

use super::buffer::{EventReader, EventWriter, Read, event_buffer};
use super::status::{EngineStatus, SharedStatus};
use super::validated::{InvalidSequence, ValidatedSequence};
use headrace_grammar::CompiledGrammar;
use headrace_scheduler::{
    FinishReason, SampledToken, SequenceFailure, SequenceId, SequenceRequest, SubmitError, Time,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// What the engine hears from requests and from `main`. Made by [`EngineHandle`] and [`SequenceStream`] alone.
#[derive(Debug)]
pub struct Command(pub(super) Order);

/// What a [`Command`] says.
#[derive(Debug)]
pub(super) enum Order {
    /// A validated sequence, where its events go, and where the verdict goes.
    Submit {
        /// What to run.
        request: Box<ValidatedSequence>,
        /// What binds its output.
        grammar: Option<CompiledGrammar>,
        /// The bounded buffer of this sequence.
        events: EventWriter,
        /// What log lines call its request.
        request_id: Option<Arc<str>>,
        /// Taken or not.
        verdict: oneshot::Sender<Result<(), SubmitFailure>>,
    },
    /// The client left, or a stop string was found. Idempotent.
    Cancel(SequenceId),
    /// The reader of a paused sequence wants more.
    Resume(SequenceId),
    /// Tokenizer, template and defaults are built: requests can be validated.
    ServicesReady,
    /// An operator wants a drain: the launcher is asked for it.
    RequestDrain,
    /// An operator wants the prefix cache emptied.
    FlushCache(oneshot::Sender<FlushedCache>),
}

/// What a flush of the prefix cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushedCache {
    /// Blocks that only the cache held and that are free now.
    pub freed_blocks: usize,
    /// Blocks of running sequences: they are found by nobody else any more.
    pub kept_blocks: usize,
}

/// The commands that wait for the engine.
#[derive(Debug)]
pub struct CommandQueue(mpsc::UnboundedReceiver<Command>);

impl CommandQueue {
    /// The next one; `None` when no handle and no stream is left.
    pub async fn next(&mut self) -> Option<Command> {
        self.0.recv().await
    }

    /// The next one, if there is one now.
    pub fn try_next(&mut self) -> Option<Command> {
        self.0.try_recv().ok()
    }
}

/// What a request's task hears about one sequence. `Finished`, `Failed`, `GrammarDeadEnd` or `Interrupted` comes once and
/// last.
#[derive(Clone, Debug, PartialEq)]
pub enum SequenceEvent {
    /// First admission to a step.
    Started {
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u32,
        /// When the step was planned, on the clock of [`EngineHandle::time_of`]. A reader hears of it later.
        at: Time,
    },
    /// Logprobs of the next prompt positions, from position 1 on.
    PromptLogprobs(Vec<SampledToken>),
    /// The next output id.
    Token(SampledToken),
    /// The end. `Eos` comes without an end id when a grammar is complete and the model has none.
    Finished(FinishReason),
    /// The end, by an error of this sequence.
    Failed(SequenceFailure),
    /// The end: its grammar allows no further id, for this reason.
    GrammarDeadEnd(String),
    /// The end, by the server and not by this sequence.
    Interrupted(Interruption),
}

impl SequenceEvent {
    /// Nothing comes after it.
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            Self::Finished(_) | Self::Failed(_) | Self::GrammarDeadEnd(_) | Self::Interrupted(_)
        )
    }
}

/// Why the server ended a sequence that had done nothing wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Interruption {
    /// The drain's grace time ran out.
    #[error("the server is shutting down and the grace time is over")]
    DrainDeadline,
    /// The workers are gone for good.
    #[error("the model workers are gone: {0}")]
    WorkersLost(String),
    /// Its buffer was full and nobody read it.
    #[error("the client read too slowly for too long")]
    Stalled,
}

/// Why `submit` took nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitFailure {
    /// The queue's bounds (429), or it could never run (422).
    #[error(transparent)]
    Queue(#[from] SubmitError),
    /// A door let something through that the model cannot take: 500, for it is our fault.
    #[error("a request was not validated: {0}")]
    Invalid(#[from] InvalidSequence),
    /// A drain has begun: 503 with Retry-After.
    #[error("the server is shutting down")]
    Draining,
    /// No worker group has been ready yet, or none will be again: 503.
    #[error("the model is not ready")]
    NotReady,
    /// The engine task is gone; the process is about to end: 503.
    #[error("the engine has stopped")]
    EngineGone,
}

/// The way into the engine task. Cloning costs a few reference counts.
///
/// The command queue is not bounded by itself: every caller of [`EngineHandle::submit`] waits for its verdict
/// before it sends again, and an accepted sequence sends at most one cancel and, while it is paused, one wish to go on, so
/// its length is at most three times the number of sequences in the house, which the routes bound.
#[derive(Clone, Debug)]
pub struct EngineHandle {
    commands: mpsc::UnboundedSender<Command>,
    status: Arc<SharedStatus>,
    next_id: Arc<AtomicU64>,
}

impl EngineHandle {
    /// The handle, and the end of its queue that the engine task reads.
    pub(super) fn new(status: Arc<SharedStatus>) -> (Self, CommandQueue) {
        let (commands, receiver) = mpsc::unbounded_channel();
        (
            Self {
                commands,
                status,
                next_id: Arc::new(AtomicU64::new(1)),
            },
            CommandQueue(receiver),
        )
    }

    /// A handle with no engine behind it.
    #[cfg(test)]
    pub(crate) fn detached() -> (Self, CommandQueue) {
        Self::new(Arc::new(SharedStatus::new()))
    }

    /// A name for a sequence, unique in this process.
    pub fn next_sequence_id(&self) -> SequenceId {
        SequenceId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// Hands a validated sequence to the engine and waits until it is queued or refused.
    ///
    /// Dropping the future, or the stream it gives, cancels the sequence in whatever state it is.
    /// `grammar` binds its output.
    pub async fn submit(
        &self,
        request: SequenceRequest,
        grammar: Option<CompiledGrammar>,
    ) -> Result<SequenceStream, SubmitFailure> {
        self.settled(self.begin(request, grammar, None)?).await
    }

    /// [`EngineHandle::submit`] for a request that log lines can name.
    pub async fn submit_for(
        &self,
        request_id: &Arc<str>,
        request: SequenceRequest,
        grammar: Option<CompiledGrammar>,
    ) -> Result<SequenceStream, SubmitFailure> {
        self.settled(self.begin(request, grammar, Some(Arc::clone(request_id)))?)
            .await
    }

    async fn settled(&self, submitted: SubmittedSequence) -> Result<SequenceStream, SubmitFailure> {
        let SubmittedSequence {
            mut stream,
            verdict,
        } = submitted;
        // The stream is there before the wait: if the caller goes away meanwhile, its drop cancels what may be queued
        // by now.
        let verdict = verdict.await.map_err(|_| SubmitFailure::EngineGone);
        stream.settle(verdict).map(|()| stream)
    }

    /// Hands a validated sequence to the engine and does not wait.
    pub fn begin_submit(
        &self,
        request: SequenceRequest,
        grammar: Option<CompiledGrammar>,
    ) -> Result<SubmittedSequence, SubmitFailure> {
        self.begin(request, grammar, None)
    }

    fn begin(
        &self,
        mut request: SequenceRequest,
        grammar: Option<CompiledGrammar>,
        request_id: Option<Arc<str>>,
    ) -> Result<SubmittedSequence, SubmitFailure> {
        let id = request.id;
        request.constrained = grammar.is_some();
        // Before the model is known nothing is accepted anyway, and the engine says so.
        let vocab_size = self
            .status
            .limits()
            .map_or(u32::MAX, |limits| limits.vocab_size);
        let (events, reader) = event_buffer();
        let (sender, verdict) = oneshot::channel();
        let order = Order::Submit {
            request: Box::new(ValidatedSequence::new(request, vocab_size)?),
            grammar,
            events,
            request_id,
            verdict: sender,
        };
        self.commands
            .send(Command(order))
            .map_err(|_| SubmitFailure::EngineGone)?;
        let stream = SequenceStream {
            id,
            events: reader,
            commands: self.commands.clone(),
            ended: false,
        };
        Ok(SubmittedSequence { stream, verdict })
    }

    /// An instant on the scheduler's clock.
    pub fn time_of(&self, instant: Instant) -> Time {
        Time(instant.saturating_duration_since(self.status.origin()))
    }

    /// What the engine last said about itself. Takes no part in its work.
    pub fn status(&self) -> EngineStatus {
        self.status.snapshot()
    }

    /// How long one refused client should wait before it asks again: whole seconds from 1 to 120, from the rate at which
    /// the queue drains and spread a little, each time anew.
    pub fn retry_after(&self) -> Duration {
        self.status.retry_after()
    }

    /// Ends a sequence from outside: its stream ends without a last event. Nothing happens if it is over already.
    pub fn cancel(&self, id: SequenceId) {
        // A closed queue means that the engine is gone, and the sequence with it.
        let _ = self.commands.send(Command(Order::Cancel(id)));
    }

    /// Asks the launcher for a drain, as on SIGTERM.
    pub fn request_drain(&self) {
        // A closed queue means that the process is ending.
        let _ = self.commands.send(Command(Order::RequestDrain));
    }

    /// Empties the prefix cache; what running sequences hold of it is not found any more. Before the model is known
    /// there is nothing to empty. `None`: the engine is gone.
    pub async fn flush_cache(&self) -> Option<FlushedCache> {
        let (sender, flushed) = oneshot::channel();
        self.commands
            .send(Command(Order::FlushCache(sender)))
            .ok()?;
        flushed.await.ok()
    }

    /// Tokenizer, template and defaults are built. Without this the engine never says that it is ready.
    pub fn services_ready(&self) {
        // A closed queue means that the process is ending.
        let _ = self.commands.send(Command(Order::ServicesReady));
    }
}

/// A sequence on its way to the engine. Dropping it cancels the sequence.
#[derive(Debug)]
pub struct SubmittedSequence {
    stream: SequenceStream,
    verdict: oneshot::Receiver<Result<(), SubmitFailure>>,
}

impl SubmittedSequence {
    /// The stream or the refusal, if the engine has decided; itself, if not.
    pub fn try_settle(mut self) -> Result<Result<SequenceStream, SubmitFailure>, Self> {
        let verdict = match self.verdict.try_recv() {
            Ok(verdict) => Ok(verdict),
            Err(oneshot::error::TryRecvError::Empty) => return Err(self),
            Err(oneshot::error::TryRecvError::Closed) => Err(SubmitFailure::EngineGone),
        };
        let settled = self.stream.settle(verdict);
        Ok(settled.map(|()| self.stream))
    }
}

/// The events of one sequence. Dropping it cancels the sequence, unless its end was read.
#[derive(Debug)]
pub struct SequenceStream {
    id: SequenceId,
    events: EventReader,
    commands: mpsc::UnboundedSender<Command>,
    ended: bool,
}

impl SequenceStream {
    /// Which sequence.
    pub fn id(&self) -> SequenceId {
        self.id
    }

    /// The next event; `None` after the last one, or, without a last one, when the engine is gone.
    pub async fn recv(&mut self) -> Option<SequenceEvent> {
        let read = self.events.recv().await;
        self.note(read)
    }

    /// The next event if it is there already: lets a reader take what one wake-up brought.
    pub fn try_recv(&mut self) -> Option<SequenceEvent> {
        let read = self.events.try_recv()?;
        self.note(Some(read))
    }

    /// `true` after the last event was read.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// A refused sequence is none: nothing is left to cancel.
    fn settle(
        &mut self,
        verdict: Result<Result<(), SubmitFailure>, SubmitFailure>,
    ) -> Result<(), SubmitFailure> {
        let refusal = verdict?;
        self.ended = refusal.is_err();
        refusal
    }

    fn note(&mut self, read: Option<Read>) -> Option<SequenceEvent> {
        let Some(Read { event, wants_more }) = read else {
            self.ended = true;
            return None;
        };
        if event.is_last() {
            self.ended = true;
        } else if wants_more {
            // A closed queue means that the engine is gone, which the next read tells.
            let _ = self.commands.send(Command(Order::Resume(self.id)));
        }
        Some(event)
    }
}

impl Drop for SequenceStream {
    fn drop(&mut self) {
        if !self.ended {
            // A closed queue means that the engine is gone, and the sequence with it.
            let _ = self.commands.send(Command(Order::Cancel(self.id)));
        }
    }
}
