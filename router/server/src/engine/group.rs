//! The worker group's connections: none, a start in the background, or open streams.

use super::core::{GroupFacts, Input, StartFailure};
use headrace_control::Progress;
use headrace_grammar::Mask;
use headrace_scheduler::{Slot, StepPlan};
use headrace_worker_client::{
    GroupEvent, GroupRequest, PrepareStage, RunningGroup, StartError, StartedGroup, TokenMask,
    WorkerError, start_group,
};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

/// For the workers to see their streams end.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// The connections.
#[derive(Debug, Default)]
pub(super) enum GroupLink {
    /// Nothing to talk to.
    #[default]
    Down,
    /// Its workers describe and prepare themselves, in a task of their own.
    Starting(Starting),
    /// Open streams.
    Up {
        /// Which start.
        epoch: u64,
        /// One a rank.
        streams: Box<RunningGroup>,
    },
}

/// A start in the background; given up when dropped.
#[derive(Debug)]
pub(super) struct Starting {
    epoch: u64,
    task: JoinHandle<Result<StartedGroup, StartError>>,
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GroupLink {
    /// Begins to connect, describe and prepare.
    pub(super) fn start(
        epoch: u64,
        addresses: Vec<String>,
        request: GroupRequest,
        progress: mpsc::UnboundedSender<(u64, Progress)>,
    ) -> Self {
        let report = move |stage: PrepareStage| {
            let message = Progress {
                stage: stage.name,
                done: stage.done,
                total: stage.total,
                unit: stage.unit,
            };
            // The engine lives longer than its starts.
            let _ = progress.send((epoch, message));
        };
        let task = tokio::spawn(async move { start_group(&addresses, request, report).await });
        Self::Starting(Starting { epoch, task })
    }

    /// Open streams end in good order, so that the workers do not take it for a fault.
    pub(super) async fn close(self) {
        if let Self::Up { streams, .. } = self {
            streams.close(CLOSE_LIMIT).await;
        }
    }

    /// The next thing that the core has to know; `None` for a sign of life. Waits for ever while down. Cancel-safe.
    pub(super) async fn next_input(&mut self) -> Option<Input> {
        match self {
            Self::Down => std::future::pending().await,
            Self::Starting(starting) => {
                let epoch = starting.epoch;
                let outcome = (&mut starting.task).await;
                Some(self.started(epoch, outcome))
            }
            Self::Up { epoch, streams } => {
                let epoch = *epoch;
                match streams.next_event().await {
                    Ok(GroupEvent::Step(report)) => Some(Input::Answer { epoch, report }),
                    Ok(GroupEvent::Heartbeat { .. }) => None,
                    Err(error) => Some(Input::Broken {
                        epoch,
                        cause: error.to_string(),
                    }),
                }
            }
        }
    }

    /// Keeps the streams of a start that succeeded. The outer error: its task panicked.
    fn started(
        &mut self,
        epoch: u64,
        outcome: Result<Result<StartedGroup, StartError>, JoinError>,
    ) -> Input {
        let outcome = match outcome {
            Ok(Ok(started)) => {
                *self = Self::Up {
                    epoch,
                    streams: Box::new(started.group),
                };
                Ok(GroupFacts {
                    description: started.description,
                    num_blocks: started.num_blocks,
                    prepared_blocks: started.prepared_blocks,
                })
            }
            Ok(Err(error)) => {
                *self = Self::Down;
                Err(StartFailure {
                    cause: error.to_string(),
                    is_final: error.is_final(),
                })
            }
            Err(panic) => {
                *self = Self::Down;
                Err(StartFailure {
                    cause: format!("the start of the group panicked: {panic}"),
                    is_final: false,
                })
            }
        };
        Input::Started { epoch, outcome }
    }

    /// Gives every rank the step. The error is for the core.
    pub(super) fn send(&mut self, plan: &StepPlan) -> Result<(), (u64, WorkerError)> {
        match self {
            Self::Up { epoch, streams } => streams.send(plan).map_err(|error| (*epoch, error)),
            Self::Down | Self::Starting(_) => Ok(()),
        }
    }

    /// Gives every rank a mask. The error is for the core.
    pub(super) fn send_mask(
        &mut self,
        step_id: u64,
        slot: Slot,
        position: u32,
        mask: Mask,
    ) -> Result<(), (u64, WorkerError)> {
        let mask = match mask {
            Mask::Bitset(words) => TokenMask::Bitset(words),
            Mask::Allow(ids) => TokenMask::Allow(ids),
            Mask::Deny(ids) => TokenMask::Deny(ids),
        };
        match self {
            Self::Up { epoch, streams } => streams
                .send_mask(step_id, slot, position, &mask)
                .map_err(|error| (*epoch, error)),
            Self::Down | Self::Starting(_) => Ok(()),
        }
    }

    /// Tells every rank that a row samples nothing. The error is for the core.
    pub(super) fn call_off(&mut self, step_id: u64, slot: Slot) -> Result<(), (u64, WorkerError)> {
        match self {
            Self::Up { epoch, streams } => streams
                .call_off(step_id, slot)
                .map_err(|error| (*epoch, error)),
            Self::Down | Self::Starting(_) => Ok(()),
        }
    }

    /// The rank that has been silent longest, and since when.
    pub(super) fn quietest_rank(&self) -> Option<(usize, Instant)> {
        match self {
            Self::Up { streams, .. } => streams.quietest_rank(),
            Self::Down | Self::Starting(_) => None,
        }
    }
}
