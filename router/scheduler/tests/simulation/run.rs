//! One seed: a random world, faults for a while, then calm until everything open has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use headrace_scheduler::{
    Event, GroupId, PolicyConfig, QueueOrder, Retention, SamplingParams, Scheduler,
    SchedulerConfig, SequenceFailure, SequenceId, SequenceRequest, Slot, StepOutcome, StepResult,
    StopConditions, SubmitError, Time,
};

use crate::client::{Client, State};
use crate::random::{Random, mix};
use crate::watch::Watch;
use crate::worker::{Fault, Worker};

const GROUP: GroupId = GroupId(0);

/// What happened, to see that everything does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) trace: u64,
    steps: u64,
    finished: u64,
    cancelled_waiting: u64,
    cancelled_running: u64,
    refused: u64,
    non_finite: u64,
    row_failures: u64,
    step_failures: u64,
    out_of_memory: u64,
    skipped: u64,
    groups_lost: u64,
    bad_answers: u64,
    preemptions: u64,
    copies: u64,
    hits: u64,
    recomputed: u64,
    skipped_ahead: u64,
    deferrals: u64,
    expired: u64,
    masks: u64,
    called_off: u64,
    flushed: u64,
    paused: u64,
    resumed: u64,
    cancelled_paused: u64,
    kills: u64,
    crashes: u64,
    poison_found: u64,
    isolated: u64,
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.trace = mix(self.trace, other.trace);
        for (sum, value) in self.fields().into_iter().zip(other.clone().fields()) {
            *sum += *value;
        }
    }

    pub(crate) fn assert_all_happened(&mut self) {
        let text = format!("{self:?}");
        for value in self.fields() {
            assert!(*value > 100, "something hardly happens: {text}");
        }
    }

    pub(crate) fn speed(&self, seconds: f64) -> String {
        let steps = self.steps;
        let rate = steps as f64 / seconds;
        format!("{steps} steps in {seconds:.1} s, {rate:.0} steps a second")
    }

    fn fields(&mut self) -> [&mut u64; 29] {
        [
            &mut self.steps,
            &mut self.finished,
            &mut self.cancelled_waiting,
            &mut self.cancelled_running,
            &mut self.refused,
            &mut self.non_finite,
            &mut self.row_failures,
            &mut self.step_failures,
            &mut self.out_of_memory,
            &mut self.skipped,
            &mut self.groups_lost,
            &mut self.bad_answers,
            &mut self.preemptions,
            &mut self.copies,
            &mut self.hits,
            &mut self.recomputed,
            &mut self.skipped_ahead,
            &mut self.deferrals,
            &mut self.expired,
            &mut self.masks,
            &mut self.called_off,
            &mut self.flushed,
            &mut self.paused,
            &mut self.resumed,
            &mut self.cancelled_paused,
            &mut self.kills,
            &mut self.crashes,
            &mut self.poison_found,
            &mut self.isolated,
        ]
    }
}

/// Chances in a hundred.
struct Chances {
    arrive: usize,
    cancel: usize,
    pause: usize,
    resume: usize,
    answer: usize,
    step_fault: usize,
    row_fault: usize,
    group_down: usize,
    kill: usize,
    bad_answer: usize,
    flush: usize,
}

struct World {
    random: Random,
    config: SchedulerConfig,
    num_blocks: u32,
    vocabulary: u32,
    namespaces: u64,
    classes: usize,
    tenants: u64,
    /// Sequences with a deadline, in a hundred.
    deadlines: usize,
    /// Sequences that wait for masks, in a hundred.
    constrained: usize,
    /// Sequences that end the workers, in a hundred.
    poison: usize,
    /// Sequences that end them together with the one before, in a hundred.
    pair: usize,
    pairs: Vec<[SequenceId; 2]>,
    /// Searches for what ends the workers that there may be.
    causes: u64,
    retentions: &'static [u8],
    chances: Chances,
    scheduler: Scheduler,
    worker: Option<Worker>,
    watch: Watch,
    clients: BTreeMap<SequenceId, Client>,
    next_id: u64,
    now: Time,
    totals: Totals,
    trace: u64,
}

pub(crate) fn run(seed: u64) -> Totals {
    let mut world = World::new(seed);
    let busy = world.random.between(20, 200);
    for _ in 0..busy {
        world.tick();
    }
    world.calm();
    let mut totals = world.totals;
    totals.trace = world.trace;
    totals
}

