//! The longest cached prefix first, as far as the front of the queue lets it.

use super::Group;
use crate::dispatcher::Dispatcher;
use crate::policy::QueueOrder;
use crate::queue::OVERDUE;
use crate::sequence::SequenceIndex;

impl Group {
    /// The waiting sequence with the longest cached prefix, and the one at the queue's front that it may pass.
    /// `None` when that is the front itself.
    pub(super) fn preferred(
        &mut self,
        dispatcher: &mut Dispatcher,
    ) -> Option<(SequenceIndex, SequenceIndex)> {
        if dispatcher.config.policy.order != QueueOrder::Lpm || !self.prefix_caching {
            return None;
        }
        let mut candidates = std::mem::take(&mut self.candidates);
        dispatcher.queue.candidates(1, &mut candidates);
        let front = candidates.first().copied();
        let front = front.filter(|&front| may_be_preceded(dispatcher, front));
        let mut longest = front;
        if let Some(front) = front {
            let class = dispatcher.sequences[front].rank.0;
            dispatcher.queue.alike(class, &mut candidates);
            self.find_cached(dispatcher, front);
            let mut most_blocks = self.matched.len();
            for &index in &candidates {
                self.find_cached(dispatcher, index);
                if self.matched.len() > most_blocks && !dispatcher.sequences[index].retried {
                    most_blocks = self.matched.len();
                    longest = Some(index);
                }
            }
        }
        self.candidates = candidates;
        longest
            .zip(front)
            .filter(|(longest, front)| longest != front)
    }
}

/// Not what ran before, is overdue, was passed often enough, or does not fit: for that there is skip-ahead.
fn may_be_preceded(dispatcher: &Dispatcher, front: SequenceIndex) -> bool {
    let sequence = &dispatcher.sequences[front];
    let bound_by_order = sequence.returned || sequence.retried || sequence.rank.0 == OVERDUE;
    let passes_left = sequence.passes < dispatcher.config.policy.most_passes;
    !bound_by_order && passes_left && sequence.misfit_since.is_none()
}
