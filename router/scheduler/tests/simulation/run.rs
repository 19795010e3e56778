//! One seed: a random world, faults for a while, then calm until everything open has ended.

use std::time::Duration;

use headrace_scheduler::{Event, SequenceFailure, SequenceId, StepOutcome, StepResult};

use crate::client::{Client, State};
use crate::random::mix;
use crate::totals::Totals;
use crate::worker::{Fault, Worker};
use crate::world::{GROUP, World};

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
    pub(crate) fn tick(&mut self) {
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
    pub(crate) fn calm(&mut self) {
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

    pub(crate) fn run_out(&mut self) {
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
    pub(crate) fn forget_slots(&mut self) {
        self.plan();
        while self.worker.as_ref().unwrap().steps_in_flight() > 0 {
            self.answer(Fault::None);
            if self.worker.is_none() {
                self.group_up();
            }
            self.plan();
        }
    }

    pub(crate) fn group_up(&mut self) {
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

    pub(crate) fn retire_worker(&mut self) {
        if let Some(worker) = self.worker.take() {
            self.totals.copies += worker.copies;
        }
    }

    pub(crate) fn plan(&mut self) {
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

    pub(crate) fn answer(&mut self, fault: Fault) {
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

    pub(crate) fn hear(&mut self, events: Vec<Event>) {
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

    pub(crate) fn audit(&self) {
        self.scheduler.audit();
        let stats = self.scheduler.stats();
        let sum = stats.free_blocks + stats.owned_blocks + stats.cached_blocks;
        assert_eq!(sum, stats.total_blocks);
    }
}
