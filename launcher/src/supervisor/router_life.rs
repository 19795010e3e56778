//! What the router says, and what becomes of it: it dies unexpectedly and is started again.

use super::group::restart_limit;
use super::model_source::Search;
use super::router::Router;
use super::{End, GROUP, REAP_GRACE, Supervisor};
use crate::failure::Failure;
use crate::restarts::AfterDeath;
use crate::settings::TOKENIZER_CONFIG;
use headrace_control::{Progress, ToLauncher, ToRouter};
use std::time::Instant;

impl Supervisor {
    /// A message of the router that runs.
    pub(super) fn router_says(&mut self, message: ToLauncher) -> Result<(), End> {
        match message {
            ToLauncher::Listening { address } => self.router_listens(address),
            ToLauncher::Ready { summary } => {
                self.log.end_progress();
                self.announce_ready(&summary);
                self.was_ready = true;
                if !self.router.is_ready {
                    self.router.is_ready = true;
                    self.router_restarts.came_up(Instant::now());
                }
                Ok(())
            }
            ToLauncher::Progress(progress) => {
                let Progress {
                    stage,
                    done,
                    total,
                    unit,
                } = progress;
                self.log.progress(&stage, done, total, &unit);
                Ok(())
            }
            ToLauncher::StepCompleted {
                group: GROUP,
                epoch,
            } if epoch == self.epoch => {
                self.restarts.step_completed();
                Ok(())
            }
            ToLauncher::Isolation {
                group: GROUP,
                suspects,
            } => {
                self.restarts.isolate(suspects > 0);
                Ok(())
            }
            ToLauncher::KillGroup {
                group: GROUP,
                epoch,
                reason,
            } if epoch == self.epoch => {
                let until = Instant::now() + REAP_GRACE;
                self.condemned.get_or_insert((reason, until));
                Ok(())
            }
            // Of a start that is over, or of a group that is not here.
            ToLauncher::StepCompleted { .. }
            | ToLauncher::KillGroup { .. }
            | ToLauncher::Isolation { .. } => Ok(()),
            ToLauncher::Failed { cause, is_final } => {
                let cause = self.with_flag(cause);
                // What a router says that comes back and cannot bind may have passed by the next time.
                if is_final && (self.router.start_number() == 1 || self.router.address().is_some())
                {
                    return Err(End::Failed(Failure::new(cause)));
                }
                self.log.debug(&cause);
                self.router.complains(cause);
                Ok(())
            }
            ToLauncher::DrainRequested => {
                self.log.info("a drain was asked for over HTTP");
                self.begin_drain()
            }
            ToLauncher::Drained => {
                self.log.debug("the router has drained");
                self.has_drained = true;
                Ok(())
            }
        }
    }

    /// A file that a flag named is told with it.
    fn with_flag(&self, cause: String) -> String {
        let path = self.settings.model.tokenizer_config.as_deref();
        let is_it = path
            .and_then(|path| std::path::absolute(path).ok())
            .is_some_and(|path| cause.starts_with(&format!("{}:", path.display())));
        if is_it {
            format!("{TOKENIZER_CONFIG} {cause}")
        } else {
            cause
        }
    }

    /// Its port is bound. A router that comes back is told of the model that is there; the workers follow.
    fn router_listens(&mut self, address: String) -> Result<(), End> {
        self.log
            .info(&format!("listening on {address}, not ready yet"));
        // `--port 0` took a free one: clients find the next router there too.
        if let Some((_, port)) = address.rsplit_once(':')
            && let Ok(port) = port.parse()
        {
            self.settings.router.port = port;
        }
        self.router.listens_on(address);
        if self.source.search == Search::NotBegun {
            return self.find_model();
        }
        self.give_model();
        Ok(())
    }

    /// Names the model to a router that can take it, once it was found.
    pub(super) fn give_model(&mut self) {
        if self.source.search != Search::Over || self.router.address().is_none() {
            return;
        }
        if let Some(document) = self.document.clone() {
            self.tell_router(&ToRouter::Model(Box::new(document)));
            self.router.knows_model = true;
        }
    }

    /// Notices that the router is of no more use, and starts the next one when that is due.
    pub(super) fn router_due(&mut self, now: Instant) -> Result<(), End> {
        if let Some(at) = self.router.next_start() {
            return if now >= at {
                self.start_router()
            } else {
                Ok(())
            };
        }
        let Some(cause) = self.router.gone(now) else {
            return Ok(());
        };
        if self.drain_deadline.is_some() {
            // What it was to finish ended with it.
            return Err(if self.router.ended_well() {
                End::Drained
            } else {
                End::Failed(Failure::new(cause))
            });
        }
        if !self.router.has_listened() {
            // A second one would meet the same port and the same flags.
            return Err(End::Failed(Failure::new(cause)));
        }
        if self.router.is_running() {
            self.router.condemn(cause);
            return Ok(());
        }
        self.router_failed(&cause, now)
    }

    fn router_failed(&mut self, cause: &str, now: Instant) -> Result<(), End> {
        self.log.end_progress();
        // Whom it suspected, it took along.
        self.restarts.isolate(false);
        match self.router_restarts.went_down(now) {
            AfterDeath::GiveUp => {
                let most = self.settings.workers.max_restarts;
                Err(End::Failed(Failure::new(restart_limit(cause, most))))
            }
            AfterDeath::Restart(pause) => {
                self.log.error(cause);
                self.log.info(&format!(
                    "the router starts again in {:.1} s",
                    pause.as_secs_f32()
                ));
                self.router.start_again_at(now + pause);
                self.group_lost_router(now);
                Ok(())
            }
        }
    }

    fn start_router(&mut self) -> Result<(), End> {
        let start = self.router.start_number() + 1;
        self.router = Router::start(start, &self.settings.router, &self.log, &self.sender)
            .map_err(End::Failed)?;
        if self.was_ready {
            self.tell_router(&ToRouter::Successor);
        }
        Ok(())
    }
}
