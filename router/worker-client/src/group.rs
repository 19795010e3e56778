//! The open streams of a group's ranks: one step out to all, one answer back from all.

use crate::encode::encode_step;
use crate::error::WorkerError;
use crate::masks::{SentMasks, TokenMask};
use crate::pb;
use crate::reply::{ExpectedStep, OutcomeKind, SlotReports, decode_reply, outcome_kind};
use crate::start::words;
use headrace_scheduler::{Slot, StepOutcome, StepPlan, StepResult};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::Streaming;

/// What a group tells.
#[derive(Debug)]
pub enum GroupEvent {
    /// Every rank has acknowledged the oldest step in flight.
    Step(Box<StepReport>),
    /// A rank's side thread lives.
    Heartbeat {
        /// Which rank.
        rank: usize,
        /// Steps it has completed since the stream opened.
        steps_completed: u64,
    },
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepReport {
    /// For the scheduler.
    pub result: StepResult,
    /// Rank 0's.
    pub timings: StepTimings,
}

/// Where a worker's time went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTimings {
    /// Idle before the step: it had not come yet.
    pub wait: Duration,
    /// Slots, tables, copies.
    pub apply: Duration,
    /// The model.
    pub forward: Duration,
    /// Sampling, `mask_wait` included.
    pub sample: Duration,
    /// From the step's start to its outcome.
    pub total: Duration,
    /// The compute thread, from the outcome of the step before to its wait for this one.
    pub hand_over: Duration,
    /// The message into columns; beside the compute thread.
    pub decode: Duration,
    /// The outcome of an earlier step into its reply; beside the compute thread.
    pub encode: Duration,
    /// Idle while sampling: a mask had not come.
    pub mask_wait: Duration,
}

impl From<pb::Timings> for StepTimings {
    fn from(timings: pb::Timings) -> Self {
        Self {
            wait: Duration::from_nanos(timings.wait_ns),
            apply: Duration::from_nanos(timings.apply_ns),
            forward: Duration::from_nanos(timings.forward_ns),
            sample: Duration::from_nanos(timings.sample_ns),
            total: Duration::from_nanos(timings.total_ns),
            hand_over: Duration::from_nanos(timings.hand_over_ns),
            decode: Duration::from_nanos(timings.decode_ns),
            encode: Duration::from_nanos(timings.encode_ns),
            mask_wait: Duration::from_nanos(timings.mask_wait_ns),
        }
    }
}

/// One rank's stream.
#[derive(Debug)]
pub(crate) struct Rank {
    /// Unbounded, but never longer than the steps in flight and their masks, whose number the caller bounds.
    messages: mpsc::UnboundedSender<pb::RunMessage>,
    replies: Streaming<pb::RunReply>,
    /// Steps of `pending`, from the front, that this rank has answered.
    answered: usize,
    /// Its last message of any kind.
    heard: Instant,
}

impl Rank {
    pub(crate) fn new(
        messages: mpsc::UnboundedSender<pb::RunMessage>,
        replies: Streaming<pb::RunReply>,
    ) -> Self {
        Self {
            messages,
            replies,
            answered: 0,
            heard: Instant::now(),
        }
    }
}

/// A step that some rank has not answered.
#[derive(Debug)]
struct PendingStep {
    expected: ExpectedStep,
    /// What the ranks that answered agree on.
    kind: Option<OutcomeKind>,
    /// Rank 0's answer.
    result: Option<StepResult>,
    timings: StepTimings,
    /// First words of another rank, for a failure that rank 0 has no words for.
    other_words: String,
}

/// All ranks of a group, in lockstep. After an error it is of no more use.
#[derive(Debug)]
pub struct RunningGroup {
    ranks: Vec<Rank>,
    pending: VecDeque<PendingStep>,
    slots: SlotReports,
    masks: SentMasks,
    vocab_size: u32,
}

impl RunningGroup {
    pub(crate) fn new(ranks: Vec<Rank>, vocab_size: u32) -> Self {
        Self {
            ranks,
            pending: VecDeque::new(),
            slots: SlotReports::default(),
            masks: SentMasks::default(),
            vocab_size,
        }
    }

    /// Gives every rank the same step. Never waits.
    pub fn send(&mut self, plan: &StepPlan) -> Result<(), WorkerError> {
        let expected = self.slots.expect(plan);
        self.to_every_rank(pb::run_message::Message::Step(encode_step(plan)))?;
        self.pending.push_back(PendingStep {
            expected,
            kind: None,
            result: None,
            timings: StepTimings::default(),
            other_words: String::new(),
        });
        Ok(())
    }

    /// Gives every rank the mask of a row that a step sent before announced. `position`: index of the output id that it
    /// is for. Never waits.
    pub fn send_mask(
        &mut self,
        step_id: u64,
        slot: Slot,
        position: u32,
        mask: &TokenMask,
    ) -> Result<(), WorkerError> {
        let mask = self.masks.message(step_id, slot, position, mask);
        self.to_every_rank(pb::run_message::Message::Mask(mask))
    }

    /// Tells every rank that a row that announced a mask samples nothing. Never waits.
    pub fn call_off(&mut self, step_id: u64, slot: Slot) -> Result<(), WorkerError> {
        let off = pb::MaskCalledOff { step_id, slot };
        self.to_every_rank(pb::run_message::Message::MaskCalledOff(off))
    }

