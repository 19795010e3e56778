//! A scheduler with one group, and workers that answer as they are told.

use std::collections::BTreeMap;
use std::time::Duration;

use headrace_scheduler::{
    Event, ProtocolViolation, RowResult, Scheduler, SchedulerConfig, SequenceFailure, SequenceId,
    SequenceRequest, Slot, StepOutcome, StepPlan, Time, TokenId,
};

use crate::support;
pub(crate) use crate::support::{GROUP, config, token};

/// A prompt of `length` ids that no other sequence begins with.
pub(crate) fn request(id: u64, length: u32, max_new_tokens: u32) -> SequenceRequest {
    let first = 100 * u32::try_from(id).unwrap();
    support::request(
        id,
        (first..first + length).collect::<Vec<_>>(),
        max_new_tokens,
    )
}

/// See the module.
pub(crate) struct Scene {
    pub(crate) scheduler: Scheduler,
    pub(crate) now: Time,
    blocks: u32,
    slots: BTreeMap<Slot, u64>,
    pub(crate) ended: BTreeMap<u64, Option<SequenceFailure>>,
}

impl Scene {
    pub(crate) fn new(config: SchedulerConfig, blocks: u32) -> Self {
        let mut scene = Self {
            scheduler: Scheduler::new(config),
            now: Time::default(),
            blocks,
            slots: BTreeMap::new(),
            ended: BTreeMap::new(),
        };
        scene.up();
        scene
    }

    pub(crate) fn up(&mut self) {
        self.slots.clear();
        self.scheduler.group_up(self.now, GROUP, self.blocks);
    }

    pub(crate) fn submit(&mut self, id: u64, length: u32, max_new_tokens: u32) {
        self.take(request(id, length, max_new_tokens));
    }

    pub(crate) fn take(&mut self, request: SequenceRequest) {
        self.scheduler.submit(self.now, request).unwrap();
    }

    pub(crate) fn cancel(&mut self, id: u64) {
        assert!(self.scheduler.cancel(self.now, SequenceId(id)));
        self.scheduler.audit();
    }

    /// The next step, which must exist.
    pub(crate) fn plan(&mut self) -> StepPlan {
        self.try_plan().unwrap()
    }

    pub(crate) fn try_plan(&mut self) -> Option<StepPlan> {
        self.now.0 += Duration::from_micros(10);
        let plan = self.scheduler.plan(self.now, GROUP)?;
        self.scheduler.audit();
        for slot in &plan.finished_slots {
            self.slots.remove(slot);
        }
        for new in &plan.new_sequences {
            self.slots
                .insert(new.slot, u64::from(new.token_ids[0] / 100));
        }
        Some(plan)
    }

    /// Whose rows a step has, in order.
    pub(crate) fn rows(&self, plan: &StepPlan) -> Vec<u64> {
        plan.rows.iter().map(|row| self.slots[&row.slot]).collect()
    }

    /// Every row does what it was asked; those that sample give `id`.
    pub(crate) fn results(plan: &StepPlan, id: TokenId) -> Vec<RowResult> {
        support::rows(plan, id)
    }

    pub(crate) fn try_complete(
        &mut self,
        plan: &StepPlan,
        outcome: StepOutcome,
    ) -> Result<Vec<Event>, ProtocolViolation> {
        let events = self
            .scheduler
            .complete(self.now, support::result(plan, outcome));
        self.scheduler.audit();
        self.hear(events.as_deref().unwrap_or_default());
        events
    }

    pub(crate) fn answer(&mut self, plan: &StepPlan, id: TokenId) -> Vec<Event> {
        let results = Self::results(plan, id);
        self.try_complete(plan, StepOutcome::Ok(results)).unwrap()
    }

    /// Plans one step and answers it; whose rows it had.
    pub(crate) fn step(&mut self) -> Vec<u64> {
        let plan = self.plan();
        let rows = self.rows(&plan);
        self.answer(&plan, 9);
        rows
    }

    /// Until nothing is left.
    pub(crate) fn drain(&mut self) {
        while !self.scheduler.is_idle() {
            self.step();
        }
    }

    /// Each sequence ends once.
    pub(crate) fn hear(&mut self, events: &[Event]) {
        for event in events {
            let end = match event {
                Event::Finished { .. } => None,
                Event::Failed { failure, .. } => Some(failure.clone()),
                _ => continue,
            };
            let before = self.ended.insert(event.sequence().0, end);
            assert!(before.is_none(), "{event:?} is a second end");
        }
    }
}
