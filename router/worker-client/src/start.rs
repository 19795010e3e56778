//! From addresses to a group that runs: connect, `Describe`, `Prepare`, `Run` with `Open`.

use crate::connection::{chain, connect};
use crate::description::GroupDescription;
use crate::error::{StartError, WorkerError};
use crate::group::{Rank, RunningGroup};
use crate::pb;
use crate::pb::worker_client::WorkerClient;
use crate::stages::RankStages;
use futures::future::try_join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// `Describe` is cheap; a worker that does not answer it is not one.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(30);

/// Opening the stream fills no memory unless blocks are poisoned.
const OPEN_TIMEOUT: Duration = Duration::from_mins(2);

/// When one rank fails, another may name the real cause a moment later.
const FINAL_CAUSE_GRACE: Duration = Duration::from_secs(2);

/// What the group must be able to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRequest {
    /// The launcher's.
    pub epoch: u64,
    /// Tokens a KV block.
    pub block_size: u32,
    /// Most tokens computed in one step.
    pub max_batch_tokens: u32,
    /// Slots.
    pub max_sequences: u32,
    /// Longest sequence.
    pub max_total_tokens: u32,
    /// On each rank; absent: measured.
    pub kv_cache_bytes: Option<u64>,
    /// After a restart: exactly this many.
    pub required_blocks: Option<u32>,
    /// Use no more than this many of what the ranks have.
    pub max_blocks: Option<u32>,
    /// Tests: blocks are filled with NaN.
    pub poison_fresh_blocks: bool,
}

/// How far `Prepare` is, all ranks that are in the same stage together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrepareStage {
    /// `weights`, `largest step`, `kv cache`, `warm-up`.
    pub name: String,
    /// How far.
    pub done: u64,
    /// Of how much; 0: not known.
    pub total: u64,
    /// `bytes`, `steps`.
    pub unit: String,
}

/// A group with open streams, and what it is.
#[derive(Debug)]
pub struct StartedGroup {
    /// Its streams.
    pub group: RunningGroup,
    /// What its ranks said.
    pub description: GroupDescription,
    /// KV blocks to use: the smallest rank's, or `max_blocks` when that is less.
    pub num_blocks: u32,
    /// The smallest rank's: what to require after a restart.
    pub prepared_blocks: u32,
}

/// Takes a group's ranks to an open stream each. `addresses` are in rank order. Dropping the future gives up.
pub async fn start_group(
    addresses: &[String],
    request: GroupRequest,
    progress: impl Fn(PrepareStage),
) -> Result<StartedGroup, StartError> {
    let clients = try_join_all(
        addresses
            .iter()
            .enumerate()
            .map(|(rank, address)| connect(rank, address)),
    )
    .await?;
    let replies = try_join_all(
        clients
            .iter()
            .enumerate()
            .map(|(rank, client)| describe(rank, client.clone())),
    )
    .await?;
    let description = GroupDescription::from_replies(&replies)?;
    let prepared_blocks = prepare_all(&clients, request, &progress).await?;
    let num_blocks = request
        .max_blocks
        .map_or(prepared_blocks, |most| most.min(prepared_blocks));
    let open = pb::Open {
        epoch: request.epoch,
        num_blocks,
    };
    let ranks = try_join_all(
        clients
            .into_iter()
            .enumerate()
            .map(|(rank, client)| open_rank(rank, client, open)),
    )
    .await?;
    let group = RunningGroup::new(ranks, description.vocab_size);
    Ok(StartedGroup {
        group,
        description,
        num_blocks,
        prepared_blocks,
    })
}

async fn describe(
    rank: usize,
    mut client: WorkerClient<Channel>,
) -> Result<pb::DescribeReply, StartError> {
    let call = client.describe(pb::DescribeRequest {});
    match tokio::time::timeout(DESCRIBE_TIMEOUT, call).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(refused(rank, &status)),
        Err(_) => Err(StartError::Refused {
            rank,
            message: format!("no answer to Describe in {} s", DESCRIBE_TIMEOUT.as_secs()),
            is_final: false,
        }),
    }
}

/// All ranks at once; the smallest block count.
async fn prepare_all(
    clients: &[WorkerClient<Channel>],
    request: GroupRequest,
    progress: &impl Fn(PrepareStage),
) -> Result<u32, StartError> {
    let stages = Mutex::new(RankStages::new(clients.len()));
    let report = |rank: usize, stage: pb::prepare_progress::Stage| {
        if let Ok(mut stages) = stages.lock()
            && let Some(sum) = stages.take(rank, stage)
        {
            progress(sum);
        }
    };
    let mut calls: FuturesUnordered<_> = clients
        .iter()
        .enumerate()
        .map(|(rank, client)| prepare(rank, client.clone(), request, &report))
        .collect();
    let mut smallest = u32::MAX;
    while let Some(outcome) = calls.next().await {
        match outcome {
            Ok(blocks) => smallest = smallest.min(blocks),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => {
                let search = async {
                    while let Some(outcome) = calls.next().await {
                        if let Err(better) = outcome
                            && better.is_final()
                        {
                            return Some(better);
                        }
                    }
                    None
                };
                let better = tokio::time::timeout(FINAL_CAUSE_GRACE, search).await;
                return Err(better.ok().flatten().unwrap_or(error));
            }
        }
    }
    Ok(smallest)
}

