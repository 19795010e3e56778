//! The life of one run: router first, then the model, then the workers; restarts of either; the end.
//!
//! One thread owns all processes. It waits for events (signals, messages of the router, ends of children) and for the
//! next deadline, and it leaves no process, socket or file behind, whichever way it ends.

mod drain;
mod group;
mod model_source;
mod plan;
mod ready;
mod router;
mod router_life;

use crate::failure::Failure;
use crate::log::Log;
use crate::processes::{
    ControlLink, Ending, Event, RunDir, raise_file_limit, reap, sweep_run_dirs, watch_signals,
};
use crate::restarts::RestartPolicy;
use crate::settings::Settings;
use group::GroupState;
use headrace_control::{ModelDocument, ToRouter};
use model_source::ModelSource;
use nix::unistd::Pid;
use plan::Plan;
use router::Router;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The only group. Several (data parallel) differ in nothing but this number.
const GROUP: u32 = 0;
/// How often sockets of starting workers are tried.
const POLL: Duration = Duration::from_millis(20);
/// From the router's complaint about a group to the end of the process that caused it.
const REAP_GRACE: Duration = Duration::from_millis(200);
/// Between looks at the clock when nothing is due.
const IDLE: Duration = Duration::from_secs(1);

/// How a run ends.
#[derive(Debug)]
enum End {
    /// As asked: exit code 0.
    Drained,
    /// At once, by a second signal.
    Now(i32),
    /// With a cause.
    Failed(Failure),
    /// With a cause that the router tells its clients first.
    FailedAfterNotice(Failure),
}

/// Everything that a run owns.
struct Supervisor {
    settings: Settings,
    log: Log,
    events: Receiver<Event>,
    sender: Sender<Event>,
    run_dir: RunDir,
    python: PathBuf,
    plan: Plan,
    router: Router,
    source: ModelSource,
    document: Option<ModelDocument>,
    group: GroupState,
    /// Grows with every start of the group.
    epoch: u64,
    restarts: RestartPolicy,
    router_restarts: RestartPolicy,
    /// When a group that failed starts again.
    next_start: Instant,
    /// Requests are served, or were.
    was_ready: bool,
    /// SIGINT, SIGTERM or SIGHUP came: the next one ends at once.
    signalled_at: Option<Instant>,
    /// When a drain that was asked for must be over.
    drain_deadline: Option<Instant>,
    /// The router is through with its requests and ends.
    has_drained: bool,
    /// What the router holds against the group, and when that counts: a process that ended says more.
    condemned: Option<(String, Instant)>,
}

/// Serves until a signal or a failure; returns the exit code.
pub(crate) fn run(settings: Settings, log: &Log) -> Result<u8, Failure> {
    let origins = settings.origins.clone();
    start(settings, log).map_err(|failure| origins.blame(&failure))
}

