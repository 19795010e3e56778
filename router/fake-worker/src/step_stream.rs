//! One `Run` call: steps and masks in, answers and heartbeats out.

use crate::masks::{MaskRoom, Placed};
use crate::rank::{Rank, Shape, Verdict};
use crate::script::{FaultKind, Script, Trigger};
use crate::service::{FakeService, Reply, lock};
use headrace_worker_client::pb;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

/// A longer time is slept up to this much before its end; the rest is spun.
const SPIN: Duration = Duration::from_millis(3);

/// Waits between an answer and the next step that are kept for [`crate::FakeWorker::take_waits`].
const MOST_WAITS: usize = 1 << 20;

/// One `Run` call.
#[derive(Debug)]
pub(crate) struct StepStream {
    service: FakeService,
    generation: u64,
    replies: mpsc::UnboundedSender<Reply>,
    /// No heartbeat goes out any more.
    frozen: Arc<AtomicBool>,
    last_answer: Option<Instant>,
    inbound: Streaming<pb::RunMessage>,
    masks: MaskRoom,
    /// Steps that came while one before them waited for its masks.
    queued: VecDeque<pb::Step>,
    /// The router has ended its side.
    has_ended: bool,
    /// What choosing the last step's ids took: part of a step's time, so it spins so much less.
    choosing: Duration,
}

impl StepStream {
    /// The `generation`th stream of its worker.
    pub(crate) fn new(
        service: FakeService,
        generation: u64,
        replies: mpsc::UnboundedSender<Reply>,
        inbound: Streaming<pb::RunMessage>,
    ) -> Self {
        Self {
            service,
            generation,
            replies,
            frozen: Arc::new(AtomicBool::new(false)),
            last_answer: None,
            inbound,
            masks: MaskRoom::default(),
            queued: VecDeque::new(),
            has_ended: false,
            choosing: Duration::ZERO,
        }
    }

