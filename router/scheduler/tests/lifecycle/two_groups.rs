//! Two groups of workers, one of which a sequence kills wherever it runs.

use std::collections::BTreeMap;

use headrace_scheduler::{
    Event, GroupId, Scheduler, SchedulerConfig, SequenceFailure, SequenceId, Slot, StepOutcome,
    StepPlan, StepResult, Time,
};

use crate::scene::{Scene, config, request};

const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(1)];

/// Enough for every sequence in each group.
const BLOCKS: u32 = 1024;

struct World {
    scheduler: Scheduler,
    now: Time,
    culprit: u64,
    slots: BTreeMap<(GroupId, Slot), u64>,
    ended: BTreeMap<u64, Option<SequenceFailure>>,
    ids: BTreeMap<u64, usize>,
    crashes: BTreeMap<GroupId, u32>,
    /// Steps with rows of a group while the other one's sequences were searched.
    beside: u32,
}

impl World {
    fn new(culprit: u64) -> Self {
        let mut scheduler = Scheduler::new(SchedulerConfig {
            max_batch_tokens: 256,
            max_sequences: 16,
            ..config()
        });
        for group in GROUPS {
            scheduler.group_up(Time::default(), group, BLOCKS);
        }
        Self {
            scheduler,
            now: Time::default(),
            culprit,
            slots: BTreeMap::new(),
            ended: BTreeMap::new(),
            ids: BTreeMap::new(),
            crashes: BTreeMap::new(),
            beside: 0,
        }
    }

    fn plan(&mut self, group: GroupId) -> Option<StepPlan> {
        let plan = self.scheduler.plan(self.now, group)?;
        self.scheduler.audit();
        for slot in &plan.finished_slots {
            self.slots.remove(&(group, *slot));
        }
        for new in &plan.new_sequences {
            let id = u64::from(new.token_ids[0] / 100);
            self.slots.insert((group, new.slot), id);
        }
        Some(plan)
    }

    fn live(&mut self, group: GroupId) {
        self.now.0 += std::time::Duration::from_millis(1);
        let Some(plan) = self.plan(group) else {
            return;
        };
        let rows: Vec<u64> = plan
            .rows
            .iter()
            .map(|row| self.slots[&(group, row.slot)])
            .collect();
        if rows.contains(&self.culprit) {
            *self.crashes.entry(group).or_default() += 1;
            self.scheduler.group_crashed(self.now, group);
            self.scheduler.audit();
            let events = self.scheduler.expire(self.now);
            self.hear(&events);
            self.slots.retain(|(other, _), _| *other != group);
            self.scheduler.group_up(self.now, group, BLOCKS);
            return;
        }
        if self.scheduler.stats().suspects > 0 && !rows.is_empty() {
            self.beside += 1;
        }
        let result = StepResult {
            group,
            step_id: plan.step_id,
            outcome: StepOutcome::Ok(Scene::results(&plan, 9)),
        };
        let events = self.scheduler.complete(self.now, result).unwrap();
        self.scheduler.audit();
        self.hear(&events);
    }

    fn hear(&mut self, events: &[Event]) {
        for event in events {
            let id = event.sequence().0;
            let end = match event {
                Event::Token { .. } => {
                    *self.ids.entry(id).or_default() += 1;
                    continue;
                }
                Event::Finished { .. } => None,
                Event::Failed { failure, .. } => Some(failure.clone()),
                _ => continue,
            };
            assert!(self.ended.insert(id, end).is_none(), "{id} ends twice");
        }
    }
}

#[test]
fn a_sequence_that_kills_the_workers_of_either_group_is_found_and_nobody_else_is_lost() {
    const SEQUENCES: u64 = 16;
    const OUTPUT: u32 = 12;
    for culprit in [1, 2, 9, 16] {
        let mut world = World::new(culprit);
        for id in 1..=SEQUENCES {
            world
                .scheduler
                .submit(world.now, request(id, 6, OUTPUT))
                .unwrap();
        }
        let mut turns = 0;
        while !world.scheduler.is_idle() {
            world.live(GROUPS[turns % 2]);
            turns += 1;
            assert!(turns < 2000, "no end with {culprit}");
        }
        for id in 1..=SEQUENCES {
            let due = (id == culprit).then_some(SequenceFailure::WorkerCrash);
            assert_eq!(world.ended.get(&SequenceId(id).0), Some(&due), "{id}");
            // Each id once, whichever group computed it.
            let told = if id == culprit { 0 } else { OUTPUT as usize };
            assert_eq!(world.ids.get(&id).copied().unwrap_or(0), told, "{id}");
        }
        // Two, the halvings of what one group held, and two alone; in the other group the same, if it went there once.
        let crashes: u32 = world.crashes.values().sum();
        assert!(crashes <= 2 * (2 + 4 + 2), "{crashes} crashes");
        assert!(world.beside > 0, "everything stood still during the search");
        assert_eq!(world.scheduler.stats().suspects, 0);
    }
}
