//! Planning a step: running decodes first, then prefills already started, then the queue.

use super::costs::{PrefillTokens, Weight};
use super::{Group, RowRecord, StepRecord};
use crate::dispatcher::Dispatcher;
use crate::planted::{self, Bug};
use crate::sequence::{Sequence, SequenceIndex, narrow};
use crate::types::{DueMask, Row, StepPlan};

/// A step being planned.
pub(super) struct Draft {
    pub(super) plan: StepPlan,
    pub(super) record: StepRecord,
    /// Budget not yet given out.
    pub(super) tokens_left: usize,
    /// The part of it that prefills may have, counted in plain tokens.
    pub(super) prefill_left: usize,
    /// How much of that a scored token takes.
    pub(super) scored_weight: Weight,
    pub(super) preempted: bool,
}

impl Draft {
    /// Most plain tokens for one more prefill row.
    pub(super) fn prefill_room(&self) -> usize {
        self.tokens_left.min(self.prefill_left)
    }

    /// Most tokens of one more prefill row, for this many plain ones.
    pub(super) fn fitting(&self, sequence: &Sequence, room: usize) -> usize {
        let room = room.min(self.prefill_left);
        let tokens = if sequence.is_being_scored() {
            self.scored_weight.fitting(room)
        } else {
            room
        };
        tokens.min(self.tokens_left)
    }

    /// How many plain tokens so many of a prefill count for.
    pub(super) fn count(&self, sequence: &Sequence, num_tokens: usize) -> usize {
        if sequence.is_being_scored() {
            self.scored_weight.count(num_tokens)
        } else {
            num_tokens
        }
    }
}

impl Group {
    pub(crate) fn plan(&mut self, dispatcher: &mut Dispatcher) -> Option<StepPlan> {
        let in_flight = self.in_flight.len();
        let retry = self.next_retry(dispatcher);
        let turn = dispatcher.isolation.turn(self.id, &dispatcher.sequences);
        let isolating = dispatcher.isolation.is_on(self.id);
        let alone = self.failed_step.is_some() || retry.is_some() || isolating;
        let surplus = usize::from(planted::is(Bug::StepInFlightTooMany));
        let most = dispatcher.config.max_steps_in_flight as usize + surplus;
        if in_flight >= most || (alone && in_flight > 0) {
            return None;
        }
        let mut draft = self.new_draft(dispatcher);
        if let Some(index) = retry {
            self.plan_alone(dispatcher, &mut draft, index);
        } else if !self.plan_turn(dispatcher, &mut draft, turn) {
            return None;
        }
        let Draft {
            mut plan,
            mut record,
            ..
        } = draft;
        if record.rows.is_empty() {
            // An empty step tells the workers which slots to forget, or brings an answer that carries events.
            let silent = self.finished_slots.is_empty() && !dispatcher.has_ends_to_tell();
            if silent || in_flight > 0 {
                self.spare_rows.push(record.rows);
                return None;
            }
        }
        self.last_step += 1;
        record.step_id = self.last_step;
        record.sent_at = dispatcher.now;
        plan.step_id = self.last_step;
        plan.finished_slots = std::mem::take(&mut self.finished_slots);
        if planted::is(Bug::FinishedSlotNotTold) {
            plan.finished_slots.pop();
        }
        let failed = self.failed_step.take();
        plan.acknowledged_failure = failed.filter(|_| !planted::is(Bug::FailureNotNamed));
        self.in_flight.push_back(record);
        dispatcher.counters.steps += 1;
        Some(plan)
    }

    /// The rows of all that are not isolated. `false`: the steps in flight come first.
    pub(super) fn plan_everyone(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) -> bool {
        if !self.choose_decodes(dispatcher, draft) {
            return false;
        }
        self.plan_decodes(dispatcher, draft);
        let share = self.prefill_share(dispatcher);
        let is_bounded = share < draft.prefill_room();
        if share < usize::MAX {
            draft.prefill_left = draft.prefill_left.min(share);
            draft.scored_weight = self.pace.weight();
        }
        if !self.divide_share(dispatcher, draft, is_bounded) {
            self.plan_prefills(dispatcher, draft);
            self.admit_waiting(dispatcher, draft);
        }
        true
    }

    fn new_draft(&mut self, dispatcher: &Dispatcher) -> Draft {
        let mut rows = self.spare_rows.pop().unwrap_or_default();
        rows.clear();
        Draft {
            plan: StepPlan {
                group: self.id,
                rows: Vec::with_capacity(self.running.len()),
                ..StepPlan::default()
            },
            record: StepRecord {
                step_id: 0,
                rows,
                holds: Vec::new(),
                prefill_tokens: PrefillTokens::default(),
                decode_rows: 0,
                sent_at: dispatcher.now,
            },
            tokens_left: dispatcher.config.max_batch_tokens as usize
                + usize::from(planted::is(Bug::BudgetOffByOne)),
            prefill_left: self.prefill_limit.unwrap_or(usize::MAX),
            scored_weight: Weight::ONE,
            preempted: false,
        }
    }

