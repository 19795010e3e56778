//! Admission: from the queue into a slot.

use super::Group;
use super::plan::Draft;
use crate::dispatcher::Dispatcher;
use crate::planted::{self, Bug};
use crate::queue::OVERDUE;
use crate::sequence::{Phase, SequenceIndex, narrow};
use crate::tree::Match;
use crate::types::{BlockCopy, Event, NewSequence};

/// Of this many blocks, one is kept free at admission for each running sequence at most: without it a
/// sequence that just came would soon be the newest when a decode needs a block.
const RESERVE_DIVISOR: usize = 32;

/// What keeps a waiting sequence from running.
enum Fit {
    /// Nothing; its cached prefix, if the tree knows its namespace.
    Fits(Option<Match>),
    /// Its blocks cannot be had.
    Misfit,
    /// A running sequence computes what it would compute too.
    Deferred,
}

/// Whether later sequences may still be admitted before one that does not fit.
fn may_be_passed(dispatcher: &mut Dispatcher, index: SequenceIndex) -> bool {
    let now = dispatcher.now;
    let bound = dispatcher.config.policy.skip_ahead;
    let sequence = &mut dispatcher.sequences[index];
    let since = *sequence.misfit_since.get_or_insert(now);
    let bound_by_order = sequence.returned || sequence.rank.0 == OVERDUE;
    let in_time = now.0.saturating_sub(since.0) < bound;
    !bound_by_order && (in_time || planted::is(Bug::SkipAheadUnbounded))
}

impl Group {
    /// Admits from the queue while there is budget, a slot and blocks.
    pub(super) fn admit_waiting(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) {
        // Blocks just taken from a sequence are for the older ones.
        if draft.preempted && !draft.plan.rows.is_empty() {
            return;
        }
        while draft.prefill_room() > 0
            && self.has_slot(dispatcher)
            && self.admit_next(dispatcher, draft)
        {}
    }

    /// Whether a slot is free, or one of a paused sequence that somebody wants.
    fn has_slot(&mut self, dispatcher: &mut Dispatcher) -> bool {
        let wanted = dispatcher.waiting() > 0;
        !self.free_slots.is_empty() || (wanted && self.preempt_paused(dispatcher))
    }

    /// Admits the first of the queue that may run now. `false`: none may.
    fn admit_next(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) -> bool {
        self.admit_cached(dispatcher, draft) || self.admit_in_order(dispatcher, draft)
    }

    /// Admits a sequence with a longer cached prefix than the one at the queue's front has.
    fn admit_cached(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) -> bool {
        let Some((preferred, front)) = self.preferred(dispatcher) else {
            return false;
        };
        let Fit::Fits(found) = self.find_fitting(dispatcher, preferred) else {
            return false;
        };
        self.enter(dispatcher, draft, preferred, found);
        dispatcher.sequences[front].passes += 1;
        true
    }

    fn admit_in_order(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) -> bool {
        let mut candidates = std::mem::take(&mut self.candidates);
        dispatcher.queue.candidates(1, &mut candidates);
        let mut admitted = false;
        let mut passes = false;
        let mut at = 0;
        while let Some(&index) = candidates.get(at) {
            if dispatcher.sequences[index].retried {
                break;
            }
            match self.find_fitting(dispatcher, index) {
                Fit::Fits(found) => {
                    self.enter(dispatcher, draft, index, found);
                    dispatcher.counters.skipped_ahead += u64::from(passes);
                    admitted = true;
                    break;
                }
                Fit::Misfit if !may_be_passed(dispatcher, index) => break,
                Fit::Misfit => passes = true,
                Fit::Deferred => {}
            }
            if at == 0 {
                let window = dispatcher.config.policy.skip_ahead_window;
                dispatcher.queue.candidates(window, &mut candidates);
            }
            at += 1;
        }
        self.candidates = candidates;
        admitted
    }

    /// Admits a sequence of a failed step, which waits for nobody else's blocks.
    pub(super) fn admit_alone(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        index: SequenceIndex,
    ) -> bool {
        if self.free_slots.is_empty() {
            return false;
        }
        let found = self.find_cached(dispatcher, index);
        let Some(found) = self.fit(dispatcher, index, found) else {
            return false;
        };
        self.enter(dispatcher, draft, index, found);
        true
    }

