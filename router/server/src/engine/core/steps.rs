//! Steps out, answers in, events to the streams.

use super::effect::Effect;
use super::phase::GroupPhase;
use super::{EngineCore, GROUP};
use crate::metrics::{StepAnswered, StepSent};
use headrace_control::ToLauncher;
use headrace_scheduler::{StepOutcome, Time};
use headrace_worker_client::StepReport;

impl EngineCore {
    pub(super) fn plan_steps(&mut self, now: Time) -> bool {
        let (Some(scheduler), GroupPhase::Up(up)) = (&mut self.scheduler, &mut self.group) else {
            return false;
        };
        let mut planned_any = false;
        while let Some(plan) = scheduler.plan(now, GROUP) {
            let sent = up.sends(now, &plan);
            self.metrics.step_sent(&StepSent {
                method: sent.method,
                rows: sent.rows,
                entered: sent.entered,
                running_max_tokens: self.streams.running_max_tokens(),
            });
            self.effects.push_back(Effect::SendStep(plan));
            planned_any = true;
        }
        planned_any
    }

    pub(super) fn take_answer(&mut self, now: Time, epoch: u64, report: StepReport) {
        let (Some(scheduler), GroupPhase::Up(up)) = (&mut self.scheduler, &mut self.group) else {
            return;
        };
        if up.epoch != epoch {
            return;
        }
        let succeeded = matches!(report.result.outcome, StepOutcome::Ok(_));
        if let StepOutcome::Failed(words) | StepOutcome::OutOfMemory(words) = &report.result.outcome
        {
            tracing::warn!(step = report.result.step_id, "a step failed: {words}");
        }
        if let Some((step, took)) = up.answered(now) {
            self.metrics.step_answered(&StepAnswered {
                method: step.method,
                succeeded,
                round_trip: took,
                timings: report.timings,
                entered: step.entered,
            });
        }
        self.steps_completed += 1;
        let is_first_success = succeeded && up.completes_its_first_step();
        let completed = scheduler.complete(now, report.result);
        if is_first_success {
            self.send(ToLauncher::StepCompleted {
                group: GROUP.0,
                epoch,
            });
        }
        match completed {
            Ok(events) => self.untold = events,
            Err(violation) => self.kill_group(now, &format!("protocol violation: {violation}")),
        }
    }

    pub(super) fn tell_events(&mut self, now: Time) {
        if self.untold.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.untold);
        for id in self.streams.tell(now, events, &self.metrics) {
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.cancel(now, id);
            }
        }
    }
}
