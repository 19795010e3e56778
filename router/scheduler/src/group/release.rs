//! Ways out of a slot: the end, a cancel, a preemption, the group's death.

use super::Group;
use crate::dispatcher::Dispatcher;
use crate::planted::{self, Bug};
use crate::pool::Place;
use crate::sequence::{Phase, SequenceIndex};

impl Group {
    /// Takes the blocks of a running sequence and puts it back into the queue, where it keeps its place.
    pub(super) fn preempt(&mut self, dispatcher: &mut Dispatcher, index: SequenceIndex) {
        let unanswered = dispatcher.sequences[index].unanswered;
        assert!(
            unanswered == 0,
            "a sequence in an unanswered step keeps its blocks"
        );
        self.remove_running(dispatcher, index);
        self.paused -= usize::from(dispatcher.sequences[index].paused);
        self.unlist_computing(dispatcher, index);
        self.vacate(dispatcher, index);
        let sequence = &mut dispatcher.sequences[index];
        sequence.leave_group();
        if planted::is(Bug::PreemptedLosesIds) {
            sequence.ids.truncate(sequence.prompt_length);
        }
        dispatcher.enqueue(index);
        dispatcher.counters.preemptions += 1;
    }

    /// Ends a running sequence that its owner no longer wants.
    pub(crate) fn cancel(&mut self, dispatcher: &mut Dispatcher, index: SequenceIndex) {
        self.remove_running(dispatcher, index);
        self.end(dispatcher, index);
    }

    /// Ends a sequence that has left `running`: now, or once the steps that name it have answered.
    pub(super) fn end(&mut self, dispatcher: &mut Dispatcher, index: SequenceIndex) {
        dispatcher.forget_id(index);
        if !planted::is(Bug::CancelledStaysListed) {
            self.unlist_computing(dispatcher, index);
        }
        self.end_retry(dispatcher, index);
        let sequence = &mut dispatcher.sequences[index];
        self.paused -= usize::from(sequence.paused);
        sequence.phase = Phase::Ending;
        if sequence.unanswered == 0 {
            self.vacate(dispatcher, index);
            dispatcher.sequences.remove(index);
        } else {
            self.ending.push(index);
            let last = sequence
                .table
                .last()
                .copied()
                .filter(|_| planted::is(Bug::FreeInFlight));
            if let Some(block) = last.filter(|&block| self.kv.pool.place(block) == Place::Private) {
                sequence.table.pop();
                self.kv.pool.give_back(block);
            }
        }
    }

    /// An ending sequence whose last step has answered.
    pub(super) fn finish_ending(&mut self, dispatcher: &mut Dispatcher, index: SequenceIndex) {
        self.ending.retain(|&other| other != index);
        self.vacate(dispatcher, index);
        dispatcher.sequences.remove(index);
    }

    /// It ran alone and well, or is over.
    pub(crate) fn end_retry(&mut self, dispatcher: &mut Dispatcher, index: SequenceIndex) {
        let sequence = &mut dispatcher.sequences[index];
        if sequence.retried {
            sequence.retried = false;
            self.retries.retain(|&other| other != index);
        }
    }

    /// The workers are gone: every running sequence goes back to the queue, and the books with the group.
    pub(crate) fn disband(self, dispatcher: &mut Dispatcher) {
        for &index in &self.retries {
            dispatcher.sequences[index].retried = false;
        }
        let forgotten = self.running.last().copied();
        for index in self.running {
            if planted::is(Bug::DeadGroupLosesSequence) && Some(index) == forgotten {
                continue;
            }
            dispatcher.sequences[index].leave_group();
            dispatcher.enqueue(index);
        }
        for index in self.ending {
            dispatcher.sequences.remove(index);
        }
    }

    /// Frees what only the tree holds; nobody waits any more for what runs, for it will not be found.
    pub(crate) fn flush_cache(&mut self, dispatcher: &mut Dispatcher) -> usize {
        let freed = self.kv.tree.flush(&mut self.kv.pool);
        for at in 0..self.running.len() {
            self.unlist_computing(dispatcher, self.running[at]);
        }
        freed
    }

    /// Where a running sequence stands.
    pub(super) fn position(&self, dispatcher: &Dispatcher, index: SequenceIndex) -> usize {
        let rank = dispatcher.sequences[index].rank;
        self.running
            .partition_point(|&other| dispatcher.sequences[other].rank < rank)
    }

    fn remove_running(&mut self, dispatcher: &Dispatcher, index: SequenceIndex) {
        let at = self.position(dispatcher, index);
        assert!(
            self.running.get(at) == Some(&index),
            "running sequences stand by rank"
        );
        self.running.remove(at);
    }

    /// Gives slot and blocks back. What is complete stays in the tree, the block that is not full included.
    fn vacate(&mut self, dispatcher: &Dispatcher, index: SequenceIndex) {
        let sequence = &dispatcher.sequences[index];
        let whole = sequence.published * self.block_size;
        if self.prefix_caching && !sequence.tainted && sequence.answered > whole {
            let ids = &sequence.ids[whole..sequence.answered];
            let block = sequence.table[sequence.published];
            let added = self.kv.tree.add_tail(
                &mut self.kv.pool,
                sequence.node,
                ids,
                block,
                sequence.retention,
            );
            if added && planted::is(Bug::DoubleFree) {
                self.kv.pool.give_back(block);
            }
        }
        let ending = sequence.phase == Phase::Ending;
        let mut leak = ending && planted::is(Bug::CancelLeaksBlock);
        for &block in &sequence.table {
            // A published block of the table lies on the held path; what is still private is its own.
            if self.kv.pool.place(block) == Place::Private && !std::mem::take(&mut leak) {
                self.kv.pool.give_back(block);
            }
        }
        if !(ending && planted::is(Bug::CancelLeaksHold)) {
            self.kv.tree.release(&mut self.kv.pool, sequence.node);
        }
        self.finished_slots.push(sequence.slot);
        self.free_slots.push(sequence.slot);
    }
}
