//! A random world, and what arrives in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use headrace_scheduler::{
    GroupId, PolicyConfig, QueueOrder, Retention, SamplingParams, Scheduler, SchedulerConfig,
    SequenceId, SequenceRequest, StepPace, StopConditions, SubmitError, Time,
};

use crate::client::Client;
use crate::random::Random;
use crate::totals::Totals;
use crate::watch::Watch;
use crate::worker::Worker;

pub(crate) const GROUP: GroupId = GroupId(0);

/// Chances in a hundred.
pub(crate) struct Chances {
    pub(crate) arrive: usize,
    pub(crate) cancel: usize,
    pub(crate) pause: usize,
    pub(crate) resume: usize,
    pub(crate) answer: usize,
    pub(crate) step_fault: usize,
    pub(crate) row_fault: usize,
    pub(crate) group_down: usize,
    pub(crate) kill: usize,
    pub(crate) bad_answer: usize,
    pub(crate) flush: usize,
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) config: SchedulerConfig,
    pub(crate) num_blocks: u32,
    pub(crate) vocabulary: u32,
    pub(crate) namespaces: u64,
    pub(crate) classes: usize,
    pub(crate) tenants: u64,
    /// Sequences with a deadline, in a hundred.
    pub(crate) deadlines: usize,
    /// Sequences that wait for masks, in a hundred.
    pub(crate) constrained: usize,
    /// Sequences that end the workers, in a hundred.
    pub(crate) poison: usize,
    /// Sequences that end them together with the one before, in a hundred.
    pub(crate) pair: usize,
    pub(crate) pairs: Vec<[SequenceId; 2]>,
    /// Searches for what ends the workers that there may be.
    pub(crate) causes: u64,
    pub(crate) retentions: &'static [u8],
    pub(crate) chances: Chances,
    pub(crate) scheduler: Scheduler,
    pub(crate) worker: Option<Worker>,
    pub(crate) watch: Watch,
    pub(crate) clients: BTreeMap<SequenceId, Client>,
    pub(crate) next_id: u64,
    pub(crate) now: Time,
    pub(crate) totals: Totals,
    pub(crate) trace: u64,
}
impl Chances {
    fn new(random: &mut Random, faulty: bool) -> Self {
        Self {
            arrive: random.between(5, 60),
            cancel: random.pick(&[0, 2, 10, 30]),
            pause: random.pick(&[0, 0, 5, 30]),
            resume: random.pick(&[0, 5, 30]),
            answer: random.between(10, 100),
            step_fault: if faulty {
                random.pick(&[0, 3, 15, 40])
            } else {
                0
            },
            row_fault: if faulty { random.pick(&[0, 3, 15]) } else { 0 },
            group_down: if faulty { random.pick(&[0, 1, 4]) } else { 0 },
            kill: if faulty {
                random.pick(&[0, 0, 2, 10, 30])
            } else {
                0
            },
            bad_answer: random.pick(&[0, 5]),
            flush: random.pick(&[0, 0, 1, 5]),
        }
    }
}

fn random_policy(random: &mut Random) -> PolicyConfig {
    PolicyConfig {
        skip_ahead: Duration::from_millis(random.pick(&[0, 3, 20, 1000])),
        skip_ahead_window: random.pick(&[1, 2, 16]),
        share_prefixes: Duration::from_millis(random.pick(&[0, 0, 5, 1_000_000])),
        ageing_period: random
            .pick(&[None, Some(2), Some(50)])
            .map(Duration::from_millis),
        highest_class: random.pick(&[0, 0, 1, -1]),
        overdue_age: random
            .pick(&[None, Some(0), Some(5), Some(40)])
            .map(Duration::from_millis),
        input_weight: 1,
        output_weight: random.pick(&[0, 1, 2]),
        order: random.pick(&[QueueOrder::Fcfs, QueueOrder::Lpm]),
        most_passes: random.pick(&[0, 1, 4]),
        pace: random.pick(&[
            StepPace::Unbounded,
            StepPace::Unbounded,
            StepPace::Shared,
            StepPace::Target(Duration::from_micros(300)),
            StepPace::Target(Duration::from_millis(3)),
        ]),
    }
}

