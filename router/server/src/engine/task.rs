//! The engine's loop: the only owner of the scheduler and of the workers' streams.
//!
//! It runs on a thread and a single-threaded runtime of its own, with the workers' connections, so that no request's work
//! can delay a step. It never waits for anything but its next input: sending a step, telling an event and refusing
//! a request are all immediate.

use super::config::EngineConfig;
use super::control::LauncherLink;
use super::group::{GroupInput, GroupState};
use super::handle::{Command, SequenceEvent, SubmitFailure};
use super::status::{EngineStats, ModelLimits, SharedStatus};
use super::streams::{OpenStreams, StreamFacts};
use super::validated::ValidatedSequence;
use crate::metrics::{Metrics, StepAnswered, StepSent};
use headrace_control::{ModelDocument, Progress, ToLauncher, ToRouter};
use headrace_scheduler::{Event, GroupId, Scheduler, StepOutcome, Time};
use headrace_worker_client::{GroupDescription, GroupEvent, StepReport};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The one group of this router.
pub(super) const GROUP: GroupId = GroupId(0);

/// Commands taken in before the next step is planned: a storm of them must not hold back a step for long.
const COMMANDS_AT_ONCE: usize = 256;

/// How the engine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEnd {
    /// A drain is over.
    Drained,
    /// The launcher is gone.
    LauncherGone,
}

/// What the loop waits for.
enum Input {
    Group(GroupInput),
    Control(Option<ToRouter>),
    Command(Option<Command>),
    Progress(Progress),
    Tick,
}

/// Everything the loop owns.
#[derive(Debug)]
pub(super) struct EngineTask {
    pub(super) config: EngineConfig,
    pub(super) origin: Instant,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) control: mpsc::UnboundedReceiver<ToRouter>,
    pub(super) launcher: LauncherLink,
    pub(super) status: Arc<SharedStatus>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) progress: mpsc::UnboundedSender<Progress>,
    pub(super) progress_reports: mpsc::UnboundedReceiver<Progress>,
    pub(super) last_progress: Option<(String, Instant)>,
    pub(super) model: Option<Box<ModelDocument>>,
    pub(super) scheduler: Option<Scheduler>,
    pub(super) group: GroupState,
    pub(super) streams: OpenStreams,
    /// What the first start of the group prepared, and later ones must.
    pub(super) prepared_blocks: Option<u32>,
    pub(super) limits: Option<ModelLimits>,
    pub(super) description: Option<GroupDescription>,
    pub(super) services_ready: bool,
    pub(super) announced: bool,
    /// Why no group will come any more.
    pub(super) final_cause: Option<String>,
    pub(super) drain_deadline: Option<Instant>,
    pub(super) steps_completed: u64,
    /// Sequences that ended per second, smoothed; for `Retry-After`.
    pub(super) end_rate: f64,
    pub(super) ended_at_last_tick: (u64, Instant),
}

impl EngineTask {
    pub(super) fn new(
        config: EngineConfig,
        commands: mpsc::UnboundedReceiver<Command>,
        control: mpsc::UnboundedReceiver<ToRouter>,
        launcher: LauncherLink,
        status: Arc<SharedStatus>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (progress, progress_reports) = mpsc::unbounded_channel();
        let origin = Instant::now();
        Self {
            config,
            origin,
            commands,
            control,
            launcher,
            status,
            metrics,
            progress,
            progress_reports,
            last_progress: None,
            model: None,
            scheduler: None,
            group: GroupState::Down,
            streams: OpenStreams::default(),
            prepared_blocks: None,
            limits: None,
            description: None,
            services_ready: false,
            announced: false,
            final_cause: None,
            drain_deadline: None,
            steps_completed: 0,
            end_rate: 0.0,
            ended_at_last_tick: (0, origin),
        }
    }

