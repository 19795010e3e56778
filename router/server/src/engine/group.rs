//! The one worker group as the engine sees it: down, starting, or up with steps in flight.

use super::config::{EngineConfig, Watchdog};
use crate::metrics::StepMethod;
use headrace_control::Progress;
use headrace_scheduler::StepPlan;
use headrace_worker_client::{
    GroupEvent, GroupRequest, PrepareStage, RunningGroup, StartError, StartedGroup, WorkerError,
    start_group,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

/// For the workers to see their streams end.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// A step that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentStep {
    pub(super) at: Instant,
    pub(super) method: StepMethod,
    pub(super) rows: usize,
    pub(super) entered: usize,
}

impl SentStep {
    fn new(plan: &StepPlan) -> Self {
        let computes_prompt = plan
            .rows
            .iter()
            .any(|row| row.num_tokens > 1 || !row.sample);
        Self {
            at: Instant::now(),
            method: if computes_prompt {
                StepMethod::Prefill
            } else {
                StepMethod::Decode
            },
            rows: plan.rows.len(),
            entered: plan.new_sequences.len(),
        }
    }
}

/// The group.
#[derive(Debug, Default)]
pub(super) enum GroupState {
    /// Nothing to talk to.
    #[default]
    Down,
    /// Its workers describe and prepare themselves, in a task of their own.
    Starting(Starting),
    /// Steps run.
    Up(Box<UpGroup>),
}

/// A start in the background; given up when dropped.
#[derive(Debug)]
pub(super) struct Starting {
    pub(super) epoch: u64,
    task: JoinHandle<Result<StartedGroup, StartError>>,
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Open streams.
#[derive(Debug)]
pub(super) struct UpGroup {
    pub(super) epoch: u64,
    streams: RunningGroup,
    sent: VecDeque<SentStep>,
    longest_step: Duration,
    has_completed_step: bool,
}

/// What the group's side has for the engine.
#[derive(Debug)]
pub(super) enum GroupInput {
    /// The start is over. The outer error: its task panicked.
    Started(Result<Result<Box<StartedGroup>, StartError>, JoinError>),
    /// From the open streams.
    Event(Result<GroupEvent, WorkerError>),
}

impl GroupState {
    /// Begins to connect, describe and prepare.
    pub(super) fn start(
        epoch: u64,
        addresses: Vec<String>,
        request: GroupRequest,
        progress: mpsc::UnboundedSender<Progress>,
    ) -> Self {
        let report = move |stage: PrepareStage| {
            let progress_message = Progress {
                stage: stage.name,
                done: stage.done,
                total: stage.total,
                unit: stage.unit,
            };
            // The engine lives longer than its starts.
            let _ = progress.send(progress_message);
        };
        let task = tokio::spawn(async move { start_group(&addresses, request, report).await });
        Self::Starting(Starting { epoch, task })
    }

    pub(super) fn up(epoch: u64, streams: RunningGroup) -> Self {
        Self::Up(Box::new(UpGroup {
            epoch,
            streams,
            sent: VecDeque::new(),
            longest_step: Duration::ZERO,
            has_completed_step: false,
        }))
    }

    /// Open streams end in good order, so that the workers do not take it for a fault.
    pub(super) async fn close(self) {
        if let Self::Up(up) = self {
            up.streams.close(CLOSE_LIMIT).await;
        }
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        match self {
            Self::Down => None,
            Self::Starting(starting) => Some(starting.epoch),
            Self::Up(up) => Some(up.epoch),
        }
    }

    /// Waits for ever while down. Cancel-safe.
    pub(super) async fn next_input(&mut self) -> GroupInput {
        match self {
            Self::Down => std::future::pending().await,
            Self::Starting(starting) => {
                let outcome = (&mut starting.task).await;
                GroupInput::Started(outcome.map(|started| started.map(Box::new)))
            }
            Self::Up(up) => GroupInput::Event(up.streams.next_event().await),
        }
    }

    /// Why the group counts as hung, if it does.
    pub(super) fn hung(&self, watchdog: &Watchdog) -> Option<String> {
        let Self::Up(up) = self else { return None };
        if let Some((rank, heard)) = up.streams.quietest_rank()
            && heard.elapsed() > watchdog.silence
        {
            return Some(format!(
                "rank {rank} has been silent for {:.1} s",
                heard.elapsed().as_secs_f64()
            ));
        }
        let oldest = up.sent.front()?;
        let limit = watchdog.step_limit(up.longest_step);
        (oldest.at.elapsed() > limit).then(|| {
            format!(
                "a step has been unanswered for {:.1} s",
                oldest.at.elapsed().as_secs_f64()
            )
        })
    }
}

impl UpGroup {
    /// Sends a step to every rank.
    pub(super) fn send(&mut self, plan: &StepPlan) -> Result<SentStep, WorkerError> {
        self.streams.send(plan)?;
        let sent = SentStep::new(plan);
        self.sent.push_back(sent);
        Ok(sent)
    }

    /// The oldest step was answered.
    pub(super) fn answered(&mut self) -> Option<SentStep> {
        let step = self.sent.pop_front()?;
        self.longest_step = self.longest_step.max(step.at.elapsed());
        // The next one may have waited in the workers' queue meanwhile: its time begins now.
        if let Some(next) = self.sent.front_mut() {
            next.at = Instant::now();
        }
        Some(step)
    }

    /// `true` the first time: the group works.
    pub(super) fn completes_its_first_step(&mut self) -> bool {
        !std::mem::replace(&mut self.has_completed_step, true)
    }
}

/// What the group's workers are asked to prepare.
pub(super) fn group_request(
    config: &EngineConfig,
    epoch: u64,
    max_position_embeddings: u32,
    required_blocks: Option<u32>,
) -> GroupRequest {
    let scheduler = config.scheduler(max_position_embeddings);
    GroupRequest {
        epoch,
        block_size: scheduler.block_size,
        max_batch_tokens: scheduler.max_batch_tokens,
        max_sequences: scheduler.max_sequences,
        max_total_tokens: scheduler.max_total_tokens,
        kv_cache_bytes: config.kv_cache_bytes,
        required_blocks,
        max_blocks: config.max_blocks,
        poison_fresh_blocks: config.poison_fresh_blocks,
    }
}
