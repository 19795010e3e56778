//! Steps that are for some sequences only: one of a failed step, or those that crash isolation runs.

use super::Group;
use super::plan::Draft;
use crate::crash::Turn;
use crate::dispatcher::Dispatcher;
use crate::sequence::{Phase, SequenceIndex};

impl Group {
    /// The rows of those whose turn it is. `false`: the steps in flight come first.
    pub(super) fn plan_turn(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        turn: Turn,
    ) -> bool {
        match turn {
            Turn::Everyone => {
                let planned = self.plan_everyone(dispatcher, draft);
                let nothing = self.in_flight.is_empty() && draft.plan.rows.is_empty();
                if nothing && !self.all_stand_aside(dispatcher) {
                    self.start_over(dispatcher, draft);
                }
                planned
            }
            Turn::Only(members) => {
                self.plan_only(dispatcher, draft, &members);
                true
            }
            Turn::OneOrOthers(index) => {
                let others_first = dispatcher.isolation.others_turn;
                dispatcher.isolation.others_turn = !others_first;
                if others_first {
                    self.plan_everyone(dispatcher, draft);
                }
                if draft.plan.rows.is_empty() {
                    self.plan_alone(dispatcher, draft, index);
                }
                true
            }
        }
    }

    /// A row of the first member, and of others as far as there is room.
    fn plan_only(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        members: &[SequenceIndex],
    ) {
        let Some((&first, others)) = members.split_first() else {
            return;
        };
        self.plan_alone(dispatcher, draft, first);
        if draft.record.rows.first().map(|row| row.index) != Some(first) {
            return;
        }
        for &index in others {
            if draft.prefill_room() == 0 {
                break;
            }
            if dispatcher.sequences[index].phase == Phase::Running {
                self.add_row_alone(dispatcher, draft, index);
            } else {
                self.admit_alone(dispatcher, draft, index);
            }
        }
        draft.put_decodes_first();
    }

    /// One sequence with nothing beside it. Where it needs the blocks of the oldest of the highest class that runs,
    /// that one goes on first.
    pub(super) fn plan_alone(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        index: SequenceIndex,
    ) {
        loop {
            let runs = dispatcher.sequences[index].phase == Phase::Running;
            let planned = if runs {
                self.add_row_alone(dispatcher, draft, index)
            } else {
                self.admit_alone(dispatcher, draft, index)
            };
            if planned {
                return;
            }
            if self.preempt_paused(dispatcher) {
                continue;
            }
            let rank = dispatcher.sequences[index].rank;
            let oldest = self.running.first().copied();
            let spared = oldest.filter(|&oldest| dispatcher.sequences[oldest].rank < rank);
            let takes = |&other: &SequenceIndex| other != index && Some(other) != spared;
            let others = self.running.iter().rev().copied().find(takes);
            // The others first, then itself, which gives up twins.
            if let Some(victim) = others.or(Some(index).filter(|_| runs)) {
                self.preempt(dispatcher, victim);
            } else if let Some(oldest) = spared {
                self.plan_alone(dispatcher, draft, oldest);
                return;
            } else {
                return;
            }
        }
    }

    /// A row of a running sequence, if there is room.
    fn add_row_alone(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        index: SequenceIndex,
    ) -> bool {
        let room = self.room(dispatcher, index);
        let uncomputed = dispatcher.sequences[index].uncomputed();
        let chunk = uncomputed.min(draft.prefill_room()).min(room);
        if chunk > 0 && uncomputed == 1 {
            self.add_row(dispatcher, draft, index, 1);
        } else if chunk > 0 {
            self.add_prefill_row(dispatcher, draft, index, chunk);
        }
        chunk > 0
    }

    /// Whose blocks are taken for a decode: the newest one's. The oldest of the highest class keeps its own, those
    /// that run one at a time keep them longest beside it. With one alone, it gives up twins of its own blocks.
    pub(super) fn victim(&self, dispatcher: &Dispatcher) -> SequenceIndex {
        let last = self.running.len() - 1;
        let newer = self.running[1..].iter().rev().copied();
        let free = |&index: &SequenceIndex| !dispatcher.sequences[index].isolated;
        newer.clone().find(free).unwrap_or(self.running[last])
    }
}

impl Draft {
    fn put_decodes_first(&mut self) {
        self.plan.rows.sort_by_key(|row| row.num_tokens > 1);
        self.record.rows.sort_by_key(|row| row.num_tokens > 1);
        let rows = &self.plan.rows;
        let place = |slot| rows.iter().position(|row| row.slot == slot);
        self.plan.masks.sort_by_key(|due| place(due.slot));
    }
}
