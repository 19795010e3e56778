//! The gRPC service of one fake rank.

use crate::rank::Shape;
use crate::script::Script;
use crate::server::WorkerOptions;
use crate::step_stream::StepStream;
use headrace_worker_client::pb;
use headrace_worker_client::pb::worker_server::Worker;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// An item of the stream of replies.
pub(crate) type Reply = Result<pb::RunReply, Status>;

/// What the service and its owner share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Steps of this worker's life, all streams together.
    pub(crate) steps: AtomicU64,
    /// Sequences that entered slots.
    pub(crate) entered: AtomicU64,
    /// Streams that the router ended in good order.
    pub(crate) closed: AtomicU64,
    /// First misuse of the protocol.
    pub(crate) misuse: Mutex<Option<String>>,
    /// Masks that came, on all streams.
    pub(crate) masks: AtomicU64,
    /// Those of the last stream that came as the name of one sent before.
    pub(crate) same_masks: AtomicU64,
    /// (rows of the step, time from the answer before it to its arrival).
    pub(crate) waits: Mutex<Vec<(usize, Duration)>>,
    /// The process is to end.
    pub(crate) dead: Notify,
    pub(crate) generation: AtomicU64,
    pub(crate) shape: Mutex<Option<Shape>>,
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
        let stream = StepStream::new(
            self.clone(),
            generation,
            replies.clone(),
            request.into_inner(),
        );
        tokio::spawn(async move {
            if let Err(status) = stream.serve().await {
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