async fn prepare(
    rank: usize,
    mut client: WorkerClient<Channel>,
    request: GroupRequest,
    report: &impl Fn(usize, pb::prepare_progress::Stage),
) -> Result<u32, StartError> {
    let message = pb::PrepareRequest {
        block_size: request.block_size,
        max_batch_tokens: request.max_batch_tokens,
        max_sequences: request.max_sequences,
        max_total_tokens: request.max_total_tokens,
        kv_cache_bytes: request.kv_cache_bytes,
        required_blocks: request.required_blocks,
        poison_fresh_blocks: request.poison_fresh_blocks.then_some(true),
    };
    let reply = client
        .prepare(message)
        .await
        .map_err(|status| refused(rank, &status))?;
    let mut stream = reply.into_inner();
    let violation = |what: &str| WorkerError::Protocol {
        rank,
        what: what.to_owned(),
    };
    let mut ready = None;
    while let Some(message) = stream
        .message()
        .await
        .map_err(|status| refused(rank, &status))?
    {
        if ready.is_some() {
            return Err(violation("a message after Ready in Prepare").into());
        }
        match message.message {
            Some(pb::prepare_progress::Message::Stage(stage)) => report(rank, stage),
            Some(pb::prepare_progress::Message::Ready(message)) => ready = Some(message),
            None => return Err(violation("an empty message in Prepare").into()),
        }
    }
    let Some(ready) = ready else {
        return Err(violation("Prepare ended without Ready").into());
    };
    if ready.num_blocks == 0 {
        return Err(violation("Prepare gave no block").into());
    }
    if let Some(required) = request.required_blocks
        && ready.num_blocks != required
    {
        let what = format!("{} KV blocks, {required} were required", ready.num_blocks);
        return Err(StartError::Refused {
            rank,
            message: what,
            is_final: false,
        });
    }
    Ok(ready.num_blocks)
}

async fn open_rank(
    rank: usize,
    mut client: WorkerClient<Channel>,
    open: pb::Open,
) -> Result<Rank, StartError> {
    let (messages, receiver) = mpsc::unbounded_channel();
    let stream_error = |cause: String| WorkerError::Stream { rank, cause };
    // Queued before the call: a server may send its headers only with its first message.
    messages
        .send(pb::RunMessage {
            message: Some(pb::run_message::Message::Open(open)),
        })
        .map_err(|_| stream_error("closed before it opened".to_owned()))?;
    let opening = async {
        let reply = client
            .run(UnboundedReceiverStream::new(receiver))
            .await
            .map_err(|status| stream_error(words(&status)))?;
        let mut replies = reply.into_inner();
        loop {
            let message = replies
                .message()
                .await
                .map_err(|status| stream_error(words(&status)))?;
            match message.and_then(|reply| reply.message) {
                Some(pb::run_reply::Message::Opened(opened)) if opened.epoch == open.epoch => {
                    return Ok(replies);
                }
                Some(pb::run_reply::Message::Opened(opened)) => {
                    let what = format!("opened epoch {}, not {}", opened.epoch, open.epoch);
                    return Err(WorkerError::Protocol { rank, what });
                }
                Some(pb::run_reply::Message::Heartbeat(_)) => {}
                Some(pb::run_reply::Message::Step(step)) => {
                    let what = format!("answered step {} before Opened", step.step_id);
                    return Err(WorkerError::Protocol { rank, what });
                }
                None => return Err(stream_error("it ended before Opened".to_owned())),
            }
        }
    };
    let replies = tokio::time::timeout(OPEN_TIMEOUT, opening)
        .await
        .map_err(|_| stream_error(format!("not opened in {} s", OPEN_TIMEOUT.as_secs())))??;
    Ok(Rank::new(messages, replies))
}

/// A status as a refusal. Only `FAILED_PRECONDITION` says that trying again is of no use.
fn refused(rank: usize, status: &Status) -> StartError {
    StartError::Refused {
        rank,
        message: words(status),
        is_final: status.code() == Code::FailedPrecondition,
    }
}

/// The worker's own words, or the transport's when it sent none.
pub(crate) fn words(status: &Status) -> String {
    if status.message().is_empty() {
        return format!("{:?}", status.code());
    }
    match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), chain(source)),
        None => status.message().to_owned(),
    }
}