/// Few different ones, so that prefixes are shared.
fn random_prompt(random: &mut Random, length: u32, vocabulary: u32) -> Arc<[u32]> {
    let mut dice = Random::new(random.next() % 3);
    (0..length)
        .map(|_| {
            let stray = random.percent(5);
            let id = dice.u32_between(0, vocabulary - 1);
            if stray {
                random.u32_between(0, vocabulary - 1)
            } else {
                id
            }
        })
        .collect()
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let block_size = random.pick(&[1, 2, 3, 4, 4, 4, 8]);
        let num_blocks = random.pick(&[2, 3, 4, 6, 10, 16, 40]);
        let faulty = random.percent(60);
        let config = SchedulerConfig {
            block_size,
            max_batch_tokens: random.pick(&[1, 2, 3, 7, 16, 64]),
            max_sequences: random.u32_between(1, 8),
            max_total_tokens: random.pick(&[8, 30, 60, 1000]),
            prefix_caching: random.percent(90),
            max_waiting_sequences: random.pick(&[1, 4, 100]),
            max_waiting_tokens: random.pick(&[10, 1000]),
            max_steps_in_flight: random.u32_between(1, 3),
            policy: random_policy(&mut random),
        };
        let chances = Chances::new(&mut random, faulty);
        let scheduler = Scheduler::new(config.clone());
        let scheduler_config = config.clone();
        Self {
            vocabulary: random.u32_between(2, 5),
            namespaces: random.pick(&[1, 1, 2]),
            classes: random.pick(&[1, 1, 3]),
            tenants: random.pick(&[1, 1, 4]),
            deadlines: random.pick(&[0, 0, 20]),
            constrained: random.pick(&[0, 30, 100]),
            poison: if faulty {
                random.pick(&[0, 0, 3, 20])
            } else {
                0
            },
            pair: if faulty {
                random.pick(&[0, 0, 3, 20])
            } else {
                0
            },
            pairs: Vec::new(),
            causes: 0,
            retentions: random.pick(&[&[35], &[0, 35, 100]]),
            random,
            config,
            num_blocks,
            chances,
            watch: Watch::new(scheduler_config, faulty),
            scheduler,
            worker: None,
            clients: BTreeMap::new(),
            next_id: 0,
            now: Time::default(),
            totals: Totals::default(),
            trace: seed,
        }
    }

    pub(crate) fn arrive(&mut self) {
        self.next_id += 1;
        let random = &mut self.random;
        let id = SequenceId(self.next_id);
        let limit = self.scheduler.max_total_tokens().min(80);
        // A bit over the limit now and then.
        let prompt_length = random.u32_between(1, limit.min(24));
        let max_new_tokens = random
            .u32_between(1, (limit - prompt_length).max(1) + 1)
            .min(30);
        let vocabulary = self.vocabulary;
        let prompt = random_prompt(random, prompt_length, vocabulary);
        let namespace = random.next() % self.namespaces;
        let deadline = random.percent(self.deadlines).then(|| {
            let ahead = Duration::from_micros(random.next() % 30_000);
            Time(self.now.0 + ahead)
        });
        let request = SequenceRequest {
            id,
            prompt,
            sampling: SamplingParams {
                // What the worker needs to know, in fields that the scheduler only passes on.
                seed: namespace,
                top_n: max_new_tokens,
                suppressed_token_ids: vec![u32::try_from(id.0).unwrap()],
                ..SamplingParams::greedy()
            },
            stop: StopConditions {
                max_new_tokens,
                eos_token_ids: if random.percent(30) {
                    Arc::from([0])
                } else {
                    Arc::from([])
                },
                stop_token_ids: if random.percent(20) {
                    vec![1]
                } else {
                    Vec::new()
                },
                min_tokens: random.pick(&[0, 0, 2, 40]),
            },
            prompt_logprobs: random.percent(15),
            priority: i32::try_from(random.between(0, self.classes - 1)).unwrap(),
            tenant: random.next() % self.tenants,
            deadline,
            namespace,
            constrained: random.percent(self.constrained),
            retention: Retention(random.pick(self.retentions)),
        };
        let needed = u64::from(prompt_length) + u64::from(max_new_tokens);
        match self.scheduler.submit(self.now, request.clone()) {
            Ok(()) => {
                assert!(needed <= u64::from(self.scheduler.max_total_tokens()));
                // Those that come back wait beyond the bound.
                let most = self.config.max_waiting_sequences.max(8 + 1);
                let back = self.totals.resumed + 8 * self.totals.isolated;
                let back = usize::try_from(back).unwrap();
                assert!(self.scheduler.stats().waiting <= most + back);
                let again = self.scheduler.submit(self.now, request.clone());
                assert_eq!(again, Err(SubmitError::Duplicate(id)));
                self.watch.submitted(self.now, request.clone());
                self.clients.insert(id, Client::new(request, vocabulary));
                self.poison_one(id);
            }
            Err(SubmitError::TooLong { limit, .. }) => assert!(needed > limit),
            Err(SubmitError::QueueFull { waiting }) => {
                assert!(waiting > 0);
                self.totals.refused += 1;
            }
            Err(SubmitError::DeadlineTooClose { .. }) => {
                assert!(request.deadline.is_some());
            }
            Err(error) => panic!("{error}"),
        }
        self.audit();
    }
}