    /// Moves one waiting sequence into a slot and plans its first row. Blocks for all ids it has can be had:
    /// prefills already started have theirs by then, or the step's budget is gone.
    fn enter(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        index: SequenceIndex,
        found: Option<Match>,
    ) {
        let Some(slot) = self.free_slots.pop() else {
            return;
        };
        dispatcher.dequeue(index);

        let sequence = &mut dispatcher.sequences[index];
        sequence.phase = Phase::Running;
        sequence.group = self.id;
        sequence.slot = slot;
        sequence.announced = false;
        sequence.returned = false;
        sequence.misfit_since = None;
        sequence.deferred_since = None;
        sequence.table.clear();
        sequence.table.extend_from_slice(&self.matched);
        sequence.published = self.matched.len();
        sequence.answered = self.matched.len() * self.block_size;
        sequence.planned = sequence.answered;
        sequence.node = match &found {
            Some(found) => self.kv.tree.hold_match(found, sequence.retention),
            None => (self.kv.tree).hold_root(sequence.namespace, sequence.retention),
        };
        if let Some(mut partial) = found.and_then(|found| found.partial) {
            // Held until the step has answered: the copy is made when the workers get to it.
            if !planted::is(Bug::CopySourceNotHeld) {
                self.kv.tree.hold(partial.node, sequence.retention);
                draft.record.holds.push(partial.node);
            }
            partial.ids += usize::from(planted::is(Bug::PartialCopyTooLong));
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
            sequence.started = true;
            let cached_tokens = narrow(computed.min(sequence.prompt_length));
            dispatcher.events.push(Event::Started {
                id: sequence.id,
                cached_tokens,
                at: dispatcher.now,
            });
        }
        let counters = &mut dispatcher.counters;
        counters.prefix_query_tokens += sequence.cacheable() as u64;
        counters.prefix_hit_tokens += computed as u64;
        counters.recomputed_tokens += sequence.high_water.saturating_sub(computed) as u64;

        sequence.waited = dispatcher.now.0.saturating_sub(sequence.waits_since.0);
        let uncached = sequence.prompt_length.saturating_sub(computed);
        dispatcher.queue.serve(sequence, uncached);

        let chunk = sequence
            .uncomputed()
            .min(draft.fitting(sequence, usize::MAX));
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
        self.list_computing(dispatcher, index);
    }

    /// Whether a waiting sequence may run now, and with which cached prefix, its whole blocks in `matched`.
    fn find_fitting(&mut self, dispatcher: &mut Dispatcher, index: SequenceIndex) -> Fit {
        let found = self.find_cached(dispatcher, index);
        let now = dispatcher.now;
        let overdue = dispatcher.sequences[index].rank.0 == OVERDUE;
        if !overdue && self.is_being_computed(dispatcher, index, self.matched.len()) {
            let bound = dispatcher.config.policy.share_prefixes;
            let sequence = &mut dispatcher.sequences[index];
            if sequence.deferred_since.is_none() {
                sequence.deferred_since = Some(now);
                dispatcher.counters.deferrals += 1;
            }
            let since = sequence.deferred_since.unwrap_or(now);
            if now.0.saturating_sub(since.0) < bound {
                return Fit::Deferred;
            }
        }
        let mut fits = self.fit(dispatcher, index, found);
        while fits.is_none() && self.preempt_paused(dispatcher) {
            let found = self.find_cached(dispatcher, index);
            fits = self.fit(dispatcher, index, found);
        }
        fits.map_or(Fit::Misfit, Fit::Fits)
    }

    /// The cached prefix of a sequence, its whole blocks in `matched`.
    pub(super) fn find_cached(
        &mut self,
        dispatcher: &Dispatcher,
        index: SequenceIndex,
    ) -> Option<Match> {
        let sequence = &dispatcher.sequences[index];
        self.matched.clear();
        if !self.prefix_caching {
            return None;
        }
        let ids = &sequence.ids[..sequence.cacheable()];
        self.kv
            .tree
            .lookup(sequence.namespace, ids, &mut self.matched)
    }

    /// `None` when the blocks of a sequence do not fit now. The partly equal block is given up where the copy
    /// does not fit.
    #[expect(
        clippy::option_option,
        reason = "outer: fits or not; inner: the tree knows the namespace or not"
    )]
    fn fit(
        &self,
        dispatcher: &Dispatcher,
        index: SequenceIndex,
        mut found: Option<Match>,
    ) -> Option<Option<Match>> {
        let sequence = &dispatcher.sequences[index];
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