impl World {
    fn new(seed: u64) -> Self {
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
            policy: PolicyConfig {
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
                target_step_time: random
                    .pick(&[None, None, Some(300), Some(3000)])
                    .map(Duration::from_micros),
            },
        };
        let chances = Chances {
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
        };
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

    fn tick(&mut self) {
        self.now.0 += Duration::from_micros(self.random.next() % 1000);
        if self.random.percent(self.chances.arrive) {
            self.arrive();
        }
        if self.random.percent(self.chances.cancel) {
            self.cancel_one();
        }
        if self.random.percent(self.chances.pause) {
            self.pause_one(true);
        }
        if self.random.percent(self.chances.resume) {
            self.pause_one(false);
        }
        if self.worker.is_none() {
            if self.random.percent(50) {
                self.group_up();
            }
            return;
        }
        if self.random.percent(self.chances.group_down) {
            self.totals.groups_lost += 1;
            self.scheduler.group_down(self.now, GROUP);
            self.watch.group_down(self.now);
            self.retire_worker();
            self.audit();
            return;
        }
        if self.random.percent(self.chances.flush) {
            self.flush();
        }
        self.plan();
        if self.random.percent(self.chances.kill) {
            self.kill();
            return;
        }
        if self.random.percent(self.chances.bad_answer) {
            self.answer_badly();
        }
        if self.random.percent(self.chances.answer) {
            let fault = self.fault();
            self.answer(fault);
        }
    }

    /// No faults and no arrivals: what is open ends within a bound, the paused ones once they are resumed.
    fn calm(&mut self) {
        if self.worker.is_none() {
            self.group_up();
        }
        self.run_out();
        let paused: Vec<SequenceId> = self.paused();
        for id in paused {
            self.set_paused(id, false);
        }
        self.run_out();
        self.forget_slots();
        assert!(self.scheduler.is_idle(), "{:?}", self.scheduler);
        for client in self.clients.values() {
            assert_ne!(
                client.state,
                State::Open,
                "{:?} never ends",
                client.request.id
            );
        }
        let stats = self.scheduler.stats();
        assert_eq!((stats.running, stats.ending, stats.waiting), (0, 0, 0));
        assert_eq!(stats.owned_blocks, 0, "blocks are lost");
        assert_eq!(
            stats.free_blocks + stats.cached_blocks,
            self.num_blocks as usize
        );
        self.totals.steps += stats.steps;
        self.totals.preemptions += stats.preemptions;
        self.totals.hits += stats.prefix_hit_tokens;
        self.totals.recomputed += stats.recomputed_tokens;
        self.totals.skipped_ahead += stats.skipped_ahead;
        self.totals.deferrals += stats.deferrals;
        self.totals.expired += stats.deadlines_exceeded;
        self.retire_worker();
    }

    fn run_out(&mut self) {
        let open = self.clients.values().filter(|client| client.goes_on());
        let work: usize = open.map(Client::work).sum();
        let mut bound = 50 + 6 * work;
        while self.clients.values().any(Client::goes_on) {
            assert!(bound > 0, "no end after a bound of {work} tokens of work");
            bound -= 1;
            self.now.0 += Duration::from_micros(self.random.next() % 1000);
            self.plan();
            self.answer(Fault::None);
            if self.worker.is_none() {
                // Everything is computed again.
                bound += 50 + 2 * work;
                self.group_up();
            }
        }
    }

    /// What is still to be answered, then what the workers have to forget.
    fn forget_slots(&mut self) {
        self.plan();
        while self.worker.as_ref().unwrap().steps_in_flight() > 0 {
            self.answer(Fault::None);
            if self.worker.is_none() {
                self.group_up();
            }
            self.plan();
        }
    }

    fn group_up(&mut self) {
        self.scheduler.group_up(self.now, GROUP, self.num_blocks);
        self.worker = Some(Worker::new(
            self.config.block_size as usize,
            self.num_blocks,
            self.vocabulary,
            self.config.max_batch_tokens as usize,
            self.config.max_sequences as usize,
        ));
        self.arm();
        // What waited before the pool's size was known may not fit: the next answer tells.
        self.audit();
        for client in self.clients.values_mut() {
            let needed =
                client.request.prompt.len() as u64 + u64::from(client.request.stop.max_new_tokens);
            if needed > u64::from(self.scheduler.max_total_tokens()) {
                client.failed_alone = true;
                self.watch.over(client.request.id);
            }
        }
    }

