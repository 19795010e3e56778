//! The engine without its sockets and clock: a deterministic state machine.
//!
//! [`EngineCore`] owns the scheduler, the open streams and what becomes of the worker group, the drain and the verdict on
//! the server's health. Each [`Input`] comes with the time, and what is to be done comes out as [`Effect`]s. The same
//! inputs at the same times give the same effects and the same events, whatever drives it: the engine's thread or a
//! simulation.
//!
//! The caller's loop: [`EngineCore::take`] an input (or several), [`EngineCore::plan`], do every
//! [`EngineCore::next_effect`], then [`EngineCore::tell`] and do the effects of that. Steps thus leave before their
//! predecessors' tokens are told.

mod effect;
mod lifecycle;
mod masks;
mod phase;
mod publish;
mod steps;
mod streams;
mod submit;

pub use effect::{Effect, EngineEnd, GroupFacts, Input, StartFailure};

use super::config::EngineConfig;
use super::handle::{CommandQueue, EngineHandle};
use super::planted::{self, Bug};
use super::status::{EngineStatus, ModelLimits, SharedStatus};
use crate::metrics::Metrics;
use headrace_control::{ModelDocument, ToLauncher};
use headrace_scheduler::{Event, GroupId, Scheduler, Time};
use headrace_worker_client::GroupDescription;
use masks::MaskBook;
use phase::GroupPhase;
use std::collections::VecDeque;
use std::sync::Arc;
use streams::OpenStreams;

/// The one group of this router.
const GROUP: GroupId = GroupId(0);

/// Everything that decides. See the module.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "what has happened so far, each on its own"
)]
pub struct EngineCore {
    config: EngineConfig,
    status: Arc<SharedStatus>,
    metrics: Arc<Metrics>,
    effects: VecDeque<Effect>,
    /// What the scheduler reported and no stream has heard yet.
    untold: Vec<Event>,
    last_progress: Option<(String, Time)>,
    model: Option<Box<ModelDocument>>,
    scheduler: Option<Scheduler>,
    group: GroupPhase,
    streams: OpenStreams,
    masks: MaskBook,
    /// What the first start of the group prepared, and later ones must.
    prepared_blocks: Option<u32>,
    limits: Option<ModelLimits>,
    description: Option<GroupDescription>,
    services_ready: bool,
    announced: bool,
    /// Why no group will come any more.
    final_cause: Option<String>,
    drain_deadline: Option<Time>,
    steps_completed: u64,
    /// Some sequence is under suspicion, and the launcher knows.
    isolates: bool,
    ended: bool,
}

impl EngineCore {
    /// Nothing is known yet: the model, a group and the services come as inputs.
    pub fn new(config: EngineConfig, metrics: Arc<Metrics>) -> Self {
        Self {
            config,
            status: Arc::new(SharedStatus::new()),
            metrics,
            effects: VecDeque::new(),
            untold: Vec::new(),
            last_progress: None,
            model: None,
            scheduler: None,
            group: GroupPhase::Down,
            streams: OpenStreams::default(),
            masks: MaskBook::default(),
            prepared_blocks: None,
            limits: None,
            description: None,
            services_ready: false,
            announced: false,
            final_cause: None,
            drain_deadline: None,
            steps_completed: 0,
            isolates: false,
            ended: false,
        }
    }

    /// A way in for requests, and the queue of what they say: each of its commands is an [`Input::Command`].
    pub fn connect(&self) -> (EngineHandle, CommandQueue) {
        EngineHandle::new(Arc::clone(&self.status))
    }

    /// Takes in what happened. Events of what was told before are told first.
    pub fn take(&mut self, now: Time, input: Input) {
        self.tell_events(now);
        match input {
            Input::Control(message) => self.take_control(now, message),
            Input::Command(command) => self.take_command(now, command),
            Input::Progress { epoch, progress } => self.take_progress(now, epoch, progress),
            Input::Started { epoch, outcome } => self.take_start(now, epoch, outcome),
            Input::Answer { epoch, report } => self.take_answer(now, epoch, *report),
            Input::Broken { epoch, cause } => {
                if self.group.epoch() == Some(epoch) || planted::is(Bug::StaleBreakKills) {
                    self.kill_group(now, &cause);
                }
            }
            Input::Mask(ready) => self.take_mask(now, &ready),
            Input::Tick { quietest } => self.take_tick(now, quietest),
            Input::Wake => self.end_drain_when_due(now),
        }
    }

    /// Plans steps as long as the scheduler has some. `true`: there is one to send.
    pub fn plan(&mut self, now: Time) -> bool {
        self.plan_steps(now)
    }

    /// Tells the streams what the last inputs and the time brought, and publishes how things stand.
    pub fn tell(&mut self, now: Time) {
        if let Some(scheduler) = &mut self.scheduler {
            let events = scheduler.expire(now);
            if !planted::is(Bug::ExpiredNotTold) {
                self.hear(events);
            }
        }
        self.tell_events(now);
        self.publish();
        let is_over = self.streams.is_empty()
            || (planted::is(Bug::DrainForgetsQueued)
                && (self.scheduler.as_ref()).is_some_and(|it| it.stats().running == 0));
        if self.drain_deadline.is_some() && is_over && !self.ended {
            self.ended = true;
            self.effects.push_back(Effect::End(EngineEnd::Drained));
        }
    }

    /// When the next [`Input::Wake`] is due at the latest, if no other input comes before.
    pub fn next_wake(&self) -> Option<Time> {
        let deadline = self.scheduler.as_ref().and_then(Scheduler::next_deadline);
        deadline.into_iter().chain(self.drain_deadline).min()
    }

    /// The next thing to do; `None` when all is done.
    pub fn next_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// What it says about itself. Whether it is stuck is for its driver to say.
    pub fn status(&self) -> EngineStatus {
        self.status.snapshot_after(0)
    }

    /// The scheduler, once the model is known: for checks.
    pub fn scheduler(&self) -> Option<&Scheduler> {
        self.scheduler.as_ref()
    }

    pub(super) fn shared_status(&self) -> Arc<SharedStatus> {
        Arc::clone(&self.status)
    }

    fn send(&mut self, message: ToLauncher) {
        self.effects.push_back(Effect::ToLauncher(message));
    }
}