    /// Picks the decoding rows and makes sure that each can have its block, at the cost of the newest
    /// sequences. `false`: wait for the steps in flight first, for their blocks cannot be taken yet.
    fn choose_decodes(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) -> bool {
        loop {
            self.decodes.clear();
            let mut blocks = 0;
            let start = if self.running.len() > draft.tokens_left {
                self.rotation % self.running.len()
            } else {
                0
            };
            let (after, before) = self.running.split_at(start);
            for &index in before.iter().chain(after) {
                if self.decodes.len() == draft.tokens_left {
                    break;
                }
                let sequence = &dispatcher.sequences[index];
                let decodes = sequence.uncomputed() == 1 && !sequence.is_fully_planned();
                if decodes && (!sequence.stands_aside() || planted::is(Bug::PauseIgnored)) {
                    self.decodes.push(index);
                    if sequence.table.len() * self.block_size <= sequence.planned {
                        blocks += 1;
                    }
                }
            }
            if blocks <= self.kv.available() {
                self.rotation = start + self.decodes.len();
                return true;
            }
            if self.preempt_paused(dispatcher) {
                continue;
            }
            if !self.in_flight.is_empty() {
                return false;
            }
            let victim = if planted::is(Bug::OldestPreempted) {
                self.running[0]
            } else {
                self.victim(dispatcher)
            };
            self.preempt(dispatcher, victim);
            draft.preempted = true;
        }
    }

    fn plan_decodes(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) {
        let decodes = std::mem::take(&mut self.decodes);
        draft.record.decode_rows = decodes.len();
        for &index in &decodes {
            self.add_row(dispatcher, draft, index, 1);
        }
        self.decodes = decodes;
    }

    /// Nothing can go on and nothing is awaited: what runs holds twins of its own blocks. It gives both up and
    /// comes back with one of each.
    pub(super) fn start_over(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) {
        while let Some(&newest) = self.running.last() {
            self.preempt(dispatcher, newest);
        }
        self.admit_waiting(dispatcher, draft);
    }

    /// How many more tokens the sequence could compute with all blocks that can be had.
    pub(super) fn room(&self, dispatcher: &Dispatcher, index: SequenceIndex) -> usize {
        let sequence = &dispatcher.sequences[index];
        (sequence.table.len() + self.kv.available()) * self.block_size - sequence.planned
    }

    pub(super) fn add_prefill_row(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        index: SequenceIndex,
        num_tokens: usize,
    ) {
        let sequence = &dispatcher.sequences[index];
        // One token goes on where there is room for less than that.
        let count = draft.count(sequence, num_tokens);
        draft.prefill_left = draft.prefill_left.saturating_sub(count);
        let tokens = &mut draft.record.prefill_tokens;
        if sequence.is_being_scored() {
            tokens.scored += num_tokens;
        } else {
            tokens.plain += num_tokens;
        }
        self.add_row(dispatcher, draft, index, num_tokens);
    }

    /// Adds a row and the blocks that it needs, which the caller knows can be had.
    pub(super) fn add_row(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        index: SequenceIndex,
        num_tokens: usize,
    ) {
        let sequence = &mut dispatcher.sequences[index];
        let start = sequence.planned;
        let end = start + num_tokens;
        let known_blocks = sequence.table.len();
        while sequence.table.len() * self.block_size < end {
            let block = self.kv.take();
            assert!(block.is_some(), "blocks were counted before rows are added");
            sequence.table.extend(block);
        }
        if sequence.table.len() > known_blocks && sequence.announced {
            draft
                .plan
                .block_appends
                .push((sequence.slot, sequence.table[known_blocks..].to_vec()));
        }
        let sample = end == sequence.upper();
        let logprobs = if sequence.wants_prompt_logprobs {
            let due = sequence.prompt_logprobs_of(start, num_tokens);
            if start + due > sequence.reported_logprobs {
                due
            } else {
                0
            }
        } else {
            0
        };
        let masked = sample && sequence.constrained;
        if masked {
            draft.plan.masks.push(DueMask {
                sequence: sequence.id,
                slot: sequence.slot,
                position: narrow(sequence.upper() - sequence.prompt_length)
                    + u32::from(planted::is(Bug::MaskPositionOffByOne)),
            });
        }
        draft.plan.rows.push(Row {
            slot: sequence.slot,
            num_tokens: narrow(num_tokens),
            sample,
            prompt_logprobs: logprobs > 0,
            masked,
        });
        draft.record.rows.push(RowRecord {
            index,
            slot: sequence.slot,
            start,
            num_tokens,
            sample,
            masked,
            logprobs,
        });
        draft.tokens_left -= num_tokens;
        sequence.planned = end;
        sequence.pending_ids += usize::from(sample);
        sequence.unanswered += 1;
    }
}
