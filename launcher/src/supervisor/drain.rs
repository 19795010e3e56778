//! How a run ends: draining, tearing down, leaving nothing behind.

use super::{End, Supervisor};
use crate::failure::Failure;
use crate::processes::{Child, Event, reap};
use headrace_control::ToRouter;
use nix::sys::signal::Signal;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// What the router gets beyond the grace time, to write its last answers.
const ROUTER_SLACK: Duration = Duration::from_secs(5);
/// From SIGTERM to SIGKILL at the end.
const STOP_GRACE: Duration = Duration::from_secs(3);
/// What stops a process and its group (`timeout`, some shells) signals the process twice at once: that is one signal.
const SAME_SIGNAL: Duration = Duration::from_millis(200);
/// For the router to tell its clients that no worker comes back.
const NOTICE: Duration = Duration::from_secs(2);
/// For the kernel to end what got SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(5);

impl Supervisor {
    /// SIGINT, SIGTERM or SIGHUP: the first asks for a drain, the second for the end.
    pub(super) fn stop_asked(&mut self, number: i32) -> Result<(), End> {
        let now = Instant::now();
        let Some(first) = self.signalled_at else {
            self.signalled_at = Some(now);
            return self.begin_drain();
        };
        if now.saturating_duration_since(first) < SAME_SIGNAL {
            return Ok(());
        }
        self.log.warn("a second signal: ending at once");
        Err(End::Now(number))
    }

    /// Asked for by a signal or over HTTP; once begun, asking again changes nothing. An orchestrator that asks over HTTP
    /// and then sends SIGTERM means one and the same drain.
    pub(super) fn begin_drain(&mut self) -> Result<(), End> {
        if self.drain_deadline.is_some() {
            return Ok(());
        }
        if !self.router.is_ready {
            // Nothing was admitted, by a router that comes back neither.
            self.log.info(if self.was_ready {
                "stopping before the router is back"
            } else {
                "stopping before it was ready"
            });
            return Err(End::Drained);
        }
        let grace_seconds = self.settings.grace_seconds;
        self.log.info(&format!(
            "draining: admitted requests get {grace_seconds} s; a second signal ends at once"
        ));
        self.tell_router(&ToRouter::Drain { grace_seconds });
        let grace = Duration::from_secs(grace_seconds.min(u64::from(u32::MAX)));
        self.drain_deadline = Some(Instant::now() + grace + ROUTER_SLACK);
        Ok(())
    }

    /// A router that outstays the grace time is stopped like the rest.
    pub(super) fn drain_due(&self, now: Instant) -> Result<(), End> {
        match self.drain_deadline {
            Some(deadline) if now >= deadline => Err(End::Failed(Failure::new(
                "the router did not end within the grace time",
            ))),
            _ => Ok(()),
        }
    }

    /// Stops everything and returns the exit code.
    pub(super) fn finish(mut self, end: End) -> Result<u8, Failure> {
        self.log.end_progress();
        match &end {
            End::Now(_) => self.signal_all(Signal::SIGKILL, true),
            End::FailedAfterNotice(_) => {
                self.tell_router(&ToRouter::Drain { grace_seconds: 1 });
                self.signal_all(Signal::SIGTERM, false);
                self.wait_for_all(NOTICE);
                self.signal_all(Signal::SIGTERM, true);
                self.wait_for_all(STOP_GRACE);
            }
            End::Drained | End::Failed(_) => {
                if self.router.is_running() {
                    // It ends by this message alone, and closes the workers' streams first.
                    self.tell_router(&ToRouter::Drain { grace_seconds: 0 });
                }
                self.signal_all(Signal::SIGTERM, true);
                self.wait_for_all(STOP_GRACE);
            }
        }
        self.signal_all(Signal::SIGKILL, true);
        self.wait_for_all(KILL_LIMIT);
        // As process 1 we may hold orphans that ended.
        reap();
        if let Err(error) = self.run_dir.remove() {
            self.log
                .warn(&format!("the private directory is left: {error}"));
        }
        match end {
            End::Drained => {
                self.log.info("ended");
                Ok(0)
            }
            // What a shell reports for a process that a signal ended.
            End::Now(number) => Ok(u8::try_from(128 + number).unwrap_or(1)),
            End::Failed(failure) | End::FailedAfterNotice(failure) => Err(failure),
        }
    }

    fn signal_all(&self, signal: Signal, with_router: bool) {
        for child in self.running() {
            if with_router || child.pid() != self.router.child.pid() {
                child.signal(signal);
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = &Child> {
        let router = self.router.is_running().then_some(&self.router.child);
        let workers = self.group.workers().iter().map(|worker| &worker.child);
        router
            .into_iter()
            .chain(self.source.download_child())
            .chain(workers)
    }

    /// Reaps until nobody is left or the time is over; a signal cuts it short.
    fn wait_for_all(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        loop {
            self.reap_quietly();
            let now = Instant::now();
            if now >= deadline || self.running().next().is_none() {
                return;
            }
            match self
                .events
                .recv_timeout((deadline - now).min(Duration::from_millis(50)))
            {
                Ok(Event::Stop(_)) => self.signal_all(Signal::SIGKILL, true),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn reap_quietly(&mut self) {
        for (pid, ending) in reap() {
            if self.router.child.pid() == pid {
                self.router.child.sweep();
                self.router.ended(ending);
            } else if self.source.is_download(pid) {
                if let Some(child) = self.source.download_child() {
                    child.sweep();
                }
                self.source.forget_download();
            } else if let Some(worker) = self.group.remove(pid) {
                worker.child.sweep();
            }
        }
    }
}
