//! The launcher's part: it hears of groups that are of no more use and brings the next start up.

use headrace_control::{ToLauncher, ToRouter};
use headrace_scheduler::Time;
use std::time::Duration;

/// Where the group stands for the launcher.
#[derive(Debug, Default)]
pub(crate) struct Launcher {
    /// Of the newest start.
    pub(crate) epoch: u64,
    pub(crate) ready: u64,
    pub(crate) first_steps: u64,
    pub(crate) final_failures: Vec<String>,
    /// When the next start comes, if none is up or on its way.
    next_start: Option<Time>,
    kills: u64,
}

impl Launcher {
    pub(crate) fn new() -> Self {
        Self {
            next_start: Some(Time::default()),
            ..Self::default()
        }
    }

    /// Takes in what the engine says. `true`: it asked for the end of the newest start.
    pub(crate) fn hear(&mut self, now: Time, message: &ToLauncher) -> bool {
        match message {
            ToLauncher::KillGroup { group, epoch, .. } => {
                assert_eq!(*group, 0);
                assert!(*epoch <= self.epoch, "a start that never was");
                if *epoch == self.epoch && self.next_start.is_none() {
                    self.kills += 1;
                    self.restart_at(now);
                    return true;
                }
            }
            ToLauncher::StepCompleted { epoch, .. } => {
                assert!(*epoch <= self.epoch);
                self.first_steps += 1;
            }
            ToLauncher::Ready { .. } => self.ready += 1,
            ToLauncher::Failed { cause, .. } => self.final_failures.push(cause.clone()),
            _ => {}
        }
        false
    }

    /// The workers are gone: another start after the back-off.
    pub(crate) fn restart_at(&mut self, now: Time) {
        self.next_start = Some(Time(now.0 + Duration::from_millis(20)));
    }

    pub(crate) fn is_starting(&self) -> bool {
        self.next_start.is_some()
    }

    /// The next start, when its time has come.
    pub(crate) fn start(&mut self, now: Time) -> Option<ToRouter> {
        if self.next_start.is_none_or(|at| now < at) {
            return None;
        }
        self.next_start = None;
        self.epoch += 1;
        Some(ToRouter::GroupUp {
            group: 0,
            epoch: self.epoch,
            addresses: vec!["unix:///made-up".to_owned()],
        })
    }
}