    /// Until the router ends it.
    pub(crate) async fn serve(mut self) -> Result<(), Status> {
        let first = self
            .inbound
            .message()
            .await?
            .and_then(|message| message.message);
        let Some(pb::run_message::Message::Open(open)) = first else {
            return Err(self.misuse("the first message of Run is not Open"));
        };
        let Some(shape) = *lock(&self.service.shared.shape) else {
            return Err(self.misuse("Run before Prepare"));
        };
        if open.num_blocks == 0 || open.num_blocks > shape.num_blocks {
            return Err(self.misuse("Open asks for more blocks than there are"));
        }
        let mut rank = Rank::open(Shape {
            num_blocks: open.num_blocks,
            ..shape
        });
        self.answer(pb::run_reply::Message::Opened(pb::Opened {
            epoch: open.epoch,
        }));
        self.start_heartbeat();
        loop {
            if let Some(step) = self.queued.pop_front() {
                self.step(&mut rank, &step).await?;
            } else if !self.read_message().await? {
                break;
            }
        }
        self.frozen.store(true, Ordering::SeqCst);
        self.service.shared.closed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Sorts one message; `false`: the router has ended the stream.
    async fn read_message(&mut self) -> Result<bool, Status> {
        if self.has_ended {
            return Ok(false);
        }
        let Some(message) = self.inbound.message().await? else {
            self.has_ended = true;
            return Ok(false);
        };
        if self.service.shared.generation.load(Ordering::SeqCst) != self.generation {
            return Err(Status::aborted("another stream was opened"));
        }
        match message.message {
            Some(pb::run_message::Message::Step(step)) => self.queued.push_back(step),
            Some(pb::run_message::Message::Mask(mask)) => {
                self.masks.put(mask);
                let shared = &self.service.shared;
                shared.masks.fetch_add(1, Ordering::SeqCst);
                shared.same_masks.store(self.masks.same(), Ordering::SeqCst);
            }
            Some(pb::run_message::Message::MaskCalledOff(off)) => self.masks.call_off(off),
            Some(pb::run_message::Message::Open(_)) | None => {
                return Err(self.misuse("a message of Run that is no step and no mask"));
            }
        }
        Ok(true)
    }

    /// The masks of a step's rows, waited for as long as the stream lives.
    async fn masks_of(
        &mut self,
        rank: &Rank,
        step: &pb::Step,
    ) -> Result<HashMap<u32, Placed>, Status> {
        let slots = rank.masked_slots(step);
        if slots.is_empty() {
            return Ok(HashMap::new());
        }
        loop {
            if let Some(masks) = self.masks.take(step.step_id, &slots) {
                return Ok(masks);
            }
            if !self.read_message().await? {
                return Err(Status::cancelled("the stream ended before a mask came"));
            }
        }
    }

    /// Lets `duration` pass since `start` on another thread, as a real worker's compute thread does, and reads on
    /// meanwhile, as its reader does: the answer before leaves, and masks and the next step are there in time.
    async fn spend(&mut self, start: Instant, duration: Duration) -> Result<(), Status> {
        if duration.is_zero() {
            return Ok(());
        }
        let nap = duration.saturating_sub(start.elapsed() + SPIN);
        let spun = async move {
            tokio::time::sleep(nap).await;
            let spin = move || {
                while start.elapsed() < duration {
                    std::hint::spin_loop();
                }
            };
            // Its failure is a panic, which a loop does not have.
            let _ = tokio::task::spawn_blocking(spin).await;
        };
        let mut spun = std::pin::pin!(spun);
        loop {
            tokio::select! {
                biased;
                () = &mut spun => return Ok(()),
                more = self.read_message(), if !self.has_ended => {
                    more?;
                }
            }
        }
    }

    async fn step(&mut self, rank: &mut Rank, step: &pb::Step) -> Result<(), Status> {
        let arrived = Instant::now();
        let wait = self
            .last_answer
            .map(|answered| arrived - answered)
            .unwrap_or_default();
        let number = self.service.shared.steps.fetch_add(1, Ordering::SeqCst) + 1;
        let entered = step.new_sequences.len() as u64;
        self.service
            .shared
            .entered
            .fetch_add(entered, Ordering::SeqCst);
        self.keep_wait(step.rows.len(), wait);
        let script = Arc::clone(&self.service.script);
        let fault = find_fault(&script, rank, step, number);
        match fault {
            Some((FaultKind::Die, _)) => {
                self.service.shared.dead.notify_one();
                return std::future::pending().await;
            }
            Some((FaultKind::Hang, _)) => return std::future::pending().await,
            Some((FaultKind::Freeze, _)) => {
                self.frozen.store(true, Ordering::SeqCst);
                return std::future::pending().await;
            }
            Some((FaultKind::BreakStream, _)) => return Err(Status::unavailable("scripted")),
            Some((FaultKind::SlowMillis(millis), _)) => {
                tokio::time::sleep(Duration::from_millis(*millis)).await;
            }
            _ => {}
        }
        let tokens: u32 = step.rows.iter().map(|row| row.num_tokens).sum();
        let too_big = script
            .out_of_memory_above_tokens
            .is_some_and(|most| tokens > most);
        let verdict = match fault {
            Some((FaultKind::FailStep, _)) => Verdict::Fail,
            Some((FaultKind::OutOfMemory, _)) => Verdict::OutOfMemory,
            _ if too_big => Verdict::OutOfMemory,
            _ => Verdict::Compute,
        };
        let begun = rank
            .begin(step, verdict)
            .map_err(|misuse| self.misuse(&misuse.to_string()))?;
        let takes = script.step_time(step.rows.iter().map(|row| row.num_tokens));
        self.spend(arrived, takes.saturating_sub(self.choosing))
            .await?;
        let mut reply = if let Some(reply) = begun {
            reply
        } else {
            let masks = self.masks_of(rank, step).await?;
            let chooses = Instant::now();
            let reply = rank
                .finish(step, script.literal.as_ref(), &masks)
                .map_err(|misuse| self.misuse(&misuse.to_string()))?;
            self.choosing = chooses.elapsed();
            reply
        };
        self.masks.finish_step(step.step_id);
        if self.service.options.rank != 0 {
            reply.rows.clear();
        }
        let spent = u64::try_from(arrived.elapsed().as_nanos()).unwrap_or(u64::MAX);
        reply.timings = Some(pb::Timings {
            wait_ns: u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX),
            forward_ns: spent,
            total_ns: spent,
            ..pb::Timings::default()
        });
        let twice = self.spoil(fault, rank, &mut reply);
        if twice {
            self.answer(pb::run_reply::Message::Step(reply.clone()));
        }
        self.answer(pb::run_reply::Message::Step(reply));
        self.last_answer = Some(Instant::now());
        Ok(())
    }

