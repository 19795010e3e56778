//! What stays cached when memory is short, against a list of what was used and when: sequences that share nothing run
//! one after the other, and some come again.
//!
//! A prompt is whole blocks and one id, and one id is sampled. So a sequence leaves its blocks, of which the last goes
//! first, and a tail of one id, which goes before them.

use std::sync::Arc;

use headrace_scheduler::{
    PolicyConfig, Retention, Scheduler, SchedulerConfig, SequenceRequest, Time, TokenId,
};

use crate::random::Random;
use crate::support::{GROUP, answered, request};

const BLOCK_SIZE: u32 = 4;

/// What one prompt has in the cache.
#[derive(Clone, Debug)]
struct Entry {
    prompt: Arc<[TokenId]>,
    blocks: usize,
    /// Retention and time of last use of the blocks, and of the tail.
    worth: (u8, u64),
    tail: Option<(u8, u64)>,
}

struct World {
    random: Random,
    scheduler: Scheduler,
    entries: Vec<Entry>,
    free: usize,
    clock: u64,
    evicted: u64,
}

/// Blocks evicted.
pub(crate) fn run(seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let num_blocks = random.u32_between(6, 30);
    let mut scheduler = Scheduler::new(SchedulerConfig {
        block_size: BLOCK_SIZE,
        max_batch_tokens: 1000,
        max_sequences: 2,
        max_total_tokens: 1000,
        prefix_caching: true,
        max_waiting_sequences: 10,
        max_waiting_tokens: 1000,
        max_steps_in_flight: 1,
        policy: PolicyConfig::default(),
    });
    scheduler.group_up(Time::default(), GROUP, num_blocks);
    let mut world = World {
        random,
        scheduler,
        entries: Vec::new(),
        free: num_blocks as usize,
        clock: 0,
        evicted: 0,
    };
    for _ in 0..40 {
        world.serve_one();
        world.check();
    }
    world.evicted
}

impl World {
    fn serve_one(&mut self) {
        let known = self.entries.len();
        let at = if known > 0 && self.random.percent(30) {
            self.random.between(0, known - 1)
        } else {
            let blocks = self.random.u32_between(1, 4);
            let first = u32::try_from(known).unwrap() * 100;
            self.entries.push(Entry {
                prompt: (first..=first + blocks * BLOCK_SIZE).collect(),
                blocks: 0,
                worth: (0, 0),
                tail: None,
            });
            known
        };
        let retention = self.random.pick(&[0, 35, 35, 100]);
        self.run_prompt(at, retention);
        self.expect(at, retention);
    }

    fn run_prompt(&mut self, at: usize, retention: u8) {
        let now = Time::default();
        self.clock += 1;
        let request = SequenceRequest {
            retention: Retention(retention),
            ..request(self.clock, Arc::clone(&self.entries[at].prompt), 1)
        };
        self.scheduler.submit(now, request).unwrap();
        let plan = self.scheduler.plan(now, GROUP).unwrap();
        let computed = plan.new_sequences[0].computed_length;
        let cached = self.entries[at].blocks * BLOCK_SIZE as usize;
        assert_eq!(computed as usize, cached);
        self.scheduler.complete(now, answered(&plan, 1)).unwrap();
        while let Some(plan) = self.scheduler.plan(now, GROUP) {
            self.scheduler.complete(now, answered(&plan, 1)).unwrap();
        }
    }

    /// The same by the rule.
    fn expect(&mut self, at: usize, retention: u8) {
        let all = self.entries[at].prompt.len() / BLOCK_SIZE as usize;
        // The missing blocks, and one for the last id.
        for _ in self.entries[at].blocks..=all {
            if self.free == 0 {
                self.evict(at);
            }
            self.free -= 1;
        }
        let (now, entry) = (self.clock, &mut self.entries[at]);
        entry.blocks = all;
        entry.worth = (retention, now);
        if entry.tail.is_none() {
            entry.tail = Some((retention, now));
        } else {
            // It was there: what was computed again is given back.
            self.free += 1;
        }
    }

    /// Frees one block; those of `running` are in use, but for its tail.
    fn evict(&mut self, running: usize) {
        let leaves = self.entries.iter().enumerate().filter_map(|(at, entry)| {
            let body = (at != running && entry.blocks > 0).then_some(entry.worth);
            Some((entry.tail.or(body)?, at))
        });
        let (_, at) = leaves.min().expect("something is cached");
        let entry = &mut self.entries[at];
        if entry.tail.take().is_none() {
            entry.blocks -= 1;
        }
        self.free += 1;
        self.evicted += 1;
    }

    fn check(&self) {
        self.scheduler.audit();
        for entry in &self.entries {
            let found = self.scheduler.cached_prefix(GROUP, 0, &entry.prompt);
            let expected = entry.blocks * BLOCK_SIZE as usize + usize::from(entry.tail.is_some());
            assert_eq!(found as usize, expected, "{entry:?} of {:?}", self.entries);
        }
        assert_eq!(self.scheduler.stats().free_blocks, self.free);
    }
}
