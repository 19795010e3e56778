//! The worker group: all its ranks start, stop and die together.

use super::{End, GROUP, POLL, Supervisor};
use crate::failure::Failure;
use crate::processes::{Child, Ending, Output, keep_from_children, make_inheritable, spawn};
use crate::restarts::AfterDeath;
use headrace_control::ToRouter;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::io::{PipeWriter, pipe};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// From the start of a worker to its socket. Importing torch from a slow disk takes a minute.
const LISTEN_LIMIT: Duration = Duration::from_mins(5);
/// Between SIGTERM and SIGKILL for the ranks of a failed group.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// One rank's process.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) child: Child,
    socket: PathBuf,
    is_listening: bool,
}

/// The processes of one start.
#[derive(Debug)]
pub(super) struct Ranks {
    pub(super) workers: Vec<Worker>,
    /// The epoch in the names of their files.
    start_epoch: u64,
    /// A router had their addresses in the present epoch.
    was_announced: bool,
    /// Its end tells the workers that the launcher is gone.
    _lifeline: PipeWriter,
}

/// Where the group is in its life.
#[derive(Debug)]
pub(super) enum GroupState {
    /// The model is not there yet.
    None,
    /// Processes run, not all of them listen.
    Starting { ranks: Ranks, deadline: Instant },
    /// They listen.
    Up {
        ranks: Ranks,
        /// The router has their addresses.
        is_announced: bool,
    },
    /// One is dead or was condemned; the others are being stopped.
    Stopping {
        ranks: Ranks,
        kill_at: Option<Instant>,
    },
    /// Nobody runs; started again at this time.
    Pausing { until: Instant },
}

impl GroupState {
    /// The processes that still run.
    pub(super) fn workers(&self) -> &[Worker] {
        match self {
            Self::Starting { ranks, .. }
            | Self::Up { ranks, .. }
            | Self::Stopping { ranks, .. } => &ranks.workers,
            Self::None | Self::Pausing { .. } => &[],
        }
    }

    /// Takes out the one that ended.
    pub(super) fn remove(&mut self, pid: Pid) -> Option<Worker> {
        match self {
            Self::Starting { ranks, .. }
            | Self::Up { ranks, .. }
            | Self::Stopping { ranks, .. } => {
                let place = ranks
                    .workers
                    .iter()
                    .position(|worker| worker.child.pid() == pid)?;
                Some(ranks.workers.remove(place))
            }
            Self::None | Self::Pausing { .. } => None,
        }
    }

    /// When `group_due` has something to do.
    pub(super) fn deadline(&self, now: Instant) -> Option<Instant> {
        match self {
            Self::Starting { .. } => Some(now + POLL),
            Self::Stopping { kill_at, .. } => *kill_at,
            Self::Pausing { until } => Some(*until),
            Self::None | Self::Up { .. } => None,
        }
    }
}

// The group's part of the supervisor.
impl Supervisor {
    /// Starts every rank with a new epoch.
    pub(super) fn start_group(&mut self) -> Result<(), End> {
        self.epoch += 1;
        self.write_document()?;
        let ranks = self.spawn_ranks().map_err(|error| {
            End::Failed(Failure::new(format!("{}: {error}", self.python.display())))
        })?;
        let plan = self.plan;
        self.log.info(&format!(
            "starting {} on {} with {}{}",
            count(plan.num_ranks, "worker"),
            plan.device_name(),
            count(plan.num_threads, "compute thread"),
            if plan.num_ranks == 1 { "" } else { " each" }
        ));
        self.group = GroupState::Starting {
            ranks,
            deadline: Instant::now() + LISTEN_LIMIT,
        };
        Ok(())
    }

    /// Each time, for a cleaner of temporary files takes what was not read for days.
    fn write_document(&self) -> Result<(), End> {
        let path = self.run_dir.document();
        serde_json::to_vec(&self.document)
            .map_err(std::io::Error::other)
            .and_then(|text| std::fs::write(&path, text))
            .map_err(|error| End::Failed(Failure::new(format!("{}: {error}", path.display()))))
    }