    /// Some sequences end the workers when a certain token is computed, some when they meet another one.
    fn poison_one(&mut self, id: SequenceId) {
        let client = self.clients.get_mut(&id).unwrap();
        if self.random.percent(self.poison) {
            client.poison = Some(self.random.between(0, client.work()));
            self.causes += 1;
        }
        let before = SequenceId(id.0 - 1);
        if self.random.percent(self.pair) && self.clients.contains_key(&before) {
            self.pairs.push([before, id]);
            // One search, and two crashes for each time apart, for 16 ids and then for 32.
            self.causes += 2;
        }
        self.arm();
    }

    fn arm(&mut self) {
        if let Some(worker) = &mut self.worker {
            let poison = |(&id, client): (&SequenceId, &Client)| Some((id, client.poison?));
            worker.poison = self.clients.iter().filter_map(poison).collect();
            worker.pairs.clone_from(&self.pairs);
        }
    }

    /// An end from outside. It does not hit twice the same sequence alone before that came further.
    fn kill(&mut self) {
        let worker = self.worker.as_ref().unwrap();
        let rows = worker.in_flight();
        let steps = self.config.max_steps_in_flight as usize;
        let alone = rows.first().copied().filter(|_| rows.len() == 1);
        let further = |id| {
            let client: &Client = &self.clients[&id];
            let before = client.killed_alone;
            before.is_none_or(|before| client.heard() > before + steps)
        };
        if !alone.is_none_or(further) {
            return;
        }
        self.totals.kills += 1;
        self.causes += 1;
        self.crash();
        if let Some(id) = alone
            && self.scheduler.stats().suspects > 0
        {
            let client = self.clients.get_mut(&id).unwrap();
            client.killed_alone = Some(client.heard());
        }
    }

    /// The workers are gone, and what they had was not asked for.
    fn crash(&mut self) {
        self.scheduler.group_crashed(self.now, GROUP);
        self.watch.group_down(self.now);
        self.retire_worker();
        self.audit();
        self.totals.isolated += u64::from(self.scheduler.stats().suspects > 0);
        let events = self.scheduler.expire(self.now);
        self.hear(events);
        self.audit();
    }

    /// The most crashes that poison may cause: for each cause, and each kill that misleads the search, what one
    /// search takes.
    fn check_crashes(&self) {
        let sequences = u64::from(self.config.max_sequences);
        let halvings = u64::from(sequences.next_power_of_two().ilog2());
        let most = self.causes * (2 + halvings + 2);
        let crashes = self.totals.crashes;
        assert!(crashes <= most, "{crashes} crashes, {most} at most");
    }

