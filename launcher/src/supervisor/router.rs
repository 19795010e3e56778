//! The router process and what is known of it.

use crate::failure::Failure;
use crate::log::Log;
use crate::processes::{
    Child, ControlLink, Ending, Event, Output, keep_from_children, make_inheritable, spawn,
};
use headrace_control::{CONTROL_FD_VARIABLE, RouterConfig, ToRouter};
use std::process::Command;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// From its start to `Listening`.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);
/// Between its end and the end of its messages, whichever comes first.
const LAST_WORDS_LIMIT: Duration = Duration::from_secs(1);

/// The router, alive or just ended.
#[derive(Debug)]
pub(super) struct Router {
    pub(super) child: Child,
    pub(super) control: ControlLink,
    address: Option<String>,
    started: Instant,
    ending: Option<Ending>,
    silence: Option<String>,
    /// When the first of `ending` and `silence` was seen.
    noticed: Option<Instant>,
}

impl Router {
    /// Starts `router` from the launcher's own folder and tells it how to serve.
    pub(super) fn start(
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
        let start = || -> std::io::Result<(Child, ControlLink)> {
            let (control, theirs) = ControlLink::pair()?;
            let mut command = Command::new(&program);
            command.env(CONTROL_FD_VARIABLE, make_inheritable(&theirs)?.to_string());
            for secret in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN"] {
                command.env_remove(secret);
            }
            let child = spawn("router", command, Output::Log, log, events)?;
            keep_from_children(&theirs)?;
            control.listen(events.clone())?;
            Ok((child, control))
        };
        let (child, control) =
            start().map_err(|error| Failure::new(format!("{}: {error}", program.display())))?;
        // One that ended at once is found out by its end, which says more than a broken pipe.
        let _ = control.send(&ToRouter::Configure(Box::new(config.clone())));
        Ok(Self {
            child,
            control,
            address: None,
            started: Instant::now(),
            ending: None,
            silence: None,
            noticed: None,
        })
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

    /// Why the run is over because of the router, once all of its messages were read.
    pub(super) fn gone(&self, now: Instant) -> Option<String> {
        if let Some(noticed) = self.noticed {
            let is_due = now >= noticed + LAST_WORDS_LIMIT;
            return match (self.ending, &self.silence) {
                (Some(ending), Some(_)) => Some(self.child.describe(ending)),
                (Some(ending), None) if is_due => Some(self.child.describe(ending)),
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

    /// When `gone` may have something new to say.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.noticed {
            Some(noticed) if self.ending.is_some() && self.silence.is_some() => Some(noticed),
            Some(noticed) => Some(noticed + LAST_WORDS_LIMIT),
            None if self.address.is_none() => Some(self.started + LISTEN_LIMIT),
            None => None,
        }
    }
}
