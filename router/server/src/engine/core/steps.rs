//! Steps out, answers in, events to the streams.

use super::effect::Effect;
use super::masks::Verdict;
use super::phase::GroupPhase;
use super::{EngineCore, GROUP};
use crate::engine::handle::SequenceEvent;
use crate::engine::masks::MaskReady;
use crate::engine::planted::{self, Bug};
use crate::metrics::{StepAnswered, StepSent};
use headrace_control::ToLauncher;
use headrace_scheduler::{Event, FinishReason, StepOutcome, Time};
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
            self.masks.announce(up.epoch, &plan, &mut self.effects);
            if planted::is(Bug::StepSentTwice) {
                self.effects.push_back(Effect::SendStep(plan.clone()));
            }
            self.effects.push_back(Effect::SendStep(plan));
            planned_any = true;
        }
        planned_any
    }

    pub(super) fn take_answer(&mut self, now: Time, epoch: u64, report: StepReport) {
        let (Some(scheduler), GroupPhase::Up(up)) = (&mut self.scheduler, &mut self.group) else {
            return;
        };
        if up.epoch != epoch && !planted::is(Bug::StaleAnswerTaken) {
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
        self.masks.note_answer(report.result.step_id);
        let is_first_success = succeeded && up.completes_its_first_step();
        let completed = scheduler.complete(now, report.result);
        if is_first_success {
            self.send(ToLauncher::StepCompleted {
                group: GROUP.0,
                epoch,
            });
        }
        match completed {
            Ok(events) => self.hear(events),
            Err(violation) => self.kill_group(now, &format!("protocol violation: {violation}")),
        }
    }

    /// What the scheduler reports; told later, but for the mask desk.
    pub(super) fn hear(&mut self, mut events: Vec<Event>) {
        self.masks.hear(&events, &mut self.effects);
        if self.untold.is_empty() {
            self.untold = events;
        } else {
            self.untold.append(&mut events);
        }
    }

    pub(super) fn take_mask(&mut self, now: Time, ready: &MaskReady) {
        let wanted = &ready.wanted;
        let vocab_size = self.model.as_ref().map_or(0, |model| model.vocab_size);
        let last_word = match self.masks.judge(ready, vocab_size) {
            None => return,
            Some(Verdict::Mask(mask)) => {
                if (self.group.epoch() == Some(wanted.epoch) && self.masks.settle(wanted))
                    || planted::is(Bug::StaleMaskSent)
                {
                    self.effects.push_back(Effect::SendMask {
                        step_id: wanted.step_id,
                        slot: wanted.mask.slot,
                        position: wanted.mask.position,
                        mask,
                    });
                }
                return;
            }
            Some(Verdict::Complete) => SequenceEvent::Finished(FinishReason::Eos),
            Some(Verdict::DeadEnd(reason)) => SequenceEvent::GrammarDeadEnd(reason),
        };
        self.streams.end(wanted.mask.sequence, last_word);
        self.forget(now, wanted.mask.sequence);
    }

    pub(super) fn tell_events(&mut self, now: Time) {
        if self.untold.is_empty() {
            return;
        }
        let events = std::mem::take(&mut self.untold);
        let telling = self.streams.tell(now, events, &self.metrics);
        for id in telling.paused {
            if let Some(scheduler) = &mut self.scheduler
                && !planted::is(Bug::PauseLost)
            {
                scheduler.pause(now, id);
            }
        }
        for id in telling.overflowed {
            self.forget(now, id);
        }
    }
}
