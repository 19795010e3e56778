//! Prefills already started, and how a step is shared among several.

use std::time::Duration;

use super::Group;
use super::pace::Line;
use super::plan::Draft;
use crate::dispatcher::Dispatcher;
use crate::sequence::SequenceIndex;

/// Prefills of a bounded step at most: more would all be late, and hold their blocks for long.
const LANES: usize = 4;

/// Of a step that one prefill would fill the others get one part of so many: enough for a short prompt, and little to a
/// long one, which are done sooner one after the other.
const OTHERS_PART: usize = 8;

/// After so many times the overdue age a prefill gets half of a step's time. It has its part of every step until then,
/// so it is not forgotten, and who reads along beside it should not pay for a slow machine after the first minute.
const HALF_AFTER: u32 = 2;

impl Group {
    /// Most prefill tokens, counted as plain ones, of the step being planned, for the sake of its decoding rows.
    pub(super) fn prefill_share(&mut self, dispatcher: &Dispatcher) -> usize {
        let rows = self.decodes.len();
        if rows == 0 || !self.pace.is_bounding() {
            return usize::MAX;
        }
        let mut started = self.started_prefills(dispatcher);
        let first = started.next();
        let line = Line {
            prefills: usize::from(first.is_some())
                + started.count()
                + dispatcher.waiting().min(self.free_slots.len()),
            is_overdue: first.is_some_and(|index| is_long_overdue(dispatcher, index)),
        };
        self.pace.bound(rows, line)
    }

    /// Goes on with prefills, oldest first.
    pub(super) fn plan_prefills(&mut self, dispatcher: &mut Dispatcher, draft: &mut Draft) {
        let mut at = 0;
        while at < self.running.len() {
            if is_prefill(dispatcher, self.running[at]) && draft.prefill_room() > 0 {
                at = self.make_room_for_prefill(dispatcher, draft, at);
                self.plan_prefill(dispatcher, draft, self.running[at], usize::MAX);
            }
            at += 1;
        }
    }

    /// Shares a step among several prefills, so that a short one need not wait for the end of a long one. The first gets
    /// one half of a step that is bounded for the sake of decoding rows, and most of another one if it would fill it
    /// alone; of the rest the next of its class gets one half, and so on; what waits comes last. What is left goes to the
    /// first, and then to whoever waits. `false`: nothing was planned, for it is alone, does not fill the step, or has
    /// not its blocks.
    pub(super) fn divide_share(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        is_bounded: bool,
    ) -> bool {
        if !self.pace.is_bounding() {
            return false;
        }
        let Some(first) = self.started_prefills(dispatcher).next() else {
            return false;
        };
        let room = draft.prefill_room();
        let sequence = &dispatcher.sequences[first];
        let uncomputed = draft.count(sequence, sequence.uncomputed());
        let kept = if is_bounded {
            room.div_ceil(2).min(uncomputed)
        } else if uncomputed > room {
            room - room / OTHERS_PART
        } else {
            return false;
        };
        let class = sequence.rank.0;
        let first_row = draft.fitting(sequence, kept);
        let others: Vec<SequenceIndex> = self
            .started_prefills(dispatcher)
            .skip(1)
            .take_while(|&other| dispatcher.sequences[other].rank.0 == class)
            .take(LANES - 1)
            .collect();
        let admits = others.len() < LANES - 1 && self.is_next_of_class(dispatcher, class);
        if (others.is_empty() && !admits) || self.room(dispatcher, first) < first_row {
            return false;
        }
        draft.prefill_left = room - kept;
        for (at, &other) in others.iter().enumerate() {
            let is_last = at + 1 == others.len() && !admits;
            let parts = if is_last { 1 } else { 2 };
            let limit = draft.prefill_room().div_ceil(parts);
            self.plan_prefill(dispatcher, draft, other, limit);
        }
        if admits {
            self.admit_waiting(dispatcher, draft);
        }
        draft.prefill_left += kept;
        self.plan_prefill(dispatcher, draft, first, usize::MAX);
        self.admit_waiting(dispatcher, draft);
        true
    }

    /// By rank.
    fn started_prefills<'a>(
        &'a self,
        dispatcher: &'a Dispatcher,
    ) -> impl Iterator<Item = SequenceIndex> + 'a {
        let running = self.running.iter().copied();
        running.filter(|&index| is_prefill(dispatcher, index))
    }

    /// Whether what is next in the queue is of this class or a higher one.
    fn is_next_of_class(&mut self, dispatcher: &mut Dispatcher, class: i32) -> bool {
        dispatcher.queue.candidates(1, &mut self.candidates);
        let next = self.candidates.first();
        next.is_some_and(|&index| dispatcher.sequences[index].rank.0 <= class)
    }

    /// A row of at most so many plain tokens, or of what counts for as many, as far as there are tokens and blocks.
    fn plan_prefill(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        index: SequenceIndex,
        limit: usize,
    ) {
        let sequence = &dispatcher.sequences[index];
        let chunk = sequence
            .uncomputed()
            .min(draft.fitting(sequence, limit))
            .min(self.room(dispatcher, index));
        if chunk > 0 {
            self.add_prefill_row(dispatcher, draft, index, chunk);
        }
    }

    /// A prefill that cannot go on at all takes the blocks of paused sequences, then of newer ones, that no step
    /// touches. Where it stands then.
    fn make_room_for_prefill(
        &mut self,
        dispatcher: &mut Dispatcher,
        draft: &mut Draft,
        mut position: usize,
    ) -> usize {
        let index = self.running[position];
        while self.room(dispatcher, index) == 0 {
            if self.preempt_paused(dispatcher) {
                position = self.position(dispatcher, index);
                continue;
            }
            let newer = &self.running[position + 1..];
            let idle = |&&index: &&SequenceIndex| dispatcher.sequences[index].unanswered == 0;
            let victim = newer.iter().rev().find(idle).copied();
            // A paused one that a step still touches is taken before a newer one.
            let Some(victim) = victim.filter(|_| self.paused == 0) else {
                break;
            };
            self.preempt(dispatcher, victim);
            draft.preempted = true;
        }
        position
    }
}

fn is_prefill(dispatcher: &Dispatcher, index: SequenceIndex) -> bool {
    let sequence = &dispatcher.sequences[index];
    sequence.uncomputed() > 1 && !sequence.stands_aside()
}

/// Whether it waits for longer, for its slot and in it, than the pace of others counts for.
fn is_long_overdue(dispatcher: &Dispatcher, index: SequenceIndex) -> bool {
    let since = dispatcher.sequences[index].waits_since.0;
    let age: Option<Duration> = dispatcher.config.policy.overdue_age;
    age.is_some_and(|age| dispatcher.now.0.saturating_sub(since) >= age.saturating_mul(HALF_AFTER))
}
