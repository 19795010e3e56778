//! Workers that die by a sequence, by two together, or from outside.

mod meanwhile;
mod outside;
mod search;
mod together;

use std::collections::{BTreeMap, BTreeSet};

use headrace_scheduler::{Event, SchedulerConfig, SequenceFailure, StepPlan};

use crate::scene::{GROUP, Scene, config};

/// What ends the workers, and how often that was.
#[derive(Default)]
struct Doom {
    /// The token at which a sequence does.
    poison: BTreeMap<u64, usize>,
    /// Those that do with rows in one step.
    together: BTreeSet<u64>,
    crashes: u32,
    /// Ids computed for each, since the group came up.
    computed: BTreeMap<u64, usize>,
    /// Whose rows each step had.
    steps: Vec<Vec<u64>>,
}

impl Doom {
    fn poison(poison: &[(u64, usize)]) -> Self {
        Self {
            poison: poison.iter().copied().collect(),
            ..Self::default()
        }
    }

    fn together(ids: &[u64]) -> Self {
        Self {
            together: ids.iter().copied().collect(),
            ..Self::default()
        }
    }

    /// Whether the step ends the workers.
    fn meets(&mut self, scene: &Scene, plan: &StepPlan) -> bool {
        let rows = scene.rows(plan);
        self.steps.push(rows.clone());
        for new in &plan.new_sequences {
            let id = u64::from(new.token_ids[0] / 100);
            self.computed.insert(id, new.computed_length as usize);
        }
        let mut deadly =
            !self.together.is_empty() && self.together.iter().all(|id| rows.contains(id));
        for (row, id) in plan.rows.iter().zip(&rows) {
            let computed = self.computed.get_mut(id).unwrap();
            let end = *computed + row.num_tokens as usize;
            let poison = self.poison.get(id);
            deadly |= poison.is_some_and(|position| (*computed..end).contains(position));
            *computed = end;
        }
        deadly
    }
}

impl Scene {
    /// Plans and answers one step at a time until it is calm, or the workers died.
    fn run(&mut self, doom: &mut Doom) {
        while !self.scheduler.is_idle() {
            self.live(doom);
        }
    }

    /// One step, which may be the workers' last.
    fn live(&mut self, doom: &mut Doom) {
        let plan = self.plan();
        if doom.meets(self, &plan) {
            doom.crashes += 1;
            self.crash();
        } else {
            self.answer(&plan, 9);
        }
    }

    /// The workers die and come back; what failed by it is told.
    fn crash(&mut self) -> Vec<Event> {
        self.scheduler.group_crashed(self.now, GROUP);
        self.scheduler.audit();
        let events = self.scheduler.expire(self.now);
        self.hear(&events);
        self.up();
        events
    }

    fn suspects(&self) -> usize {
        self.scheduler.stats().suspects
    }

    fn assert_only_failed(&self, failed: &[u64], all: u64) {
        for id in 1..=all {
            let due = failed.contains(&id).then_some(SequenceFailure::WorkerCrash);
            assert_eq!(self.ended.get(&id), Some(&due), "sequence {id}");
        }
    }
}

fn scene(sequences: u64, max_new_tokens: u32) -> Scene {
    let bounds = SchedulerConfig {
        max_sequences: 128,
        max_batch_tokens: 1024,
        ..config()
    };
    let mut scene = Scene::new(bounds, 2048);
    for id in 1..=sequences {
        scene.submit(id, 6, max_new_tokens);
    }
    scene
}

fn halvings(sequences: u64) -> u32 {
    sequences.next_power_of_two().ilog2()
}
