//! Random tenants under one seed: what two of them had is never further apart than stated, while both wait.

use std::collections::BTreeMap;
use std::time::Duration;

use headrace_scheduler::{
    Event, PolicyConfig, Scheduler, SchedulerConfig, SequenceId, SequenceRequest, Time,
};

use crate::random::Random;
use crate::support::{GROUP, answered, request};

const NOW: Time = Time(Duration::ZERO);
const TENANTS: usize = 4;
const MAX_PROMPT: u64 = 40;
const MAX_OUTPUT: u64 = 30;
const SLOTS: u32 = 3;

struct World {
    random: Random,
    scheduler: Scheduler,
    policy: PolicyConfig,
    tenant_of: BTreeMap<SequenceId, u64>,
    prompts: BTreeMap<SequenceId, u64>,
    waiting: [u64; TENANTS],
    /// Weighted, by the events and plans.
    had: [u64; TENANTS],
    /// For each pair that waits: the smallest and the largest difference since both do.
    apart: BTreeMap<(usize, usize), (i64, i64)>,
    next_id: u64,
    /// The widest gap, and how many gaps were measured.
    widest: u64,
    measured: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let policy = PolicyConfig {
            skip_ahead: Duration::ZERO,
            share_prefixes: Duration::ZERO,
            input_weight: 1 + u32::try_from(random.below(2)).unwrap(),
            output_weight: u32::try_from(random.below(4)).unwrap(),
            ..PolicyConfig::default()
        };
        let mut scheduler = Scheduler::new(SchedulerConfig {
            block_size: 16,
            max_batch_tokens: 64,
            max_sequences: SLOTS,
            max_total_tokens: 1000,
            prefix_caching: true,
            max_waiting_sequences: 1000,
            max_waiting_tokens: 1_000_000,
            max_steps_in_flight: 1,
            policy: policy.clone(),
        });
        scheduler.group_up(NOW, GROUP, 1000);
        Self {
            random,
            scheduler,
            policy,
            tenant_of: BTreeMap::new(),
            prompts: BTreeMap::new(),
            waiting: [0; TENANTS],
            had: [0; TENANTS],
            apart: BTreeMap::new(),
            next_id: 0,
            widest: 0,
            measured: 0,
        }
    }

    /// Tenants differ in how much they ask for.
    fn arrive(&mut self) {
        let tenant = self.random.below(TENANTS as u64);
        for _ in 0..self.random.below(2 + 2 * tenant) {
            self.next_id += 1;
            let id = SequenceId(self.next_id);
            let length = 1 + self
                .random
                .below(MAX_PROMPT * (tenant + 1) / TENANTS as u64);
            // No two begin alike, so that nothing comes from the cache.
            let mut prompt = vec![u32::try_from(self.next_id).unwrap()];
            prompt.resize(usize::try_from(length).unwrap(), 1);
            let max_new_tokens = u32::try_from(1 + self.random.below(MAX_OUTPUT)).unwrap();
            let request = SequenceRequest {
                tenant,
                ..request(self.next_id, prompt, max_new_tokens)
            };
            self.scheduler.submit(NOW, request).unwrap();
            self.tenant_of.insert(id, tenant);
            self.prompts.insert(id, length);
            self.waiting[usize::try_from(tenant).unwrap()] += 1;
        }
    }

    fn step(&mut self) {
        let Some(plan) = self.scheduler.plan(NOW, GROUP) else {
            return;
        };
        for new in &plan.new_sequences {
            let id = SequenceId(u64::from(new.token_ids[0]));
            assert_eq!(new.computed_length, 0);
            let tenant = usize::try_from(self.tenant_of[&id]).unwrap();
            self.waiting[tenant] -= 1;
            self.had[tenant] += self.prompts[&id] * u64::from(self.policy.input_weight);
        }
        self.measure();
        for event in self.scheduler.complete(NOW, answered(&plan, 1)).unwrap() {
            if let Event::Token { id, .. } = event {
                let tenant = usize::try_from(self.tenant_of[&id]).unwrap();
                self.had[tenant] += u64::from(self.policy.output_weight);
            }
        }
        self.scheduler.audit();
    }

    fn measure(&mut self) {
        let prompt = MAX_PROMPT * u64::from(self.policy.input_weight);
        let output = MAX_OUTPUT * u64::from(SLOTS * self.policy.output_weight);
        for one in 0..self.had.len() {
            for other in 0..one {
                if self.waiting[one] == 0 || self.waiting[other] == 0 {
                    self.apart.remove(&(one, other));
                    continue;
                }
                let gap = self.had[one].cast_signed() - self.had[other].cast_signed();
                let (low, high) = self.apart.entry((one, other)).or_insert((gap, gap));
                *low = gap.min(*low);
                *high = gap.max(*high);
                let apart = high.abs_diff(*low);
                assert!(apart <= 2 * prompt.max(output), "{apart} apart");
                self.widest = self.widest.max(apart);
                self.measured += 1;
            }
        }
    }
}

/// Gaps measured, and the widest of them.
pub(crate) fn run(seed: u64) -> (u64, u64) {
    let mut world = World::new(seed);
    for _ in 0..400 {
        if world.scheduler.stats().waiting < 50 && world.random.below(3) == 0 {
            world.arrive();
        }
        world.step();
    }
    (world.measured, world.widest)
}