fn start(mut settings: Settings, log: &Log) -> Result<u8, Failure> {
    let (sender, events) = channel();
    watch_signals(sender.clone())
        .map_err(|error| Failure::new(format!("signals cannot be watched: {error}")))?;
    if let Err(error) = raise_file_limit() {
        log.warn(&format!("the limit of open files stays as it is: {error}"));
    }
    for warning in &settings.warnings {
        log.warn(warning);
    }
    let python = crate::python::find(settings.workers.python.as_deref())?;
    let is_given = settings.workers.python.is_some();
    if !is_given && let Some(line) = crate::python::empty_environment(&python) {
        log.warn(&line);
    }
    crate::python::check(&python, is_given)?;
    let plan = Plan::make(&settings.workers, &python)?;
    if let Some(line) = plan.idle_fraction(&settings.workers) {
        log.warn(&line);
    }
    plan.fill(&mut settings.router);
    plan.check_sizes(&settings.router)?;
    // A local model is checked before anything starts.
    let mut source = ModelSource::locate(&settings.model)?;
    source.prefer_demo(&settings.model, &python, log);
    if let Some(revision) = &settings.model.revision
        && source.is_local()
    {
        let id = &settings.model.model_id;
        log.warn(&format!(
            "--revision {revision} has no effect: --model-id {id} is a path on this machine"
        ));
    }
    let document = source.resolve_local(&settings.model, &plan, log)?;
    if let Some(document) = &document {
        plan.check(document, &settings.router)?;
    }
    source.check_cached(&settings.model, &plan, &settings.router)?;
    for left in sweep_run_dirs() {
        log.info(&format!(
            "removed {}, which a launcher that was killed left behind",
            left.display()
        ));
    }
    let run_dir = RunDir::create()
        .map_err(|error| Failure::new(format!("{error}; a private directory is made there")))?;
    let router = Router::start(1, &settings.router, log, &sender)?;
    let most_restarts = settings.workers.max_restarts;
    let supervisor = Supervisor {
        settings,
        log: log.clone(),
        events,
        sender,
        run_dir,
        python,
        plan,
        router,
        source,
        document,
        group: GroupState::None,
        epoch: 0,
        restarts: RestartPolicy::new(most_restarts),
        router_restarts: RestartPolicy::new(most_restarts),
        next_start: Instant::now(),
        was_ready: false,
        signalled_at: None,
        drain_deadline: None,
        has_drained: false,
        condemned: None,
    };
    supervisor.serve()
}

impl Supervisor {
    fn serve(mut self) -> Result<u8, Failure> {
        let end = loop {
            let wait = self.next_wake().saturating_duration_since(Instant::now());
            let step = match self.events.recv_timeout(wait) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => Ok(()),
                Err(RecvTimeoutError::Disconnected) => Err(End::Failed(Failure::new(
                    "the launcher's own threads are gone",
                ))),
            };
            if let Err(end) = step.and_then(|()| self.tick(Instant::now())) {
                break end;
            }
        };
        self.finish(end)
    }

    /// One event. `Err` ends the run.
    fn handle(&mut self, event: Event) -> Result<(), End> {
        match event {
            Event::Stop(number) => self.stop_asked(number),
            Event::ChildEnded => {
                for (pid, ending) in reap() {
                    self.child_ended(pid, ending)?;
                }
                Ok(())
            }
            // What an earlier router said last comes late.
            Event::Router(start, _) | Event::RouterSilent(start, _)
                if start != self.router.start_number() || self.router.next_start().is_some() =>
            {
                Ok(())
            }
            Event::Router(_, message) => self.router_says(message),
            Event::RouterSilent(_, cause) => {
                self.router.silent(cause);
                Ok(())
            }
            Event::Download(line) => self.download_says(line),
        }
    }

    fn child_ended(&mut self, pid: Pid, ending: Ending) -> Result<(), End> {
        if self.router.child.pid() == pid {
            self.router.child.sweep();
            self.router.ended(ending);
            return Ok(());
        }
        if self.source.is_download(pid) {
            return self.download_ended(ending);
        }
        self.worker_ended(pid, ending)
    }

    /// What is due now. `Err` ends the run.
    fn tick(&mut self, now: Instant) -> Result<(), End> {
        self.router_due(now)?;
        self.drain_due(now)?;
        if let Some((reason, _)) = self.condemned.take_if(|(_, until)| now >= *until) {
            self.group_failed(&reason)?;
        }
        self.group_due(now)
    }

    fn next_wake(&self) -> Instant {
        let now = Instant::now();
        [
            self.router.deadline(),
            self.group.deadline(now),
            self.drain_deadline,
            self.condemned.as_ref().map(|(_, until)| *until),
        ]
        .into_iter()
        .flatten()
        .fold(now + IDLE, Instant::min)
    }

    /// A router that does not take the message is found out by its end or its silence.
    fn tell_router(&mut self, message: &ToRouter) {
        if !self.router.is_running() {
            // The next one is told all it needs.
            return;
        }
        if let Err(error) = self.control().send(message) {
            self.router
                .silent(format!("the router takes no messages: {error}"));
        }
    }

    fn control(&self) -> &ControlLink {
        &self.router.control
    }
}
