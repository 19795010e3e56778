//! What goes wrong: failed steps and rows, bad answers, sequences that end the workers, and ends from outside.

use std::collections::BTreeSet;

use headrace_scheduler::{SequenceId, Slot, StepOutcome, StepResult};

use crate::client::{Client, State};
use crate::worker::Fault;
use crate::world::{GROUP, World};

impl World {
    /// Some sequences end the workers when a certain token is computed, some when they meet another one.
    pub(crate) fn poison_one(&mut self, id: SequenceId) {
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

    pub(crate) fn arm(&mut self) {
        if let Some(worker) = &mut self.worker {
            let poison = |(&id, client): (&SequenceId, &Client)| Some((id, client.poison?));
            worker.poison = self.clients.iter().filter_map(poison).collect();
            worker.pairs.clone_from(&self.pairs);
        }
    }

    /// An end from outside. It does not hit twice the same sequence alone before that came further.
    pub(crate) fn kill(&mut self) {
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
    pub(crate) fn crash(&mut self) {
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
    pub(crate) fn check_crashes(&self) {
        let sequences = u64::from(self.config.max_sequences);
        let halvings = u64::from(sequences.next_power_of_two().ilog2());
        // A search for one that is paused may make way for another.
        let again = u64::from(self.totals.paused > 0);
        let most = self.causes * (2 + halvings + 2 + again);
        let crashes = self.totals.crashes;
        assert!(crashes <= most, "{crashes} crashes, {most} at most");
    }

    pub(crate) fn fault(&mut self) -> Fault {
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

    /// Slots of the oldest step whose masks are called off: of sequences that are over, most of the time.
    pub(crate) fn call_off(&mut self) -> BTreeSet<Slot> {
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
    pub(crate) fn answer_badly(&mut self) {
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
}
