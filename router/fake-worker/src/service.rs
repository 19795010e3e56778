//! The gRPC service of one fake rank.

use crate::rank::{Rank, Shape, Verdict};
use crate::script::{FaultKind, Script, Trigger};
use crate::server::WorkerOptions;
use headrace_worker_client::pb;
use headrace_worker_client::pb::worker_server::Worker;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// A longer time is slept up to this much before its end; the rest is spun.
const SPIN: Duration = Duration::from_millis(3);

/// Waits between an answer and the next step that are kept for [`crate::FakeWorker::take_waits`].
const MOST_WAITS: usize = 1 << 20;

type Reply = Result<pb::RunReply, Status>;

/// What the service and its owner share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Steps of this worker's life, all streams together.
    pub(crate) steps: AtomicU64,
    /// Streams that the router ended in good order.
    pub(crate) closed: AtomicU64,
    /// First misuse of the protocol.
    pub(crate) misuse: Mutex<Option<String>>,
    /// (rows of the step, time from the answer before it to its arrival).
    pub(crate) waits: Mutex<Vec<(usize, Duration)>>,
    /// The process is to end.
    pub(crate) dead: Notify,
    generation: AtomicU64,
    shape: Mutex<Option<Shape>>,
}

/// One rank.
#[derive(Clone, Debug)]
pub(crate) struct FakeService {
    pub(crate) options: WorkerOptions,
    pub(crate) script: Arc<Script>,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[tonic::async_trait]
impl Worker for FakeService {
    async fn describe(
        &self,
        _request: Request<pb::DescribeRequest>,
    ) -> Result<Response<pb::DescribeReply>, Status> {
        let group = pb::KvGroup {
            num_layers: 1,
            sliding_window: None,
            num_kv_heads: 1,
            head_dim: 2,
            bytes_per_token: 8,
        };
        Ok(Response::new(pb::DescribeReply {
            rank: self.options.rank,
            world_size: self.options.world_size,
            device: "fake".to_owned(),
            compute_dtype: "float32".to_owned(),
            vocab_size: self.options.vocab_size,
            max_position_embeddings: self.options.max_position_embeddings,
            kv_groups: vec![group],
            max_steps_in_flight: self.options.max_steps_in_flight,
            kernel_set: "fake".to_owned(),
            prompt_logprobs: true,
            attention_backend: "fake".to_owned(),
        }))
    }

    type PrepareStream = UnboundedReceiverStream<Result<pb::PrepareProgress, Status>>;

    async fn prepare(
        &self,
        request: Request<pb::PrepareRequest>,
    ) -> Result<Response<Self::PrepareStream>, Status> {
        let request = request.into_inner();
        if request.block_size == 0 || request.max_batch_tokens == 0 || request.max_sequences == 0 {
            return Err(Status::failed_precondition("a zero in Prepare"));
        }
        if request.max_total_tokens > self.options.max_position_embeddings {
            return Err(Status::failed_precondition(
                "max_total_tokens is above the context length",
            ));
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let service = self.clone();
        tokio::spawn(async move {
            for done in 0..10 {
                let stage = pb::prepare_progress::Stage {
                    name: "weights".to_owned(),
                    done: done * 100,
                    total: 1000,
                    unit: "bytes".to_owned(),
                };
                let message = Some(pb::prepare_progress::Message::Stage(stage));
                if sender.send(Ok(pb::PrepareProgress { message })).is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(service.script.prepare_millis / 10)).await;
            }
            // The caller may have left; then nobody needs the answer.
            let _ = sender.send(service.finish_prepare(&request));
        });
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }

    type RunStream = UnboundedReceiverStream<Reply>;

    async fn run(
        &self,
        request: Request<Streaming<pb::RunMessage>>,
    ) -> Result<Response<Self::RunStream>, Status> {
        let generation = self.shared.generation.fetch_add(1, Ordering::SeqCst) + 1;
        let (replies, receiver) = mpsc::unbounded_channel();
        let stream = StepStream {
            service: self.clone(),
            generation,
            replies: replies.clone(),
            frozen: Arc::new(AtomicBool::new(false)),
            last_answer: None,
        };
        tokio::spawn(async move {
            if let Err(status) = stream.serve(request.into_inner()).await {
                // The caller may have left.
                let _ = replies.send(Err(status));
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(receiver)))
    }
}

impl FakeService {
    fn finish_prepare(&self, request: &pb::PrepareRequest) -> Result<pb::PrepareProgress, Status> {
        if let Some(error) = &self.script.prepare_error {
            return Err(if error.is_final {
                Status::failed_precondition(error.message.clone())
            } else {
                Status::internal(error.message.clone())
            });
        }
        let num_blocks = request.required_blocks.unwrap_or(self.options.num_blocks);
        *lock(&self.shared.shape) = Some(Shape {
            block_size: request.block_size,
            max_batch_tokens: request.max_batch_tokens,
            max_sequences: request.max_sequences,
            max_total_tokens: request.max_total_tokens,
            num_blocks,
            vocab_size: self.options.vocab_size,
        });
        let ready = pb::prepare_progress::Ready {
            num_blocks,
            kv_cache_bytes: u64::from(num_blocks) * u64::from(request.block_size) * 8,
            weight_bytes: 1000,
            compute_threads: 1,
        };
        Ok(pb::PrepareProgress {
            message: Some(pb::prepare_progress::Message::Ready(ready)),
        })
    }
}

/// One `Run` call.
#[derive(Debug)]
struct StepStream {
    service: FakeService,
    generation: u64,
    replies: mpsc::UnboundedSender<Reply>,
    /// No heartbeat goes out any more.
    frozen: Arc<AtomicBool>,
    last_answer: Option<Instant>,
}

impl StepStream {
    async fn serve(mut self, mut inbound: Streaming<pb::RunMessage>) -> Result<(), Status> {
        let first = inbound.message().await?.and_then(|message| message.message);
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
        while let Some(message) = inbound.message().await? {
            if self.service.shared.generation.load(Ordering::SeqCst) != self.generation {
                return Err(Status::aborted("another stream was opened"));
            }
            match message.message {
                Some(pb::run_message::Message::Step(step)) => self.step(&mut rank, &step).await?,
                _ => return Err(self.misuse("a message of Run that is not a step")),
            }
        }
        self.frozen.store(true, Ordering::SeqCst);
        self.service.shared.closed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn step(&mut self, rank: &mut Rank, step: &pb::Step) -> Result<(), Status> {
        let arrived = Instant::now();
        let wait = self
            .last_answer
            .map(|answered| arrived - answered)
            .unwrap_or_default();
        let number = self.service.shared.steps.fetch_add(1, Ordering::SeqCst) + 1;
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
        let mut reply = rank
            .run(step, verdict, script.literal.as_ref())
            .map_err(|misuse| self.misuse(&misuse.to_string()))?;
        spend(
            arrived,
            script.step_time(step.rows.iter().map(|row| row.num_tokens)),
        )
        .await;
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

/// Lets time pass until `duration` after `start`: slept as far as that is safe, then spun.
async fn spend(start: Instant, duration: Duration) {
    if let Some(nap) = duration.checked_sub(start.elapsed() + SPIN) {
        tokio::time::sleep(nap).await;
    }
    while start.elapsed() < duration {
        std::hint::spin_loop();
    }
}
