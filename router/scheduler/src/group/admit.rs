//! Admission: from the queue into a slot.

use super::Group;
use super::plan::Draft;
use crate::dispatcher::Dispatcher;
use crate::sequence::{Phase, SequenceIndex, narrow};
use crate::tree::Match;
use crate::types::{BlockCopy, NewSequence};

/// Of this many blocks, one is kept free at admission for each running sequence at most: without it a
/// sequence that just came would soon be the newest when a decode needs a block.
const RESERVE_DIVISOR: usize = 32;

impl Group {
    /// Admits from the queue's front while there is budget, a slot and blocks.
    pub(super) fn admit_waiting(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) {
        // Blocks just taken from a sequence are for the older ones.
        if draft.preempted && !draft.plan.rows.is_empty() {
            return;
        }
        while draft.prefill_room() > 0 {
            let Some(index) = dispatcher.head() else {
                return;
            };
            if dispatcher.sequences[index].suspect || !self.admit(dispatcher, draft, index) {
                return;
            }
        }
    }

    /// Moves one waiting sequence into a slot and plans its first row, if blocks for all ids it has can be
    /// had. Prefills already started have theirs by then, or the step's budget is gone.
    pub(super) fn admit(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        index: SequenceIndex,
    ) -> bool {
        let Some(&slot) = self.free_slots.last() else {
            return false;
        };
        let Some(found) = self.find_fitting(dispatcher, index) else {
            return false;
        };
        self.free_slots.pop();
        dispatcher.dequeue(index);

        let sequence = &mut dispatcher.sequences[index];
        sequence.phase = Phase::Running;
        sequence.group = self.id;
        sequence.slot = slot;
        sequence.announced = false;
        sequence.table.clear();
        sequence.table.extend_from_slice(&self.matched);
        sequence.published = self.matched.len();
        sequence.answered = self.matched.len() * self.block_size;
        sequence.planned = sequence.answered;
        sequence.node = match &found {
            Some(found) => self.kv.tree.hold_match(found),
            None => self.kv.tree.hold_root(sequence.namespace),
        };
        if let Some(partial) = found.and_then(|found| found.partial) {
            // Held until the step has answered: the copy is made when the workers get to it.
            self.kv.tree.hold(partial.node);
            draft.record.holds.push(partial.node);
            let block = self.kv.take();
            assert!(block.is_some(), "blocks were counted before the copy");
            sequence.table.extend(block);
            draft
                .plan
                .block_copies
                .extend(block.map(|destination| BlockCopy {
                    source: partial.block,
                    destination,
                    num_tokens: narrow(partial.ids),
                }));
            sequence.planned += partial.ids;
            sequence.copying = true;
        }
        let computed = sequence.planned;
        if !sequence.started {
            sequence.cached_tokens = computed.min(sequence.prompt_length);
        }
        let counters = &mut dispatcher.counters;
        counters.prefix_query_tokens += sequence.cacheable() as u64;
        counters.prefix_hit_tokens += computed as u64;
        counters.recomputed_tokens += sequence.high_water.saturating_sub(computed) as u64;

        let chunk = sequence.uncomputed().min(draft.prefill_room());
        let rank = sequence.rank;
        let at = self
            .running
            .partition_point(|&other| dispatcher.sequences[other].rank < rank);
        self.running.insert(at, index);
        self.add_prefill_row(dispatcher, draft, index, chunk);

        let sequence = &mut dispatcher.sequences[index];
        sequence.announced = true;
        draft.plan.new_sequences.push(NewSequence {
            slot,
            token_ids: sequence.ids.clone(),
            prompt_length: narrow(sequence.prompt_length),
            computed_length: narrow(computed),
            blocks: sequence.table.clone(),
            sampling: sequence.sampling.clone(),
        });
        true
    }

    /// The cached prefix of a sequence, its whole blocks in `matched`; `None` when its blocks do not fit now.
    /// The partly equal block is given up where the copy does not fit.
    #[expect(
        clippy::option_option,
        reason = "outer: fits or not; inner: the tree knows the namespace or not"
    )]
    fn find_fitting(
        &mut self,
        dispatcher: &Dispatcher,
        index: SequenceIndex,
    ) -> Option<Option<Match>> {
        let sequence = &dispatcher.sequences[index];
        self.matched.clear();
        let mut found = None;
        if self.prefix_caching {
            let ids = &sequence.ids[..sequence.cacheable()];
            found = self
                .kv
                .tree
                .lookup(sequence.namespace, ids, &mut self.matched);
        }
        let reserve = self
            .running
            .len()
            .min(self.kv.pool.total() / RESERVE_DIVISOR);
        let loose = found.as_ref().map_or(0, |found| found.loose_blocks);
        let blocks = sequence.ids.len().div_ceil(self.block_size) - self.matched.len();
        let needed = blocks + loose + reserve;
        let available = self.kv.available();
        if needed > available {
            return None;
        }
        if let Some(found) = &mut found {
            found.partial = found
                .partial
                .filter(|partial| needed + partial.loose_blocks <= available);
        }
        Some(found)
    }
}
