//! The router process and what is known of it.

use crate::failure::Failure;
use crate::log::Log;
use crate::processes::{
    Child, ControlLink, Ending, Event, Output, keep_from_children, make_inheritable, spawn,
};
use headrace_control::{CONTROL_FD_VARIABLE, RouterConfig, ToRouter};
use nix::sys::signal::Signal;
use std::process::Command;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// From its start to `Listening`.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);
/// Between its end and the end of its messages, whichever comes first.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// The router: one start of it, alive, just ended, or waiting for the next.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) child: Child,
    pub(super) control: ControlLink,
    /// 1 is the first.
    start: u32,
    address: Option<String>,
    /// It serves requests.
    pub(super) is_ready: bool,
    /// It heard `Model`.
    pub(super) knows_model: bool,
    started: Instant,
    /// What it said of its own end.
    complaint: Option<String>,
    ending: Option<Ending>,
    silence: Option<String>,
    /// When the first of `ending` and `silence` was seen.
    noticed: Option<Instant>,
    /// Why it gets SIGKILL: it lives, and is of no more use.
    condemned: Option<String>,
    /// It ended, and the next start is at this time.
    next_start: Option<Instant>,
}

impl Router {
    /// Starts `router` from the launcher's own folder and tells it how to serve. `start`: how often it was, with this one.
    pub(super) fn start(
        start: u32,
        config: &RouterConfig,
        log: &Log,
        events: &Sender<Event>,
    ) -> Result<Self, Failure> {
        let program = crate::python::own_folder()
            .map(|folder| folder.join("router"))
            .ok_or_else(|| Failure::new("the launcher does not know its own folder"))?;
        if !program.is_file() {
            return Err(Failure::new(format!("{}: no such file", program.display())));
        }
        let spawn_it = || -> std::io::Result<(Child, ControlLink)> {
            let (control, theirs) = ControlLink::pair()?;
            let mut command = Command::new(&program);
            command.env(CONTROL_FD_VARIABLE, make_inheritable(&theirs)?.to_string());
            for secret in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN"] {
                command.env_remove(secret);
            }
            let child = spawn("router", command, Output::Log, log, events)?;
            keep_from_children(&theirs)?;
            control.listen(start, events.clone())?;
            Ok((child, control))
        };
        let (child, control) =
            spawn_it().map_err(|error| Failure::new(format!("{}: {error}", program.display())))?;
        // One that ended at once is found out by its end, which says more than a broken pipe.
        let _ = control.send(&ToRouter::Configure(Box::new(config.clone())));
        Ok(Self {
            child,
            control,
            start,
            address: None,
            is_ready: false,
            knows_model: false,
            started: Instant::now(),
            complaint: None,
            ending: None,
            silence: None,
            noticed: None,
            condemned: None,
            next_start: None,
        })
    }

    pub(super) fn start_number(&self) -> u32 {
        self.start
    }

    /// It listens, or an earlier start did: port and flags are good.
    pub(super) fn has_listened(&self) -> bool {
        self.start > 1 || self.address.is_some()
    }

    pub(super) fn listens_on(&mut self, address: String) {
        self.address = Some(address);
    }

    pub(super) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    pub(super) fn is_running(&self) -> bool {
        self.ending.is_none()
    }

    pub(super) fn ended(&mut self, ending: Ending) {
        self.ending = Some(ending);
        self.noticed.get_or_insert_with(Instant::now);
    }

    pub(super) fn silent(&mut self, cause: String) {
        self.silence.get_or_insert(cause);
        self.noticed.get_or_insert_with(Instant::now);
    }

    pub(super) fn ended_well(&self) -> bool {
        self.ending == Some(Ending::Exit(0))
    }

    /// Its last words about what a restart may mend. They are told with its end.
    pub(super) fn complains(&mut self, cause: String) {
        self.complaint = Some(cause);
    }

    /// It lives, and is of no more use. `gone` tells this cause once it has ended.
    pub(super) fn condemn(&mut self, cause: String) {
        if self.condemned.is_none() {
            self.condemned = Some(cause);
            self.child.signal(Signal::SIGKILL);
        }
    }

    /// It has ended; started again at this time.
    pub(super) fn start_again_at(&mut self, at: Instant) {
        self.is_ready = false;
        self.knows_model = false;
        self.next_start = Some(at);
    }

    /// When the next start is.
    pub(super) fn next_start(&self) -> Option<Instant> {
        self.next_start
    }

    /// Why it is of no more use, once all of its messages were read. Said until it is condemned or started again.
    pub(super) fn gone(&self, now: Instant) -> Option<String> {
        if self.next_start.is_some() {
            return None;
        }
        if let Some(cause) = &self.condemned {
            return self.ending.map(|_| cause.clone());
        }
        if let Some(noticed) = self.noticed {
            let is_due = now >= noticed + LAST_WORDS_LIMIT;
            return match (self.ending, &self.silence) {
                (Some(ending), Some(_)) => Some(self.describe(ending)),
                (Some(ending), None) if is_due => Some(self.describe(ending)),
                (None, Some(cause)) if is_due => Some(cause.clone()),
                _ => None,
            };
        }
        let is_late = self.address.is_none() && now >= self.started + LISTEN_LIMIT;
        is_late.then(|| {
            format!(
                "the router did not listen within {} s",
                LISTEN_LIMIT.as_secs()
            )
        })
    }

    fn describe(&self, ending: Ending) -> String {
        match &self.complaint {
            Some(words) => format!("{} ended with {ending}: {words}", self.child.name()),
            None => self.child.describe(ending),
        }
    }

    /// When `gone` may have something new to say, or the next start is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.next_start.is_some() {
            return self.next_start;
        }
        if self.condemned.is_some() && self.ending.is_none() {
            return None;
        }
        match self.noticed {
            Some(noticed) if self.ending.is_some() && self.silence.is_some() => Some(noticed),
            Some(noticed) => Some(noticed + LAST_WORDS_LIMIT),
            None if self.address.is_none() => Some(self.started + LISTEN_LIMIT),
            None => None,
        }
    }
}