    /// Until a drain is over or the launcher is gone.
    pub(super) async fn run(mut self) -> EngineEnd {
        let mut tick = tokio::time::interval(self.config.watchdog.period);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.status.beat();
            let input = tokio::select! {
                // An answer comes first: the workers wait for the next step.
                biased;
                input = self.group.next_input() => Input::Group(input),
                message = self.control.recv() => Input::Control(message),
                command = self.commands.recv() => Input::Command(command),
                Some(progress) = self.progress_reports.recv() => Input::Progress(progress),
                _ = tick.tick() => Input::Tick,
            };
            let mut events = Vec::new();
            match input {
                Input::Group(GroupInput::Event(Ok(GroupEvent::Step(report)))) => {
                    events = self.take_answer(*report);
                }
                Input::Group(GroupInput::Event(Ok(GroupEvent::Heartbeat { .. }))) => {}
                Input::Group(GroupInput::Event(Err(error))) => self.kill_group(&error.to_string()),
                Input::Group(GroupInput::Started(Ok(outcome))) => self.take_start(outcome),
                Input::Group(GroupInput::Started(Err(error))) => {
                    self.kill_group(&format!("the start of the group panicked: {error}"));
                }
                Input::Control(Some(message)) => self.take_control(message),
                Input::Control(None) | Input::Command(None) => return EngineEnd::LauncherGone,
                Input::Command(Some(command)) => self.take_commands(command),
                Input::Progress(progress) => self.take_progress(progress),
                Input::Tick => self.take_tick(),
            }
            if self.plan() && !events.is_empty() {
                // Lets the connection's task put the step on the wire before the events are told.
                tokio::task::yield_now().await;
            }
            self.tell(events);
            self.publish();
            if self.drain_deadline.is_some() && self.streams.is_empty() {
                std::mem::take(&mut self.group).close().await;
                return EngineEnd::Drained;
            }
        }
    }

    pub(super) fn now(&self) -> Time {
        Time(self.origin.elapsed())
    }

    /// Sends steps as long as the scheduler has some; `true`: it sent one.
    fn plan(&mut self) -> bool {
        let now = self.now();
        let mut sent_any = false;
        loop {
            let (Some(scheduler), GroupState::Up(up)) = (&mut self.scheduler, &mut self.group)
            else {
                return sent_any;
            };
            let Some(plan) = scheduler.plan(now, GROUP) else {
                return sent_any;
            };
            match up.send(&plan) {
                Ok(sent) => {
                    self.metrics.step_sent(&StepSent {
                        method: sent.method,
                        rows: sent.rows,
                        entered: sent.entered,
                        running_max_tokens: self.streams.running_max_tokens(),
                    });
                    sent_any = true;
                }
                Err(error) => {
                    self.kill_group(&error.to_string());
                    return sent_any;
                }
            }
        }
    }

    fn take_answer(&mut self, report: StepReport) -> Vec<Event> {
        let now = self.now();
        let (Some(scheduler), GroupState::Up(up)) = (&mut self.scheduler, &mut self.group) else {
            return Vec::new();
        };
        let succeeded = matches!(report.result.outcome, StepOutcome::Ok(_));
        if let StepOutcome::Failed(words) | StepOutcome::OutOfMemory(words) = &report.result.outcome
        {
            tracing::warn!(step = report.result.step_id, "a step failed: {words}");
        }
        if let Some(step) = up.answered() {
            self.metrics.step_answered(&StepAnswered {
                method: step.method,
                succeeded,
                round_trip: step.at.elapsed(),
                apply: report.timings.apply,
                forward: report.timings.forward,
                sample: report.timings.sample,
                entered: step.entered,
            });
        }
        self.steps_completed += 1;
        if succeeded && up.completes_its_first_step() {
            let message = ToLauncher::StepCompleted {
                group: GROUP.0,
                epoch: up.epoch,
            };
            self.launcher.send(message);
        }
        match scheduler.complete(now, report.result) {
            Ok(events) => events,
            Err(violation) => {
                self.kill_group(&format!("protocol violation: {violation}"));
                Vec::new()
            }
        }
    }

    fn tell(&mut self, events: Vec<Event>) {
        if events.is_empty() {
            return;
        }
        let now = self.now();
        for id in self.streams.tell(events, &self.metrics) {
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.cancel(now, id);
            }
        }
    }

    fn take_commands(&mut self, first: Command) {
        let mut next = Some(first);
        for _ in 0..COMMANDS_AT_ONCE {
            let Some(command) = next else { return };
            self.take_command(command);
            next = self.commands.try_recv().ok();
        }
        if let Some(command) = next {
            self.take_command(command);
        }
    }

    fn take_command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Submit {
                request,
                events,
                verdict,
            } => {
                let outcome = self.submit(now, *request, events);
                // The caller may be gone; its cancel is behind this command in the queue.
                let _ = verdict.send(outcome);
            }
            Command::Cancel(id) => {
                if self.streams.remove(id)
                    && let Some(scheduler) = &mut self.scheduler
                {
                    scheduler.cancel(now, id);
                }
            }
            Command::ServicesReady => {
                self.services_ready = true;
                self.announce();
            }
        }
    }

    fn submit(
        &mut self,
        now: Time,
        sequence: ValidatedSequence,
        events: mpsc::Sender<SequenceEvent>,
    ) -> Result<(), SubmitFailure> {
        if self.drain_deadline.is_some() {
            return Err(SubmitFailure::Draining);
        }
        if !self.announced || self.final_cause.is_some() {
            return Err(SubmitFailure::NotReady);
        }
        let scheduler = self.scheduler.as_mut().ok_or(SubmitFailure::NotReady)?;
        let facts = StreamFacts::new(sequence.request(), events);
        scheduler.submit(now, sequence.into_request())?;
        self.streams.add(facts);
        Ok(())
    }

    /// Clients that come back when the queue is through find room.
    pub(super) fn update_retry_after(&mut self) {
        let (ended, at) = self.ended_at_last_tick;
        let seconds = at.elapsed().as_secs_f64();
        if seconds < 0.5 {
            return;
        }
        let total = self.streams.ended();
        let rate = (total - ended) as f64 / seconds;
        self.end_rate = 0.7 * self.end_rate + 0.3 * rate;
        self.ended_at_last_tick = (total, Instant::now());
        let waiting = self
            .scheduler
            .as_ref()
            .map_or(0, |scheduler| scheduler.stats().waiting);
        let estimate = if waiting == 0 {
            1.0
        } else {
            waiting as f64 / self.end_rate.max(0.01)
        };
        let retry_after = Duration::from_secs_f64(estimate.clamp(1.0, 60.0).ceil());
        self.status.update(|board| board.retry_after = retry_after);
    }

    fn publish(&mut self) {
        let Some(scheduler) = &self.scheduler else {
            return;
        };
        let stats = scheduler.stats();
        if stats.running == 0 && stats.steps_in_flight == 0 {
            self.metrics.idle();
        }
        let stats = EngineStats {
            waiting: stats.waiting as u64,
            running: stats.running as u64,
            waiting_tokens: stats.waiting_tokens,
            free_blocks: stats.free_blocks as u64,
            owned_blocks: stats.owned_blocks as u64,
            cached_blocks: stats.cached_blocks as u64,
            total_blocks: stats.total_blocks as u64,
            preemptions: stats.preemptions,
            prefix_query_tokens: stats.prefix_query_tokens,
            prefix_hit_tokens: stats.prefix_hit_tokens,
            recomputed_tokens: stats.recomputed_tokens,
            steps_in_flight: stats.steps_in_flight as u64,
            steps_completed: self.steps_completed,
            open_streams: self.streams.len() as u64,
        };
        self.status.update(|board| board.stats = stats);
    }
}
