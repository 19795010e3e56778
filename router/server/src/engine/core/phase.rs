//! The one worker group as the core sees it: down, starting, or up with steps in flight.

use crate::engine::config::Watchdog;
use crate::engine::planted::{self, Bug};
use crate::metrics::StepMethod;
use headrace_scheduler::{StepPlan, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// A step that has not been answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentStep {
    pub(super) at: Time,
    pub(super) method: StepMethod,
    pub(super) rows: usize,
    pub(super) entered: usize,
}

impl SentStep {
    fn new(now: Time, plan: &StepPlan) -> Self {
        let computes_prompt = plan
            .rows
            .iter()
            .any(|row| row.num_tokens > 1 || !row.sample);
        Self {
            at: now,
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
pub(super) enum GroupPhase {
    /// Nothing to talk to.
    #[default]
    Down,
    /// Its workers describe and prepare themselves.
    Starting {
        /// Which start.
        epoch: u64,
        /// When they last said how far they are.
        heard: Time,
    },
    /// Steps run.
    Up(UpGroup),
}

/// Steps sent to a group that is up.
#[derive(Debug)]
pub(super) struct UpGroup {
    pub(super) epoch: u64,
    sent: VecDeque<SentStep>,
    longest_step: Duration,
    has_completed_step: bool,
}

impl GroupPhase {
    pub(super) fn up(epoch: u64) -> Self {
        Self::Up(UpGroup {
            epoch,
            sent: VecDeque::new(),
            longest_step: Duration::ZERO,
            has_completed_step: false,
        })
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        match self {
            Self::Down => None,
            Self::Starting { epoch, .. } => Some(*epoch),
            Self::Up(up) => Some(up.epoch),
        }
    }

    /// Why the group counts as hung, if it does.
    pub(super) fn hung(
        &self,
        now: Time,
        watchdog: &Watchdog,
        quietest: Option<(usize, Time)>,
    ) -> Option<String> {
        let up = match self {
            Self::Down => return None,
            Self::Starting { heard, .. } => {
                let silent = since(now, *heard);
                return (silent > watchdog.start_silence).then(|| {
                    let seconds = silent.as_secs_f64();
                    format!("the start has shown no progress for {seconds:.1} s")
                });
            }
            Self::Up(up) => up,
        };
        if planted::is(Bug::WatchdogSleeps) {
            return None;
        }
        if let Some((rank, heard)) = quietest {
            let silent = since(now, heard);
            if silent > watchdog.silence {
                let seconds = silent.as_secs_f64();
                return Some(format!("rank {rank} has been silent for {seconds:.1} s"));
            }
        }
        let unanswered = since(now, up.sent.front()?.at);
        let limit = if planted::is(Bug::WatchdogBarks) {
            up.longest_step
        } else {
            watchdog.step_limit(up.longest_step)
        };
        (unanswered > limit).then(|| {
            let seconds = unanswered.as_secs_f64();
            format!("a step has been unanswered for {seconds:.1} s")
        })
    }
}

impl UpGroup {
    /// A step goes to every rank.
    pub(super) fn sends(&mut self, now: Time, plan: &StepPlan) -> SentStep {
        let sent = SentStep::new(now, plan);
        self.sent.push_back(sent);
        sent
    }

    /// The oldest step was answered: the step, and its time.
    pub(super) fn answered(&mut self, now: Time) -> Option<(SentStep, Duration)> {
        let step = self.sent.pop_front()?;
        let took = since(now, step.at);
        self.longest_step = self.longest_step.max(took);
        // The next one may have waited in the workers' queue meanwhile: its time begins now.
        if let Some(next) = self.sent.front_mut() {
            next.at = now;
        }
        Some((step, took))
    }

    /// `true` the first time: the group works.
    pub(super) fn completes_its_first_step(&mut self) -> bool {
        !std::mem::replace(&mut self.has_completed_step, true)
    }
}

/// Time from `earlier` to `now`; zero when a caller's clock stood still in between.
pub(super) fn since(now: Time, earlier: Time) -> Duration {
    now.0.saturating_sub(earlier.0)
}
