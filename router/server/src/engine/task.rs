//! The engine's loop: the only owner of the scheduler and of the workers' streams.
//!
//! It runs on a thread and a single-threaded runtime of its own, with the workers' connections, so that no request's work
//! can delay a step. It never waits for anything but its next input: sending a step, telling an event and refusing
//! a request are all immediate.

use super::config::EngineConfig;
use super::control::LauncherLink;
use super::group::{GroupInput, GroupState, group_request};
use super::handle::{Command, Interruption, SequenceEvent, SubmitFailure};
use super::status::{EngineStats, ModelLimits, SharedStatus};
use super::streams::{OpenStreams, StreamFacts};
use crate::metrics::{Metrics, StepAnswered, StepSent};
use headrace_control::{ModelDocument, Progress, ReadySummary, ToLauncher, ToRouter};
use headrace_scheduler::{Event, GroupId, Scheduler, SequenceRequest, StepOutcome, Time};
use headrace_worker_client::{GroupDescription, GroupEvent, StartError, StartedGroup, StepReport};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The one group of this router.
const GROUP: GroupId = GroupId(0);

/// Commands taken in before the next step is planned: a storm of them must not hold back a step for long.
const COMMANDS_AT_ONCE: usize = 256;

/// Progress that goes to the launcher within one stage.
const PROGRESS_PERIOD: Duration = Duration::from_millis(100);

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
    config: EngineConfig,
    origin: Instant,
    commands: mpsc::UnboundedReceiver<Command>,
    control: mpsc::UnboundedReceiver<ToRouter>,
    launcher: LauncherLink,
    status: Arc<SharedStatus>,
    metrics: Arc<Metrics>,
    progress: mpsc::UnboundedSender<Progress>,
    progress_reports: mpsc::UnboundedReceiver<Progress>,
    last_progress: Option<(String, Instant)>,
    model: Option<Box<ModelDocument>>,
    scheduler: Option<Scheduler>,
    group: GroupState,
    streams: OpenStreams,
    /// What the first start of the group prepared, and later ones must.
    prepared_blocks: Option<u32>,
    limits: Option<ModelLimits>,
    description: Option<GroupDescription>,
    services_ready: bool,
    announced: bool,
    /// Why no group will come any more.
    final_cause: Option<String>,
    drain_deadline: Option<Instant>,
    steps_completed: u64,
    /// Sequences that ended per second, smoothed; for `Retry-After`.
    end_rate: f64,
    ended_at_last_tick: (u64, Instant),
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
                return EngineEnd::Drained;
            }
        }
    }

    fn now(&self) -> Time {
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
        request: SequenceRequest,
        events: mpsc::Sender<SequenceEvent>,
    ) -> Result<(), SubmitFailure> {
        if self.drain_deadline.is_some() {
            return Err(SubmitFailure::Draining);
        }
        if !self.announced || self.final_cause.is_some() {
            return Err(SubmitFailure::NotReady);
        }
        let scheduler = self.scheduler.as_mut().ok_or(SubmitFailure::NotReady)?;
        let facts = StreamFacts::new(&request, events);
        scheduler.submit(now, request)?;
        self.streams.add(facts);
        Ok(())
    }

    fn take_control(&mut self, message: ToRouter) {
        match message {
            ToRouter::Configure(_) => tracing::warn!("configured a second time: ignored"),
            ToRouter::Model(document) => self.take_model(document),
            ToRouter::GroupUp {
                group,
                epoch,
                addresses,
            } => {
                self.take_group_up(group, epoch, addresses);
            }
            ToRouter::GroupDown {
                group,
                cause,
                is_final,
            } => {
                if GroupId(group) != GROUP {
                    tracing::warn!(group, "a group that this router does not own went down");
                    return;
                }
                tracing::warn!(is_final, "the worker group is down: {cause}");
                self.drop_group(&cause);
                if is_final {
                    self.give_up(cause);
                }
            }
            ToRouter::Progress(progress) => {
                self.status.update(|board| board.progress = Some(progress));
            }
            ToRouter::Drain { grace_seconds } => self.begin_drain(grace_seconds),
        }
    }

    fn take_model(&mut self, document: Box<ModelDocument>) {
        if self.model.is_some() {
            tracing::warn!("a second model: ignored");
            return;
        }
        self.metrics.set_model_name(&document.model_id);
        let longest = document.max_position_embeddings;
        self.scheduler = Some(Scheduler::new(self.config.scheduler(longest)));
        self.model = Some(document);
    }

    fn take_group_up(&mut self, group: u32, epoch: u64, addresses: Vec<String>) {
        let Some(model) = &self.model else {
            self.fail(
                "a worker group came up before the model was named".to_owned(),
                true,
            );
            return;
        };
        if GroupId(group) != GROUP {
            self.fail(
                format!("group {group} came up; this router owns group 0"),
                true,
            );
            return;
        }
        let longest = model.max_position_embeddings;
        tracing::info!(epoch, ranks = addresses.len(), "the worker group listens");
        // A fresh start of workers that are still up: what ran on the old streams starts over.
        self.drop_group("a new start of the group");
        let request = group_request(&self.config, epoch, longest, self.prepared_blocks);
        self.group = GroupState::start(epoch, addresses, request, self.progress.clone());
    }

    fn take_start(&mut self, outcome: Result<Box<StartedGroup>, StartError>) {
        let Some(epoch) = self.group.epoch() else {
            return;
        };
        let started = match outcome {
            Ok(started) => started,
            Err(error) if error.is_final() => {
                self.group = GroupState::Down;
                self.fail(error.to_string(), true);
                return;
            }
            Err(error) => {
                self.kill_group(&error.to_string());
                return;
            }
        };
        let StartedGroup {
            group,
            description,
            num_blocks,
            prepared_blocks,
        } = *started;
        let (Some(scheduler), Some(model)) = (&mut self.scheduler, &self.model) else {
            return;
        };
        if description.vocab_size != model.vocab_size {
            let cause = format!(
                "the workers have a vocabulary of {}, the model's files of {}",
                description.vocab_size, model.vocab_size
            );
            self.group = GroupState::Down;
            self.fail(cause, true);
            return;
        }
        scheduler.group_up(Time(self.origin.elapsed()), GROUP, num_blocks);
        self.prepared_blocks.get_or_insert(prepared_blocks);
        let limits = ModelLimits {
            max_total_tokens: scheduler.max_total_tokens(),
            vocab_size: description.vocab_size,
            max_sequences: self.config.max_sequences,
            max_batch_tokens: self.config.max_batch_tokens,
            pool_tokens: u64::from(num_blocks) * u64::from(self.config.block_size),
            block_size: self.config.block_size,
        };
        self.limits = Some(limits);
        self.group = GroupState::up(epoch, group);
        self.description = Some(description);
        self.status.update(|board| {
            board.group_up = true;
            board.progress = None;
            board.down_cause = None;
            board.limits = Some(limits);
        });
        tracing::info!(
            epoch,
            num_blocks,
            max_total_tokens = limits.max_total_tokens,
            "ready to run"
        );
        self.announce();
    }

    /// Once, when the first group is up and requests can be validated.
    fn announce(&mut self) {
        let (Some(limits), Some(description)) = (self.limits, &self.description) else {
            return;
        };
        if self.announced || !self.services_ready {
            return;
        }
        self.announced = true;
        let longest_input = limits.max_total_tokens.saturating_sub(1);
        let max_input = self
            .config
            .max_input_tokens
            .map_or(longest_input, |most| most.min(longest_input));
        self.metrics
            .set_length_bounds(max_input, limits.max_total_tokens);
        self.status.update(|board| board.was_ready = true);
        let num_blocks = limits.pool_tokens / u64::from(limits.block_size.max(1));
        self.launcher.send(ToLauncher::Ready {
            summary: ReadySummary {
                num_blocks: u32::try_from(num_blocks).unwrap_or(u32::MAX),
                block_size: limits.block_size,
                max_total_tokens: limits.max_total_tokens,
                kernel_set: description.kernel_set.clone(),
                device: description.device.clone(),
            },
        });
    }

    fn take_progress(&mut self, progress: Progress) {
        let is_due = match &self.last_progress {
            Some((stage, at)) => {
                *stage != progress.stage
                    || at.elapsed() >= PROGRESS_PERIOD
                    || progress.done == progress.total
            }
            None => true,
        };
        if !is_due || !matches!(self.group, GroupState::Starting(_)) {
            return;
        }
        self.last_progress = Some((progress.stage.clone(), Instant::now()));
        self.status
            .update(|board| board.progress = Some(progress.clone()));
        self.launcher.send(ToLauncher::Progress(progress));
    }

    /// The group is of no more use: its sequences go back to the queue, and the launcher starts it again.
    fn kill_group(&mut self, reason: &str) {
        let Some(epoch) = self.group.epoch() else {
            return;
        };
        tracing::error!(epoch, "the worker group has to be restarted: {reason}");
        self.launcher.send(ToLauncher::KillGroup {
            group: GROUP.0,
            epoch,
            reason: reason.to_owned(),
        });
        self.drop_group(reason);
    }

    fn drop_group(&mut self, cause: &str) {
        let was_up = matches!(self.group, GroupState::Up(_));
        self.group = GroupState::Down;
        if was_up {
            let now = self.now();
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.group_down(now, GROUP);
            }
            self.metrics.idle();
        }
        self.status.update(|board| {
            board.group_up = false;
            board.down_cause = Some(cause.to_owned());
        });
    }

    /// No group will come any more: what is admitted ends with an error.
    fn give_up(&mut self, cause: String) {
        self.status
            .update(|board| board.final_cause = Some(cause.clone()));
        self.final_cause = Some(cause.clone());
        self.interrupt_all(&Interruption::WorkersLost(cause));
    }

    fn fail(&mut self, cause: String, is_final: bool) {
        tracing::error!(is_final, "{cause}");
        self.launcher.send(ToLauncher::Failed {
            cause: cause.clone(),
            is_final,
        });
        if is_final {
            self.give_up(cause);
        }
    }

    fn begin_drain(&mut self, grace_seconds: u64) {
        if self.drain_deadline.is_some() {
            return;
        }
        tracing::info!(grace_seconds, open = self.streams.len(), "draining");
        let now = Instant::now();
        // A grace time beyond the clock's range is for ever; a day is that here.
        let deadline = now.checked_add(Duration::from_secs(grace_seconds));
        self.drain_deadline = Some(deadline.unwrap_or(now + Duration::from_hours(24)));
        self.status.update(|board| board.draining = true);
    }

    fn take_tick(&mut self) {
        if let Some(reason) = self.group.hung(&self.config.watchdog) {
            self.kill_group(&reason);
        }
        if self
            .drain_deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
        {
            self.interrupt_all(&Interruption::DrainDeadline);
        }
        self.update_retry_after();
    }

    fn interrupt_all(&mut self, why: &Interruption) {
        let now = self.now();
        let ids = self.streams.interrupt_all(why);
        if !ids.is_empty() {
            tracing::warn!(count = ids.len(), "sequences were ended: {why}");
        }
        for id in ids {
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.cancel(now, id);
            }
        }
    }

    /// Clients that come back when the queue is through find room.
    fn update_retry_after(&mut self) {
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
