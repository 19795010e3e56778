//! The engine's loop: sockets, channels and the clock around the core.
//!
//! It runs on a thread and a single-threaded runtime of its own, with the workers' connections, so that no request's work
//! can delay a step. It never waits for anything but its next input: sending a step, telling an event and refusing
//! a request are all immediate.

use super::control::LauncherLink;
use super::core::{Effect, EngineCore, EngineEnd, Input};
use super::group::GroupLink;
use super::handle::{Command, CommandQueue};
use super::status::SharedStatus;
use headrace_control::{Progress, ToRouter};
use headrace_scheduler::Time;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Commands taken in before the next step is planned: a storm of them must not hold back a step for long.
const COMMANDS_AT_ONCE: usize = 256;

/// What the loop waits for.
enum Arrival {
    Group(Option<Input>),
    Control(Option<ToRouter>),
    Command(Option<Command>),
    Progress(u64, Progress),
    Tick,
}

/// Everything the loop owns.
#[derive(Debug)]
pub(super) struct EngineTask {
    core: EngineCore,
    status: Arc<SharedStatus>,
    origin: Instant,
    tick_period: Duration,
    commands: CommandQueue,
    control: mpsc::UnboundedReceiver<ToRouter>,
    launcher: LauncherLink,
    progress: mpsc::UnboundedSender<(u64, Progress)>,
    progress_reports: mpsc::UnboundedReceiver<(u64, Progress)>,
    group: GroupLink,
}

impl EngineTask {
    pub(super) fn new(
        tick_period: Duration,
        core: EngineCore,
        commands: CommandQueue,
        control: mpsc::UnboundedReceiver<ToRouter>,
        launcher: LauncherLink,
    ) -> Self {
        let (progress, progress_reports) = mpsc::unbounded_channel();
        Self {
            // That of the deadlines which routes give.
            origin: Instant::from_std(core.shared_status().origin()),
            status: core.shared_status(),
            core,
            tick_period,
            commands,
            control,
            launcher,
            progress,
            progress_reports,
            group: GroupLink::Down,
        }
    }

    /// Until a drain is over or the launcher is gone.
    pub(super) async fn run(mut self) -> EngineEnd {
        let mut tick = tokio::time::interval(self.tick_period);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.status.beat();
            let arrival = tokio::select! {
                // An answer comes first: the workers wait for the next step.
                biased;
                input = self.group.next_input() => Arrival::Group(input),
                message = self.control.recv() => Arrival::Control(message),
                command = self.commands.next() => Arrival::Command(command),
                Some((epoch, progress)) = self.progress_reports.recv() => {
                    Arrival::Progress(epoch, progress)
                }
                _ = tick.tick() => Arrival::Tick,
            };
            let Some(is_answer) = self.take(arrival) else {
                return EngineEnd::LauncherGone;
            };
            let sends_a_step = self.core.plan(self.now());
            if let Some(end) = self.act().await {
                return end;
            }
            if is_answer && sends_a_step {
                // Lets the connection's task put the step on the wire before the events are told.
                tokio::task::yield_now().await;
            }
            self.core.tell(self.now());
            if let Some(end) = self.act().await {
                return end;
            }
        }
    }

    /// Whether it was an answer; `None` when the launcher is gone.
    fn take(&mut self, arrival: Arrival) -> Option<bool> {
        let now = self.now();
        match arrival {
            Arrival::Group(Some(input)) => {
                let is_answer = matches!(input, Input::Answer { .. });
                self.core.take(now, input);
                return Some(is_answer);
            }
            Arrival::Group(None) => {}
            Arrival::Control(message) => self.core.take(now, Input::Control(message?)),
            Arrival::Command(command) => self.take_commands(now, command?),
            Arrival::Progress(epoch, progress) => {
                self.core.take(now, Input::Progress { epoch, progress });
            }
            Arrival::Tick => {
                let quietest = self
                    .group
                    .quietest_rank()
                    .map(|(rank, heard)| (rank, self.time_of(heard)));
                self.core.take(now, Input::Tick { quietest });
            }
        }
        Some(false)
    }

    fn take_commands(&mut self, now: Time, first: Command) {
        self.core.take(now, Input::Command(first));
        for _ in 0..COMMANDS_AT_ONCE {
            let Some(command) = self.commands.try_next() else {
                return;
            };
            self.core.take(now, Input::Command(command));
        }
    }

    /// Does what the core wants done.
    async fn act(&mut self) -> Option<EngineEnd> {
        while let Some(effect) = self.core.next_effect() {
            match effect {
                Effect::SendStep(plan) => {
                    if let Err((epoch, error)) = self.group.send(&plan) {
                        let cause = error.to_string();
                        let now = self.now();
                        self.core.take(now, Input::Broken { epoch, cause });
                    }
                }
                Effect::StartGroup {
                    epoch,
                    addresses,
                    request,
                } => {
                    self.group = GroupLink::start(epoch, addresses, request, self.progress.clone());
                }
                Effect::DropGroup => self.group = GroupLink::Down,
                Effect::ToLauncher(message) => self.launcher.send(message),
                Effect::End(end) => {
                    std::mem::take(&mut self.group).close().await;
                    return Some(end);
                }
            }
        }
        None
    }

    fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    fn time_of(&self, instant: Instant) -> Time {
        Time(instant.saturating_duration_since(self.origin))
    }
}