    fn to_every_rank(&self, message: pb::run_message::Message) -> Result<(), WorkerError> {
        let mut message = Some(pb::RunMessage {
            message: Some(message),
        });
        let last = self.ranks.len().saturating_sub(1);
        for (rank, stream) in self.ranks.iter().enumerate() {
            let copy = if rank == last {
                message.take()
            } else {
                message.clone()
            };
            let sent = copy.is_some_and(|copy| stream.messages.send(copy).is_ok());
            if !sent {
                return Err(WorkerError::Stream {
                    rank,
                    cause: "it is closed".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// Ends every stream in good order: the ranks see it end, not break. Waits for them for `limit` at most.
    pub async fn close(self, limit: Duration) {
        let mut replies = Vec::new();
        for rank in self.ranks {
            // The stream of steps ends with its sender.
            drop(rank.messages);
            replies.push(rank.replies);
        }
        let all_ended = async {
            for stream in &mut replies {
                while let Ok(Some(_)) = stream.message().await {}
            }
        };
        // One that does not end its side sees the connection break, as every rank would without this.
        let _ = tokio::time::timeout(limit, all_ended).await;
    }

    /// Steps sent and not answered by every rank.
    pub fn steps_in_flight(&self) -> usize {
        self.pending.len()
    }

    /// The rank that has been silent longest, and since when. Heartbeats count.
    pub fn quietest_rank(&self) -> Option<(usize, Instant)> {
        self.ranks
            .iter()
            .map(|rank| rank.heard)
            .enumerate()
            .min_by_key(|(_, heard)| *heard)
    }

    /// The next answer or heartbeat. Cancel-safe: dropping the future loses nothing.
    pub async fn next_event(&mut self) -> Result<GroupEvent, WorkerError> {
        std::future::poll_fn(|context| {
            for rank in 0..self.ranks.len() {
                while let Poll::Ready(message) = self.poll_rank(rank, context) {
                    let event = message.and_then(|message| {
                        self.take(rank, message)
                            .map_err(|what| WorkerError::Protocol { rank, what })
                    });
                    match event {
                        Ok(None) => {}
                        Ok(Some(event)) => return Poll::Ready(Ok(event)),
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            }
            Poll::Pending
        })
        .await
    }

    /// One message of one rank.
    fn poll_rank(
        &mut self,
        rank: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<pb::RunReply, WorkerError>> {
        let Some(stream) = self.ranks.get_mut(rank) else {
            return Poll::Pending;
        };
        let cause = match Pin::new(&mut stream.replies).poll_next(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(message))) => {
                stream.heard = Instant::now();
                return Poll::Ready(Ok(message));
            }
            Poll::Ready(Some(Err(status))) => words(&status),
            Poll::Ready(None) => "the worker ended it".to_owned(),
        };
        Poll::Ready(Err(WorkerError::Stream { rank, cause }))
    }

    /// Takes in one message of one rank; an error says what is wrong with it.
    fn take(&mut self, rank: usize, message: pb::RunReply) -> Result<Option<GroupEvent>, String> {
        match message.message {
            Some(pb::run_reply::Message::Step(reply)) => self.take_step(rank, reply),
            Some(pb::run_reply::Message::Heartbeat(beat)) => Ok(Some(GroupEvent::Heartbeat {
                rank,
                steps_completed: beat.steps_completed,
            })),
            Some(pb::run_reply::Message::Opened(_)) => Err("Opened a second time".to_owned()),
            None => Err("an empty message".to_owned()),
        }
    }

    fn take_step(
        &mut self,
        rank: usize,
        mut reply: pb::StepReply,
    ) -> Result<Option<GroupEvent>, String> {
        let stream = self.ranks.get_mut(rank).ok_or("no such rank")?;
        let Some(step) = self.pending.get_mut(stream.answered) else {
            return Err(format!(
                "answered step {}, which it does not owe",
                reply.step_id
            ));
        };
        if reply.step_id != step.expected.step_id {
            return Err(format!(
                "answered step {}, owes step {}",
                reply.step_id, step.expected.step_id
            ));
        }
        stream.answered += 1;
        let kind = outcome_kind(&reply)?;
        if *step.kind.get_or_insert(kind) != kind {
            return Err(format!(
                "step {} ended {kind:?} here and otherwise on another rank: {}",
                reply.step_id, reply.error
            ));
        }
        if rank == 0 {
            step.timings = reply
                .timings
                .take()
                .map(StepTimings::from)
                .unwrap_or_default();
            step.result = Some(decode_reply(&step.expected, reply, self.vocab_size)?);
        } else if !reply.rows.is_empty() {
            return Err(format!(
                "step {}: rows from a rank that is not the first",
                reply.step_id
            ));
        } else if step.other_words.is_empty() {
            step.other_words = reply.error;
        }
        Ok(self.pop_answered())
    }

    /// The oldest step, once every rank has answered it.
    fn pop_answered(&mut self) -> Option<GroupEvent> {
        if self.ranks.iter().any(|rank| rank.answered == 0) {
            return None;
        }
        let step = self.pending.pop_front()?;
        for rank in &mut self.ranks {
            rank.answered -= 1;
        }
        let mut result = step.result?;
        if let StepOutcome::Failed(words) | StepOutcome::OutOfMemory(words) = &mut result.outcome
            && words.is_empty()
        {
            *words = step.other_words;
        }
        Some(GroupEvent::Step(Box::new(StepReport {
            result,
            timings: step.timings,
        })))
    }
}
