//! What the launcher says, and what becomes of the group: model, start, restart, watchdog, drain.

use super::effect::{Effect, GroupFacts, StartFailure};
use super::phase::{GroupPhase, since};
use super::{EngineCore, GROUP};
use crate::engine::config::EngineConfig;
use crate::engine::handle::{Interruption, SequenceEvent};
use crate::engine::planted::{self, Bug};
use crate::engine::status::ModelLimits;
use headrace_control::{ModelDocument, Progress, ReadySummary, ToLauncher, ToRouter};
use headrace_scheduler::{GroupId, Scheduler, Time};
use headrace_worker_client::GroupRequest;
use std::time::Duration;

/// Progress that goes to the launcher within one stage.
const PROGRESS_PERIOD: Duration = Duration::from_millis(100);

/// A grace time that ends beyond the clock's range is for ever; a day is that here.
const LONGEST_GRACE: Duration = Duration::from_hours(24);

/// How a group that was up is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It died, hung or broke the protocol: what ran may have been the cause.
    Crash,
    /// The launcher started it afresh.
    Restart,
}

impl EngineCore {
    pub(super) fn take_control(&mut self, now: Time, message: ToRouter) {
        match message {
            ToRouter::Configure(_) => tracing::warn!("configured a second time: ignored"),
            ToRouter::Model(document) => self.take_model(document),
            ToRouter::GroupUp {
                group,
                epoch,
                addresses,
            } => {
                self.take_group_up(now, group, epoch, addresses);
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
                // The launcher has logged the cause.
                tracing::debug!(is_final, "the worker group is down: {cause}");
                // The launcher may have seen the workers die before their streams broke.
                self.drop_group(now, &cause, Loss::Crash);
                if is_final {
                    self.give_up(now, cause);
                }
            }
            ToRouter::Progress(progress) => {
                self.status.update(|board| board.progress = Some(progress));
            }
            ToRouter::Successor => self.status.update(|board| board.is_successor = true),
            ToRouter::Drain { grace_seconds } => self.begin_drain(now, grace_seconds),
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

    fn take_group_up(&mut self, now: Time, group: u32, epoch: u64, addresses: Vec<String>) {
        let Some(model) = &self.model else {
            self.fail(
                now,
                "a worker group came up before the model was named".to_owned(),
                true,
            );
            return;
        };
        if GroupId(group) != GROUP {
            self.fail(
                now,
                format!("group {group} came up; this router owns group 0"),
                true,
            );
            return;
        }
        let longest = model.max_position_embeddings;
        tracing::info!(epoch, ranks = addresses.len(), "the worker group listens");
        // A fresh start of workers that are still up: what ran on the old streams starts over.
        self.drop_group(now, "a new start of the group", Loss::Restart);
        let request = group_request(&self.config, epoch, longest, self.prepared_blocks);
        self.group = GroupPhase::Starting { epoch, heard: now };
        self.effects.push_back(Effect::StartGroup {
            epoch,
            addresses,
            request,
        });
    }

    pub(super) fn take_start(
        &mut self,
        now: Time,
        epoch: u64,
        outcome: Result<GroupFacts, StartFailure>,
    ) {
        if !matches!(self.group, GroupPhase::Starting { epoch: due, .. } if due == epoch) {
            return;
        }
        let GroupFacts {
            description,
            num_blocks,
            prepared_blocks,
        } = match outcome {
            Ok(facts) => facts,
            Err(StartFailure { cause, is_final }) if is_final => {
                self.forget_group();
                self.fail(now, cause, true);
                return;
            }
            Err(StartFailure { cause, .. }) => {
                if !planted::is(Bug::FailedStartForgotten) {
                    self.kill_group(now, &cause);
                }
                return;
            }
        };
        let (Some(scheduler), Some(model)) = (&mut self.scheduler, &self.model) else {
            return;
        };
        if description.vocab_size != model.vocab_size {
            let cause = format!(
                "the workers have a vocabulary of {}, the model's files of {}",
                description.vocab_size, model.vocab_size
            );
            self.forget_group();
            self.fail(now, cause, true);
            return;
        }
        scheduler.group_up(now, GROUP, num_blocks);
        self.prepared_blocks.get_or_insert(prepared_blocks);
        let limits = ModelLimits {
            max_total_tokens: scheduler.max_total_tokens(),
            vocab_size: description.vocab_size,
            max_sequences: self.config.max_sequences,
            max_batch_tokens: self.config.max_batch_tokens,
            pool_tokens: u64::from(num_blocks) * u64::from(self.config.block_size),
            block_size: self.config.block_size,
            is_cuda: description.device.starts_with("cuda"),
        };
        self.limits = Some(limits);
        self.group = GroupPhase::up(epoch);
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

    /// When a group is up and requests can be validated: the first time, and after each restart.
    pub(super) fn announce(&mut self) {
        let (Some(limits), Some(description)) = (self.limits, &self.description) else {
            return;
        };
        if !self.services_ready {
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
        let message = ToLauncher::Ready {
            summary: ReadySummary {
                num_blocks: u32::try_from(num_blocks).unwrap_or(u32::MAX),
                block_size: limits.block_size,
                max_total_tokens: limits.max_total_tokens,
                kernel_set: description.kernel_set.clone(),
                device: description.device.clone(),
            },
        };
        self.send(message);
    }

    pub(super) fn take_progress(&mut self, now: Time, epoch: u64, progress: Progress) {
        match &mut self.group {
            GroupPhase::Starting { epoch: due, heard } if *due == epoch => *heard = now,
            _ => return,
        }
        let is_due = match &self.last_progress {
            Some((stage, at)) => {
                *stage != progress.stage
                    || since(now, *at) >= PROGRESS_PERIOD
                    || progress.done == progress.total
            }
            None => true,
        };
        if !is_due {
            return;
        }
        self.last_progress = Some((progress.stage.clone(), now));
        self.status
            .update(|board| board.progress = Some(progress.clone()));
        self.send(ToLauncher::Progress(progress));
    }

    /// The group is of no more use: its sequences go back to the queue, and the launcher starts it again.
    pub(super) fn kill_group(&mut self, now: Time, reason: &str) {
        let Some(epoch) = self.group.epoch() else {
            return;
        };
        // Not a louder line: the launcher logs why the group goes, and it may know better, by how a process ended.
        tracing::debug!(epoch, "the worker group is of no more use: {reason}");
        // Suspicion first: this very restart is part of the search then.
        self.drop_group(now, reason, Loss::Crash);
        self.send(ToLauncher::KillGroup {
            group: GROUP.0,
            epoch,
            reason: reason.to_owned(),
        });
    }

    fn drop_group(&mut self, now: Time, cause: &str, loss: Loss) {
        let was_up = matches!(self.group, GroupPhase::Up(_));
        self.forget_group();
        if was_up {
            if let Some(scheduler) = &mut self.scheduler
                && !planted::is(Bug::DeathKeepsBooks)
            {
                match loss {
                    // Workers that go while the server drains were told to, or may have been.
                    Loss::Crash if self.drain_deadline.is_none() => {
                        scheduler.group_crashed(now, GROUP);
                    }
                    Loss::Crash | Loss::Restart => scheduler.group_down(now, GROUP),
                }
                let suspects = scheduler.stats().suspects;
                self.report_isolation(suspects as u64);
            }
            self.metrics.idle();
        }
        self.status.update(|board| {
            board.group_up = false;
            board.down_cause = Some(cause.to_owned());
        });
    }

    fn forget_group(&mut self) {
        if self.group.epoch().is_some() {
            self.group = GroupPhase::Down;
            self.masks.forget_group();
            self.effects.push_back(Effect::DropGroup);
        }
    }

    /// No group will come any more: what is admitted ends with an error.
    fn give_up(&mut self, now: Time, cause: String) {
        self.status
            .update(|board| board.final_cause = Some(cause.clone()));
        self.final_cause = Some(cause.clone());
        self.interrupt_all(now, &Interruption::WorkersLost(cause));
    }

    fn fail(&mut self, now: Time, cause: String, is_final: bool) {
        if is_final {
            // The launcher's last line, on standard error.
            tracing::debug!("{cause}");
        } else {
            tracing::error!("{cause}");
        }
        self.send(ToLauncher::Failed {
            cause: cause.clone(),
            is_final,
        });
        if is_final {
            self.give_up(now, cause);
        }
    }

    fn begin_drain(&mut self, now: Time, grace_seconds: u64) {
        if self.drain_deadline.is_some() {
            return;
        }
        tracing::info!(grace_seconds, open = self.streams.len(), "draining");
        let grace = Duration::from_secs(grace_seconds);
        let deadline = now.0.checked_add(grace);
        self.drain_deadline = Some(Time(deadline.unwrap_or(now.0 + LONGEST_GRACE)));
        self.status.update(|board| board.draining = true);
    }

    pub(super) fn take_tick(&mut self, now: Time, quietest: Option<(usize, Time)>) {
        if let Some(reason) = self.group.hung(now, &self.config.watchdog, quietest) {
            self.kill_group(now, &reason);
        }
        self.end_drain_when_due(now);
        let limit = self.config.stall_timeout;
        for id in self.streams.stalled(now, limit) {
            let word = SequenceEvent::Interrupted(Interruption::Stalled);
            if self.streams.end(id, word) {
                self.forget(now, id);
            }
        }
    }

    pub(super) fn end_drain_when_due(&mut self, now: Time) {
        if self.drain_deadline.is_some_and(|deadline| now >= deadline) {
            self.interrupt_all(now, &Interruption::DrainDeadline);
        }
    }

    fn interrupt_all(&mut self, now: Time, why: &Interruption) {
        let ids = self.streams.interrupt_all(why);
        if !ids.is_empty() {
            tracing::warn!(count = ids.len(), "sequences were ended: {why}");
        }
        for id in ids {
            if !planted::is(Bug::InterruptionKeepsRunning) {
                self.forget(now, id);
            }
        }
    }
}

/// What the group's workers are asked to prepare.
fn group_request(
    config: &EngineConfig,
    epoch: u64,
    max_position_embeddings: u32,
    required_blocks: Option<u32>,
) -> GroupRequest {
    let scheduler = config.scheduler(max_position_embeddings);
    GroupRequest {
        epoch,
        block_size: scheduler.block_size,
        max_batch_tokens: scheduler.max_batch_tokens,
        max_sequences: scheduler.max_sequences,
        max_total_tokens: scheduler.max_total_tokens,
        kv_cache_bytes: config.kv_cache_bytes,
        required_blocks,
        max_blocks: config.max_blocks,
        poison_fresh_blocks: config.poison_fresh_blocks,
    }
}
