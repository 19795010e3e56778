//! Calls of the scheduler that make its prefix tree split, share, copy and evict, against a list of everything that was
//! ever computed. A worker in memory keeps what lies in each block and reads it before it writes.

use crate::Target;
use crate::input::Choices;
use crate::random::{Random, mix};
use headrace_scheduler::{
    BlockId, Event, GroupId, PolicyConfig, Retention, RowOutcome, RowResult, SampledToken,
    SamplingParams, Scheduler, SchedulerConfig, SequenceId, SequenceRequest, Slot, StepOutcome,
    StepPlan, StepResult, SubmitError, Time, TokenId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub(super) const TARGET: Target = Target {
    name: "prefix_tree",
    seeds: || vec![vec![0; 64]],
    fresh,
    run,
    words: &[],
    short: 4_000,
};

const GROUP: GroupId = GroupId(0);

fn fresh(random: &mut Random) -> Vec<u8> {
    let count = random.below(400);
    random.bytes(count)
}

struct Sequence {
    namespace: u64,
    ids: Vec<TokenId>,
    computed: usize,
    table: Vec<BlockId>,
    max_ids: usize,
}

struct World {
    scheduler: Scheduler,
    block_size: usize,
    num_blocks: usize,
    /// So many blocks that nothing is ever evicted.
    is_roomy: bool,
    /// A hash of namespace and ids up to here, for each place of each block.
    kv: Vec<Option<u64>>,
    slots: BTreeMap<Slot, Sequence>,
    steps: VecDeque<StepPlan>,
    requests: BTreeMap<SequenceId, (u64, Vec<TokenId>)>,
    /// Of those that finished: what must be found while nothing is evicted.
    finished: Vec<(u64, Vec<TokenId>)>,
    /// Of all: nothing else may be found.
    computed: Vec<(u64, Vec<TokenId>)>,
    paused: BTreeSet<SequenceId>,
    /// Came before a flush: what they compute may stay out of reach.
    flushed: BTreeSet<SequenceId>,
    now: Time,
    next_id: u64,
}

fn run(input: &[u8]) -> u64 {
    let mut choices = Choices::of(input);
    let mut world = World::new(&mut choices);
    while !choices.is_over() {
        world.now.0 += Duration::from_micros(choices.byte().into());
        match choices.below(8) {
            0..=2 => world.submit(&mut choices),
            3 => world.cancel(&mut choices),
            4 => world.look_up(&mut choices),
            5 if choices.percent(20) => world.flush(),
            5 if choices.percent(30) => world.pause_or_resume(&mut choices),
            5 => world.plan(),
            _ => world.answer(),
        }
        world.scheduler.audit();
    }
    world.settle();
    let stats = world.scheduler.stats();
    let met = mix(stats.prefix_hit_tokens.min(30), stats.preemptions.min(3));
    mix(
        met,
        (stats.cached_blocks.min(12) + 16 * world.block_size) as u64,
    )
}

impl World {
    fn new(choices: &mut Choices<'_>) -> Self {
        let block_size = choices.u32_between(1, 5);
        let is_roomy = choices.percent(40);
        let num_blocks = if is_roomy {
            4000
        } else {
            choices.u32_between(2, 24)
        };
        let config = SchedulerConfig {
            block_size,
            max_batch_tokens: choices.pick(&[64, 1, 3, 16]),
            max_sequences: choices.u32_between(1, 4),
            max_total_tokens: 1000,
            prefix_caching: true,
            max_waiting_sequences: 16,
            max_waiting_tokens: 10_000,
            max_steps_in_flight: choices.u32_between(1, 3),
            policy: PolicyConfig::default(),
        };
        let mut scheduler = Scheduler::new(config);
        scheduler.group_up(Time::default(), GROUP, num_blocks);
        Self {
            scheduler,
            block_size: block_size as usize,
            num_blocks: num_blocks as usize,
            is_roomy,
            kv: vec![None; (num_blocks * block_size) as usize],
            slots: BTreeMap::new(),
            steps: VecDeque::new(),
            requests: BTreeMap::new(),
            finished: Vec::new(),
            computed: Vec::new(),
            paused: BTreeSet::new(),
            flushed: BTreeSet::new(),
            now: Time::default(),
            next_id: 0,
        }
    }

    /// Ids that begin like those of others: few letters, or a start of what was computed before.
    fn ids(&self, choices: &mut Choices<'_>) -> (u64, Vec<TokenId>) {
        let mut namespace = choices.pick(&[0, 0, 0, 1]);
        let mut ids = Vec::new();
        if choices.percent(50) && !self.computed.is_empty() {
            let (known, before) = &self.computed[choices.below(self.computed.len())];
            namespace = *known;
            ids.extend(&before[..choices.below(before.len() + 1)]);
        }
        for _ in 0..choices.below(9) {
            ids.push(choices.u32_between(0, 2));
        }
        ids.truncate(60);
        (namespace, ids)
    }

    fn submit(&mut self, choices: &mut Choices<'_>) {
        let (namespace, mut ids) = self.ids(choices);
        ids.push(choices.u32_between(0, 2));
        self.next_id += 1;
        let id = SequenceId(self.next_id);
        let max_new_tokens = choices.u32_between(1, 8);
        let request = SequenceRequest {
            sampling: SamplingParams {
                // What the worker must know.
                seed: namespace,
                top_k: Some(max_new_tokens),
                ..SamplingParams::greedy()
            },
            namespace,
            retention: Retention(choices.pick(&[35, 0, 100, 50])),
            ..SequenceRequest::greedy(id, ids.as_slice(), max_new_tokens)
        };
        match self.scheduler.submit(self.now, request) {
            Ok(()) => {
                self.requests.insert(id, (namespace, ids));
            }
            Err(SubmitError::TooLong { limit, .. }) => {
                assert!(ids.len() as u64 + u64::from(max_new_tokens) > limit);
            }
            Err(SubmitError::QueueFull { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn cancel(&mut self, choices: &mut Choices<'_>) {
        let open: Vec<SequenceId> = self.requests.keys().copied().collect();
        if let Some(&id) = open.get(choices.below(open.len())) {
            assert!(self.scheduler.cancel(self.now, id));
            self.requests.remove(&id);
            self.paused.remove(&id);
        }
    }

    /// Nothing that was cached before has to be found any more.
    fn flush(&mut self) {
        let before = self.scheduler.stats();
        let freed = self.scheduler.flush_cache(self.now);
        let after = self.scheduler.stats();
        assert_eq!(before.free_blocks + freed, after.free_blocks);
        assert_eq!(after.cached_blocks, 0);
        self.finished.clear();
        self.flushed.extend(self.requests.keys());
    }

    fn pause_or_resume(&mut self, choices: &mut Choices<'_>) {
        let open: Vec<SequenceId> = self.requests.keys().copied().collect();
        if let Some(&id) = open.get(choices.below(open.len())) {
            if self.paused.remove(&id) {
                assert!(self.scheduler.resume(self.now, id));
            } else {
                assert!(self.scheduler.pause(self.now, id));
                self.paused.insert(id);
            }
        }
    }

    /// The longest common start with what was computed, by the naive list.
    fn look_up(&self, choices: &mut Choices<'_>) {
        let (namespace, ids) = self.ids(choices);
        let found = self.scheduler.cached_prefix(GROUP, namespace, &ids) as usize;
        let longest = |list: &[(u64, Vec<TokenId>)]| {
            let same = list.iter().filter(|(other, _)| *other == namespace);
            same.map(|(_, other)| other.iter().zip(&ids).take_while(|(a, b)| a == b).count())
                .max()
                .unwrap_or(0)
        };
        let most = longest(&self.computed);
        assert!(
            found <= most,
            "{found} ids of {ids:?} are cached, {most} were computed"
        );
        if self.is_roomy {
            let least = longest(&self.finished).min(ids.len().saturating_sub(1));
            assert!(
                found >= least,
                "{found} ids of {ids:?} are cached, {least} must be"
            );
        }
    }

    fn plan(&mut self) {
        if let Some(plan) = self.scheduler.plan(self.now, GROUP) {
            self.steps.push_back(plan);
        }
    }

    fn answer(&mut self) {
        let Some(plan) = self.steps.pop_front() else {
            return;
        };
        self.apply(&plan);
        let rows = plan.rows.iter().map(|row| {
            let sequence = self
                .slots
                .get_mut(&row.slot)
                .expect("a row of a slot in use");
            let end = sequence.computed + row.num_tokens as usize;
            let mut history = mix(sequence.namespace, 1);
            for (position, &id) in sequence.ids[..end].iter().enumerate() {
                history = mix(history, u64::from(id) + 2);
                let block = sequence.table[position / self.block_size] as usize;
                let place = &mut self.kv[block * self.block_size + position % self.block_size];
                if position < sequence.computed {
                    assert_eq!(*place, Some(history), "slot {} reads wrong KV", row.slot);
                } else {
                    *place = Some(history);
                }
            }
            sequence.computed = end;
            let mut tokens = Vec::new();
            if row.sample {
                let id = (history % 3) as TokenId;
                sequence.ids.push(id);
                assert!(
                    sequence.ids.len() <= sequence.max_ids,
                    "samples beyond its end"
                );
                tokens.push(SampledToken {
                    id,
                    logprob: None,
                    top: Vec::new(),
                    rank: None,
                });
            }
            self.computed
                .push((sequence.namespace, sequence.ids[..end].to_vec()));
            RowResult {
                slot: row.slot,
                outcome: RowOutcome::Tokens(tokens),
                prompt_logprobs: Vec::new(),
            }
        });
        let outcome = StepOutcome::Ok(rows.collect());
        let result = StepResult {
            group: GROUP,
            step_id: plan.step_id,
            outcome,
        };
        let events = self
            .scheduler
            .complete(self.now, result)
            .expect("a good answer");
        self.hear(events);
    }

    /// Slots, tables and copies of a step.
    fn apply(&mut self, plan: &StepPlan) {
        for slot in &plan.finished_slots {
            self.slots.remove(slot).expect("a slot in use");
        }
        for new in &plan.new_sequences {
            let sequence = Sequence {
                namespace: new.sampling.seed,
                ids: new.token_ids.clone(),
                computed: new.computed_length as usize,
                table: new.blocks.clone(),
                max_ids: new.prompt_length as usize + new.sampling.top_k.unwrap_or(0) as usize,
            };
            assert!(self.slots.insert(new.slot, sequence).is_none());
        }
        for (slot, blocks) in &plan.block_appends {
            self.slots
                .get_mut(slot)
                .expect("a slot in use")
                .table
                .extend(blocks);
        }
        for copy in &plan.block_copies {
            for offset in 0..copy.num_tokens as usize {
                self.kv[copy.destination as usize * self.block_size + offset] =
                    self.kv[copy.source as usize * self.block_size + offset];
            }
        }
    }

    fn hear(&mut self, events: Vec<Event>) {
        for event in events {
            let Some((namespace, ids)) = self.requests.get_mut(&event.sequence()) else {
                panic!("{event:?} of a sequence that is over");
            };
            match event {
                Event::Token { token, .. } => ids.push(token.id),
                Event::Finished { id, .. } => {
                    // The last id was sampled and never computed.
                    ids.pop();
                    if !self.flushed.contains(&id) {
                        self.finished.push((*namespace, std::mem::take(ids)));
                    }
                    self.requests.remove(&id);
                }
                Event::Started { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// What is open ends, and every block is free or cached.
    fn settle(&mut self) {
        for id in std::mem::take(&mut self.paused) {
            // One that ended meanwhile is not known any more.
            self.scheduler.resume(self.now, id);
        }
        let mut bound = 4000;
        while !self.scheduler.is_idle() {
            assert!(bound > 0, "no end: {:?}", self.scheduler.stats());
            bound -= 1;
            self.now.0 += Duration::from_millis(1);
            self.plan();
            self.answer();
        }
        assert!(self.requests.is_empty());
        self.scheduler.audit();
        let stats = self.scheduler.stats();
        assert_eq!(stats.owned_blocks, 0);
        assert_eq!(stats.free_blocks + stats.cached_blocks, self.num_blocks);
    }
}