    /// Puts the fault's mistake into the answer; `true`: it is to be sent twice.
    fn spoil(
        &self,
        fault: Option<(&FaultKind, usize)>,
        rank: &mut Rank,
        reply: &mut pb::StepReply,
    ) -> bool {
        let Some((kind, token_row)) = fault else {
            return false;
        };
        let chosen = if token_row == usize::MAX {
            None
        } else {
            Some(token_row)
        };
        let mut fail_row = |index: usize, status: pb::row_result::Status| {
            if let Some(row) = reply.rows.get_mut(chosen.unwrap_or(index)) {
                rank.mark_failed(row.slot);
                *row = pb::RowResult {
                    slot: row.slot,
                    status: status.into(),
                    error: "scripted".to_owned(),
                    ..pb::RowResult::default()
                };
            }
        };
        match kind {
            FaultKind::RowError(index) => fail_row(*index, pb::row_result::Status::Failed),
            FaultKind::RowNotFinite(index) => fail_row(*index, pb::row_result::Status::NonFinite),
            FaultKind::WrongStepId => reply.step_id += 1,
            FaultKind::AnswerTwice => return true,
            FaultKind::IdOutOfVocabulary => {
                let token = reply.rows.iter_mut().flat_map(|row| &mut row.tokens).next();
                if let Some(token) = token {
                    token.id = self.service.options.vocab_size;
                }
            }
            FaultKind::RowMissing => {
                reply.rows.pop();
            }
            _ => {}
        }
        false
    }

    fn answer(&self, message: pb::run_reply::Message) {
        // The router may have left: the stream's own end tells.
        let _ = self.replies.send(Ok(pb::RunReply {
            message: Some(message),
        }));
    }

    fn keep_wait(&self, rows: usize, wait: Duration) {
        if self.last_answer.is_some() {
            let mut waits = lock(&self.service.shared.waits);
            if waits.len() < MOST_WAITS {
                waits.push((rows, wait));
            }
        }
    }

    fn misuse(&self, what: &str) -> Status {
        tracing::error!(rank = self.service.options.rank, "{what}");
        lock(&self.service.shared.misuse).get_or_insert_with(|| what.to_owned());
        Status::invalid_argument(what)
    }

    /// Goes out while a step runs too: a long step is slept through for the most part.
    fn start_heartbeat(&self) {
        let (replies, frozen) = (self.replies.clone(), Arc::clone(&self.frozen));
        let shared = Arc::clone(&self.service.shared);
        let period = self.service.script.heartbeat_period();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(period).await;
                if frozen.load(Ordering::SeqCst) {
                    return;
                }
                let beat = pb::Heartbeat {
                    steps_completed: shared.steps.load(Ordering::SeqCst),
                };
                let message = Some(pb::run_reply::Message::Heartbeat(beat));
                if replies.send(Ok(pb::RunReply { message })).is_err() {
                    return;
                }
            }
        });
    }
}

/// The fault for this step, and the row that triggered it (`usize::MAX`: the step did).
fn find_fault<'a>(
    script: &'a Script,
    rank: &Rank,
    step: &pb::Step,
    number: u64,
) -> Option<(&'a FaultKind, usize)> {
    script.faults.iter().find_map(|fault| match &fault.when {
        Trigger::Step(at) => (*at == number).then_some((&fault.what, usize::MAX)),
        Trigger::TokenId(id) => step
            .rows
            .iter()
            .position(|row| holds(rank, step, row.slot, *id))
            .map(|row| (&fault.what, row)),
    })
}

/// Whether the slot's sequence, which may enter with this very step, holds the id.
fn holds(rank: &Rank, step: &pb::Step, slot: u32, id: u32) -> bool {
    match step
        .new_sequences
        .iter()
        .find(|sequence| sequence.slot == slot)
    {
        Some(sequence) => sequence.token_ids.contains(&id),
        None => rank.slot_holds(slot, id),
    }
}
