//! Paused sequences in slots: they have no rows, and what they hold is taken first.

use super::Group;
use crate::dispatcher::Dispatcher;
use crate::sequence::SequenceIndex;

impl Group {
    /// Pauses or resumes a running sequence.
    pub(crate) fn set_paused(
        &mut self,
        dispatcher: &mut Dispatcher,
        index: SequenceIndex,
        paused: bool,
    ) {
        dispatcher.sequences[index].paused = paused;
        if paused {
            self.paused += 1;
            // Nobody waits for blocks that may never be computed.
            self.unlist_computing(dispatcher, index);
        } else {
            self.paused -= 1;
            self.list_computing(dispatcher, index);
        }
    }

    /// Takes slot and blocks of the newest paused sequence that no step touches. `false`: there is none.
    pub(super) fn preempt_paused(&mut self, dispatcher: &mut Dispatcher) -> bool {
        if self.paused == 0 {
            return false;
        }
        let idle = |index: &&SequenceIndex| {
            let sequence = &dispatcher.sequences[**index];
            sequence.paused && sequence.unanswered == 0
        };
        let Some(&victim) = self.running.iter().rev().find(idle) else {
            return false;
        };
        self.preempt(dispatcher, victim);
        true
    }

    /// Whether there is something in the slots and nothing that may run.
    pub(super) fn all_stand_aside(&self, dispatcher: &Dispatcher) -> bool {
        let aside = |&index: &SequenceIndex| dispatcher.sequences[index].stands_aside();
        !self.running.is_empty() && self.running.iter().copied().all(|index| aside(&index))
    }
}