    fn retire_worker(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.totals.copies += worker.copies;
        }
    }

    fn arrive(&mut self) {
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
        // Few different prompts, so that prefixes are shared.
        let mut dice = Random::new(random.next() % 3);
        let prompt: Arc<[u32]> = (0..prompt_length)
            .map(|_| {
                let stray = random.percent(5);
                let id = dice.u32_between(0, vocabulary - 1);
                if stray {
                    random.u32_between(0, vocabulary - 1)
                } else {
                    id
                }
            })
            .collect();
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

    fn cancel_one(&mut self) {
        let open: Vec<SequenceId> = self
            .clients
            .iter()
            .filter(|(_, client)| client.state == State::Open)
            .map(|(&id, _)| id)
            .collect();
        let Some(last) = open.len().checked_sub(1) else {
            return;
        };
        let id = open[self.random.between(0, last)];
        let before = self.scheduler.stats();
        assert!(
            self.scheduler.cancel(self.now, id),
            "{id:?} is open and unknown"
        );
        assert!(
            !self.scheduler.cancel(self.now, id),
            "a second cancel does nothing"
        );
        let after = self.scheduler.stats();
        if after.paused < before.paused {
            self.totals.cancelled_paused += 1;
        } else if after.waiting < before.waiting {
            self.totals.cancelled_waiting += 1;
        } else if after.running == before.running {
            let client = &self.clients[&id];
            assert!(
                client.failed_alone || client.is_late(self.now),
                "a failure that was not told yet"
            );
        } else {
            assert_eq!(after.running + 1, before.running);
            self.totals.cancelled_running += 1;
        }
        self.clients.get_mut(&id).unwrap().state = State::Cancelled;
        self.watch.over(id);
        self.audit();
    }

    /// What was cached is free, and nobody reads what is held or still to come of those who run now.
    fn flush(&mut self) {
        let before = self.scheduler.stats();
        let freed = self.scheduler.flush_cache(self.now);
        let after = self.scheduler.stats();
        assert_eq!(freed, before.cached_blocks);
        assert_eq!(after.cached_blocks, 0, "cached after a flush");
        assert_eq!(after.owned_blocks, before.owned_blocks);
        self.worker.as_mut().unwrap().flush();
        self.watch.flushed();
        self.totals.flushed += freed as u64;
        self.audit();
    }

    fn paused(&self) -> Vec<SequenceId> {
        let paused = |(&id, client): (&SequenceId, &Client)| {
            let paused = client.state == State::Open && client.paused;
            paused.then_some(id)
        };
        self.clients.iter().filter_map(paused).collect()
    }

    /// Pauses or resumes one that is open, now and then one that is paused or goes on already.
    fn pause_one(&mut self, paused: bool) {
        let fits = |client: &&Client| client.state == State::Open;
        let open = self.clients.values().filter(fits);
        let different = open.filter(|client| client.paused != paused);
        let different: Vec<SequenceId> = different.map(|client| client.request.id).collect();
        let Some(last) = different.len().checked_sub(1) else {
            return;
        };
        let id = different[self.random.between(0, last)];
        self.set_paused(id, paused);
        if self.random.percent(20) {
            self.set_paused(id, paused);
        }
    }

    fn set_paused(&mut self, id: SequenceId, paused: bool) {
        let known = if paused {
            self.totals.paused += 1;
            self.watch.paused(self.now, id);
            self.scheduler.pause(self.now, id)
        } else {
            self.totals.resumed += 1;
            self.watch.resumed(self.now, id);
            self.scheduler.resume(self.now, id)
        };
        let client = self.clients.get_mut(&id).unwrap();
        assert!(known || client.failed_alone || client.is_late(self.now));
        client.paused = paused;
        self.audit();
    }

    fn plan(&mut self) {
        let max = self.config.max_steps_in_flight as usize;
        self.watch.drop_late(self.now);
        let worker = self.worker.as_mut().unwrap();
        while let Some(plan) = self.scheduler.plan(self.now, GROUP) {
            assert!(worker.steps_in_flight() < max, "too many steps in flight");
            self.trace = mix(self.trace, plan.step_id);
            for row in &plan.rows {
                self.trace = mix(
                    self.trace,
                    u64::from(row.slot) << 32 | u64::from(row.num_tokens),
                );
            }
            for block in plan.new_sequences.iter().flat_map(|new| &new.blocks) {
                self.trace = mix(self.trace, u64::from(*block));
            }
            self.watch.planned(self.now, &plan);
            let stats = self.scheduler.stats();
            let available = stats.free_blocks + stats.cached_blocks;
            self.watch.check_waiting(&plan, available);
            worker.send(plan);
            self.scheduler.audit();
        }
        let work = self.clients.values().any(Client::goes_on);
        let stuck = worker.steps_in_flight() == 0 && work;
        assert!(
            !stuck,
            "work and capacity exist, and nothing is planned: {:?}",
            self.scheduler
        );
    }

    fn fault(&mut self) -> Fault {
        let rows = self
            .worker
            .as_ref()
            .unwrap()
            .oldest()
            .map_or(0, |plan| plan.rows.len());
        if self.random.percent(self.chances.step_fault) {
            self.random.pick(&[Fault::Failed, Fault::OutOfMemory])
        } else if rows > 0 && self.random.percent(self.chances.row_fault) {
            let row = self.random.between(0, rows - 1);
            self.random.pick(&[Fault::NonFinite(row), Fault::Row(row)])
        } else {
            Fault::None
        }
    }

    fn answer(&mut self, fault: Fault) {
        let copies_fail = self.random.percent(50);
        let called_off = self.call_off();
        let worker = self.worker.as_mut().unwrap();
        if worker.oldest().is_none() {
            return;
        }
        if worker.is_deadly() {
            self.totals.crashes += 1;
            self.check_crashes();
            self.crash();
            return;
        }
        let (plan, outcome) = worker.answer(fault, copies_fail, &called_off);
        let step_id = plan.step_id;
        let rows = worker.sequences(&plan);
        match &outcome {
            StepOutcome::Failed(_) => self.totals.step_failures += 1,
            StepOutcome::OutOfMemory(_) => self.totals.out_of_memory += 1,
            StepOutcome::Skipped => self.totals.skipped += 1,
            StepOutcome::Ok(_) => {}
        }
        if let StepOutcome::Ok(_) = &outcome {
            plan.rows.iter().for_each(|row| self.watch.answered(row));
        }
        for (at, id) in rows.iter().enumerate() {
            let client = self.clients.get_mut(id).unwrap();
            match &outcome {
                StepOutcome::Ok(_) => {
                    client.non_finite |= fault == Fault::NonFinite(at);
                    client.refused |= fault == Fault::Row(at);
                    client.lost_steps = 0;
                    client.failed_alone = false;
                }
                StepOutcome::Failed(_) | StepOutcome::OutOfMemory(_) => {
                    client.lost_steps += 1;
                    client.failed_alone = rows.len() == 1 && client.lost_steps > 1;
                }
                StepOutcome::Skipped => {}
            }
        }
        let events = self
            .scheduler
            .complete(
                self.now,
                StepResult {
                    group: GROUP,
                    step_id,
                    outcome,
                },
            )
            .expect("the worker keeps the protocol");
        self.audit();
        self.hear(events);
    }

    fn hear(&mut self, events: Vec<Event>) {
        for event in events {
            let id = event.sequence();
            let client = self
                .clients
                .get_mut(&id)
                .expect("an event of a known sequence");
            if matches!(event, Event::Finished { .. } | Event::Failed { .. }) {
                self.watch.over(id);
            }
            match &event {
                Event::Failed {
                    failure: SequenceFailure::NonFinite,
                    ..
                } => {
                    self.totals.non_finite += 1;
                }
                Event::Failed {
                    failure: SequenceFailure::Row(_),
                    ..
                } => {
                    self.totals.row_failures += 1;
                }
                Event::Failed {
                    failure: SequenceFailure::WorkerCrash,
                    ..
                } => {
                    self.totals.poison_found += 1;
                }
                Event::Finished { .. } => self.totals.finished += 1,
                Event::Token { token, .. } => {
                    self.trace = mix(self.trace, id.0 << 32 | u64::from(token.id));
                }
                _ => {}
            }
            client.hear(self.now, event);
        }
    }

    /// Slots of the oldest step whose masks are called off: of sequences that are over, most of the time.
    fn call_off(&mut self) -> BTreeSet<Slot> {
        let masks = self.worker.as_ref().unwrap().oldest();
        let mut called_off = BTreeSet::new();
        for due in masks.map_or(&[][..], |plan| &plan.masks) {
            self.totals.masks += 1;
            let over = self.clients[&due.sequence].state != State::Open;
            if over && self.random.percent(70) {
                self.totals.called_off += 1;
                called_off.insert(due.slot);
            }
        }
        called_off
    }

    /// Answers that no plan asked for change nothing.
    fn answer_badly(&mut self) {
        let due = self.worker.as_ref().unwrap().oldest();
        let due = due.map(|plan| (plan.step_id, plan.rows.first().map(|row| row.slot)));
        let before = self.scheduler.stats();
        let (step_id, slot) = due.unwrap_or((1_000_000, None));
        let wrong_id = step_id + self.random.next() % 3 + 1;
        let surplus = headrace_scheduler::RowResult {
            slot: slot.unwrap_or(0) + 1,
            outcome: headrace_scheduler::RowOutcome::NonFinite,
            prompt_logprobs: Vec::new(),
        };
        let answers = [
            (wrong_id, StepOutcome::Ok(Vec::new())),
            (step_id, StepOutcome::Ok(vec![surplus; 9])),
        ];
        for (step_id, outcome) in answers {
            let answer = StepResult {
                group: GROUP,
                step_id,
                outcome,
            };
            assert!(self.scheduler.complete(self.now, answer).is_err());
        }
        assert_eq!(before, self.scheduler.stats());
        self.totals.bad_answers += 1;
        self.audit();
    }

    fn audit(&self) {
        self.scheduler.audit();
        let stats = self.scheduler.stats();
        let sum = stats.free_blocks + stats.owned_blocks + stats.cached_blocks;
        assert_eq!(sum, stats.total_blocks);
    }
}
