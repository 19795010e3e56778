//! The engine's loop: sockets, channels and the clock around the core.
//!
//! It runs on a thread and a single-threaded runtime of its own, with the workers' connections, so that no request's work
//! can delay a step. It never waits for anything but its next input: sending a step, telling an event and refusing
//! a request are all immediate.

use super::control::LauncherLink;
use super::core::{Effect, EngineCore, EngineEnd, Input};
use super::group::GroupLink;
use super::handle::{Command, CommandQueue};
use super::masks::{MaskReady, MaskThreads};
use super::meter::{Lap, StepMeter, Work};
use super::status::SharedStatus;
use headrace_control::{Progress, ToRouter};
use headrace_scheduler::Time;
use headrace_worker_client::WorkerError;
use std::pin::pin;
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
    Mask(MaskReady),
    Progress(u64, Progress),
    Wake,
    Tick,
}

/// Everything the loop owns.
#[derive(Debug)]
pub(super) struct EngineTask {
    core: EngineCore,
    status: Arc<SharedStatus>,
    origin: Instant,
    tick_period: Duration,
    meter: Arc<StepMeter>,
    commands: CommandQueue,
    control: mpsc::UnboundedReceiver<ToRouter>,
    launcher: LauncherLink,
    progress: mpsc::UnboundedSender<(u64, Progress)>,
    progress_reports: mpsc::UnboundedReceiver<(u64, Progress)>,
    group: GroupLink,
    desk: MaskThreads,
    masks: mpsc::UnboundedReceiver<MaskReady>,
}

impl EngineTask {
    pub(super) fn new(
        tick_period: Duration,
        meter: Arc<StepMeter>,
        core: EngineCore,
        commands: CommandQueue,
        control: mpsc::UnboundedReceiver<ToRouter>,
        launcher: LauncherLink,
    ) -> std::io::Result<Self> {
        let (progress, progress_reports) = mpsc::unbounded_channel();
        let status = core.shared_status();
        // Never longer than the masks that steps in flight announce.
        let (answers, masks) = mpsc::unbounded_channel();
        let desk = MaskThreads::start(move |ready| {
            // The engine may have ended.
            let _ = answers.send(ready);
        })?;
        Ok(Self {
            origin: Instant::from_std(status.origin()),
            status,
            core,
            tick_period,
            meter,
            commands,
            control,
            launcher,
            progress,
            progress_reports,
            group: GroupLink::Down,
            desk,
            masks,
        })
    }

    /// Until a drain is over or the launcher is gone.
    pub(super) async fn run(mut self) -> EngineEnd {
        let mut tick = tokio::time::interval(self.tick_period);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let meter = Arc::clone(&self.meter);
        let mut alarm = pin!(tokio::time::sleep_until(self.origin));
        let mut alarm_at = None;
        loop {
            self.status.beat();
            let wake = self.core.next_wake();
            if wake != alarm_at {
                alarm_at = wake;
                if let Some(Time(wake)) = wake {
                    alarm.as_mut().reset(self.origin + wake);
                }
            }
            let arrival = tokio::select! {
                // An answer comes first: the workers wait for the next step.
                biased;
                input = self.group.next_input() => Arrival::Group(input),
                Some(ready) = self.masks.recv() => Arrival::Mask(ready),
                message = self.control.recv() => Arrival::Control(message),
                command = self.commands.next() => Arrival::Command(command),
                Some((epoch, progress)) = self.progress_reports.recv() => {
                    Arrival::Progress(epoch, progress)
                }
                () = &mut alarm, if alarm_at.is_some() => {
                    alarm_at = None;
                    Arrival::Wake
                }
                _ = tick.tick() => Arrival::Tick,
            };
            let mut lap = Lap::begin(&meter);
            let Some(is_answer) = self.take(arrival) else {
                return EngineEnd::LauncherGone;
            };
            if is_answer {
                lap.is_about_an_answer();
            }
            // Masks of the steps in flight wait for these ids: the desk works while the next step is planned.
            if let Some(end) = self.act().await {
                return end;
            }
            lap.mark(Work::Complete);
            let sends_a_step = self.core.plan(self.now());
            lap.mark(Work::Plan);
            if let Some(end) = self.act().await {
                return end;
            }
            lap.mark(Work::Encode);
            if is_answer && sends_a_step {
                // Lets the connection's task put the step on the wire before the events are told.
                tokio::task::yield_now().await;
            }
            lap.mark(Work::Send);
            self.core.tell(self.now());
            if let Some(end) = self.act().await {
                return end;
            }
            lap.mark(Work::Tell);
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
            Arrival::Mask(ready) => self.take_masks(now, ready),
            Arrival::Wake => self.core.take(now, Input::Wake),
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

    /// Masks that are there together go out together.
    fn take_masks(&mut self, now: Time, first: MaskReady) {
        self.core.take(now, Input::Mask(first));
        while let Ok(ready) = self.masks.try_recv() {
            self.core.take(now, Input::Mask(ready));
        }
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
                    let sent = self.group.send(&plan);
                    self.note_broken(sent);
                }
                Effect::SendMask {
                    step_id,
                    slot,
                    position,
                    mask,
                } => {
                    let sent = self.group.send_mask(step_id, slot, position, mask);
                    self.note_broken(sent);
                }
                Effect::CallOff { step_id, slot } => {
                    let sent = self.group.call_off(step_id, slot);
                    self.note_broken(sent);
                }
                Effect::Desk(order) => self.desk.send(order),
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

    fn note_broken(&mut self, sent: Result<(), (u64, WorkerError)>) {
        if let Err((epoch, error)) = sent {
            let cause = error.to_string();
            let now = self.now();
            self.core.take(now, Input::Broken { epoch, cause });
        }
    }

    fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    fn time_of(&self, instant: Instant) -> Time {
        Time(instant.saturating_duration_since(self.origin))
    }
}