    fn spawn_ranks(&self) -> std::io::Result<Ranks> {
        let (their_end, lifeline) = pipe()?;
        let parent_fd = make_inheritable(&their_end)?.to_string();
        let mut workers: Vec<Worker> = Vec::new();
        for rank in 0..self.plan.num_ranks {
            let socket = self.run_dir.socket(rank, self.epoch);
            let command = self.worker_command(rank, &socket, &parent_fd);
            let name = format!("worker rank {rank}");
            match spawn(name, command, Output::Log, &self.log, &self.sender) {
                Ok(child) => workers.push(Worker {
                    child,
                    socket,
                    is_listening: false,
                }),
                Err(error) => {
                    for worker in &workers {
                        worker.child.signal(Signal::SIGKILL);
                    }
                    return Err(error);
                }
            }
        }
        keep_from_children(&their_end)?;
        Ok(Ranks {
            workers,
            start_epoch: self.epoch,
            was_announced: false,
            _lifeline: lifeline,
        })
    }

    fn worker_command(&self, rank: u32, socket: &PathBuf, parent_fd: &str) -> Command {
        let plan = self.plan;
        let mut command = Command::new(&self.python);
        command.args(["-m", "headrace.worker"]);
        command.arg("--document").arg(self.run_dir.document());
        command.args([
            "--rank",
            &rank.to_string(),
            "--world-size",
            &plan.num_ranks.to_string(),
        ]);
        command.arg("--socket").arg(socket);
        command
            .arg("--rendezvous")
            .arg(self.run_dir.rendezvous(self.epoch));
        command.args(["--compute-threads", &plan.num_threads.to_string()]);
        command.args(["--parent-fd", parent_fd, "--device", plan.device_name()]);
        command.args(["--log-level", self.log.format().level.worker_name()]);
        for secret in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN"] {
            command.env_remove(secret);
        }
        command
    }

    /// A process ended that is neither router nor downloader.
    pub(super) fn worker_ended(&mut self, pid: Pid, ending: Ending) -> Result<(), End> {
        let is_starting = matches!(self.group, GroupState::Starting { .. });
        let is_stopping = matches!(self.group, GroupState::Stopping { .. });
        // Others are orphans that came to us as process 1.
        let Some(worker) = self.group.remove(pid) else {
            return Ok(());
        };
        worker.child.sweep();
        let is_over =
            self.drain_deadline.is_some() && (self.has_drained || !self.router.is_running());
        if is_stopping || is_over {
            return Ok(());
        }
        let cause = worker.child.describe(ending);
        let never_listened = is_starting && !worker.is_listening;
        if never_listened && self.epoch == 1 && matches!(ending, Ending::Exit(_)) {
            // It refused at its first start: a second one would not go better.
            let line = if cause.contains("ImportError") || cause.contains("ModuleNotFoundError") {
                format!("{cause} (--python is {})", self.python.display())
            } else {
                cause
            };
            return Err(End::Failed(Failure::new(line)));
        }
        self.group_failed(&cause)
    }

    /// Stops what is left of the group, and tells the router unless this is the end.
    pub(super) fn group_failed(&mut self, cause: &str) -> Result<(), End> {
        self.condemned = None;
        if !self.stop_ranks() {
            return Ok(());
        }
        self.log.error(cause);
        let after = self.restarts.went_down(Instant::now());
        let is_final = after == AfterDeath::GiveUp;
        self.tell_router(&ToRouter::GroupDown {
            group: GROUP,
            cause: cause.to_owned(),
            is_final,
        });
        match after {
            AfterDeath::GiveUp => {
                let line = restart_limit(cause, self.settings.workers.max_restarts);
                Err(End::FailedAfterNotice(Failure::new(line)))
            }
            AfterDeath::Restart(pause) => {
                self.next_start = Instant::now() + pause;
                self.log.info(&format!(
                    "the workers start again in {:.1} s",
                    pause.as_secs_f32()
                ));
                Ok(())
            }
        }
    }

    /// The router is gone, and its streams to the workers with it. A single rank keeps its weights and waits for the next
    /// one. Of several, one may sit in a collective that another never entered: they start again, and that is not
    /// counted against them.
    pub(super) fn group_lost_router(&mut self, now: Instant) {
        let is_single = self.plan.num_ranks == 1;
        match &mut self.group {
            GroupState::Up { is_announced, .. } if is_single => *is_announced = false,
            GroupState::Up {
                is_announced: true, ..
            } => {
                self.condemned = None;
                self.stop_ranks();
                self.next_start = now;
                self.log.info("the workers start again with the router");
            }
            // Those that nobody talked to yet do not miss it.
            _ => {}
        }
    }

    /// Asks the ranks that run to end; `false` when they are on their way down already.
    fn stop_ranks(&mut self) -> bool {
        let state = std::mem::replace(&mut self.group, GroupState::None);
        let ranks = match state {
            GroupState::Starting { ranks, .. } | GroupState::Up { ranks, .. } => ranks,
            other => {
                self.group = other;
                return false;
            }
        };
        for worker in &ranks.workers {
            worker.child.signal(Signal::SIGTERM);
        }
        self.group = GroupState::Stopping {
            ranks,
            kill_at: Some(Instant::now() + STOP_GRACE),
        };
        true
    }

    /// What is due for the group now.
    pub(super) fn group_due(&mut self, now: Instant) -> Result<(), End> {
        match &mut self.group {
            GroupState::Starting { ranks, deadline } => {
                for worker in &mut ranks.workers {
                    worker.is_listening =
                        worker.is_listening || UnixStream::connect(&worker.socket).is_ok();
                }
                let late = ranks.workers.iter().find(|worker| !worker.is_listening);
                match late.map(|worker| worker.child.name().to_owned()) {
                    None => self.group_listens(now),
                    Some(name) if now >= *deadline => {
                        let limit = LISTEN_LIMIT.as_secs();
                        self.group_failed(&format!("{name} did not listen within {limit} s"))?;
                    }
                    Some(_) => {}
                }
            }
            GroupState::Stopping { ranks, .. } if ranks.workers.is_empty() => {
                let start_epoch = ranks.start_epoch;
                self.remove_sockets(start_epoch);
                self.group = GroupState::Pausing {
                    until: self.next_start,
                };
            }
            GroupState::Stopping { ranks, kill_at } => {
                if kill_at.is_some_and(|kill_at| now >= kill_at) {
                    for worker in &ranks.workers {
                        worker.child.signal(Signal::SIGKILL);
                    }
                    *kill_at = None;
                }
            }
            GroupState::Pausing { until } if now >= *until => return self.start_group(),
            GroupState::Up {
                is_announced: false,
                ..
            } => self.announce_group(),
            GroupState::Pausing { .. } | GroupState::Up { .. } | GroupState::None => {}
        }
        Ok(())
    }

    /// All ranks listen.
    fn group_listens(&mut self, now: Instant) {
        let state = std::mem::replace(&mut self.group, GroupState::None);
        self.group = match state {
            GroupState::Starting { ranks, .. } => GroupState::Up {
                ranks,
                is_announced: false,
            },
            other => other,
        };
        self.restarts.came_up(now);
        self.announce_group();
    }

    /// Hands the addresses to the router, once it knows the model.
    fn announce_group(&mut self) {
        let GroupState::Up {
            ranks,
            is_announced: is_announced @ false,
        } = &mut self.group
        else {
            return;
        };
        if !self.router.knows_model {
            return;
        }
        *is_announced = true;
        if std::mem::replace(&mut ranks.was_announced, true) {
            // The router before had the last one.
            self.epoch += 1;
        }
        let addresses = ranks
            .workers
            .iter()
            .map(|worker| format!("unix://{}", worker.socket.display()))
            .collect();
        let message = ToRouter::GroupUp {
            group: GROUP,
            epoch: self.epoch,
            addresses,
        };
        self.tell_router(&message);
    }

    /// A killed worker leaves its socket and meeting point.
    fn remove_sockets(&self, start_epoch: u64) {
        for rank in 0..self.plan.num_ranks {
            // Gone already, most of the time.
            let _ = std::fs::remove_file(self.run_dir.socket(rank, start_epoch));
        }
        let _ = std::fs::remove_file(self.run_dir.rendezvous(start_epoch));
    }
}

/// Why it ends when another restart would be one too many.
pub(super) fn restart_limit(cause: &str, most: u32) -> String {
    format!("{cause}; the limit of restarts is spent (--max-restarts {most})")
}

/// `1 worker`, `2 workers`.
pub(super) fn count(number: u32, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
