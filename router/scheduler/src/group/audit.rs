//! The full check of a group.

use super::Group;
use crate::dispatcher::Dispatcher;
use crate::pool::Place;
use crate::sequence::{Phase, Sequence};
use crate::tree::NodeId;

impl Group {
    /// Panics unless every block is in one place, every hold has a holder, and every length fits.
    pub(crate) fn audit(&self, dispatcher: &Dispatcher) {
        self.check_sums(dispatcher);
        self.kv.pool.audit();
        let config = &dispatcher.config;
        let mut holds: Vec<NodeId> = Vec::new();
        let mut slots = vec![false; config.max_sequences as usize];
        let mut owned = vec![false; self.kv.pool.total()];
        let mut private = 0;
        for &slot in &self.free_slots {
            assert!(!slots[slot as usize], "slot {slot} is free twice");
            slots[slot as usize] = true;
        }
        let phases = [
            (&self.running, Phase::Running),
            (&self.ending, Phase::Ending),
        ];
        for (indices, phase) in phases {
            for &index in indices {
                let sequence = &dispatcher.sequences[index];
                assert!(
                    sequence.phase == phase,
                    "{:?} is {:?}",
                    sequence.id,
                    sequence.phase
                );
                assert!(
                    sequence.group == self.id,
                    "{:?} is another group's",
                    sequence.id
                );
                assert!(
                    !slots[sequence.slot as usize],
                    "slot {} is used twice",
                    sequence.slot
                );
                slots[sequence.slot as usize] = true;
                holds.push(sequence.node);
                self.audit_lengths(sequence);
                for &block in &sequence.table {
                    assert!(
                        self.kv.pool.place(block) != Place::Free,
                        "block {block} is free"
                    );
                    if self.kv.pool.place(block) == Place::Private {
                        assert!(!owned[block as usize], "block {block} has two owners");
                        owned[block as usize] = true;
                        private += 1;
                    }
                }
            }
        }
        assert!(
            private == self.kv.pool.private(),
            "a private block has no owner"
        );
        for pair in self.running.windows(2) {
            let rank = |index| dispatcher.sequences[index].rank;
            assert!(
                rank(pair[0]) < rank(pair[1]),
                "running sequences stand by rank"
            );
        }
        let is_paused = |index: &&_| dispatcher.sequences[**index].paused;
        let paused = self.running.iter().filter(is_paused).count();
        assert!(
            paused == self.paused,
            "{paused} paused, counted {}",
            self.paused
        );
        self.audit_computing(dispatcher);
        self.audit_steps(dispatcher, &mut holds);
        self.kv.tree.audit(&self.kv.pool, &holds);
        for &index in &self.retries {
            assert!(
                dispatcher.sequences[index].retried,
                "one is retried that need not be"
            );
        }
    }

    fn audit_lengths(&self, sequence: &Sequence) {
        let id = sequence.id;
        assert!(
            sequence.answered <= sequence.planned,
            "{id:?}: lower bound above the plan"
        );
        assert!(
            sequence.planned <= sequence.upper(),
            "{id:?}: planned beyond its ids"
        );
        let room = sequence.table.len() * self.block_size;
        assert!(
            sequence.planned <= room,
            "{id:?}: planned beyond its blocks"
        );
        assert!(
            sequence.published <= sequence.table.len(),
            "{id:?}: published what it has not"
        );
        if self.prefix_caching && !sequence.tainted {
            let full = sequence.answered / self.block_size;
            assert!(
                sequence.published == full,
                "{id:?}: a full block is not published"
            );
        }
        for &block in &sequence.table[sequence.answered.div_ceil(self.block_size)..] {
            let private = self.kv.pool.place(block) == Place::Private;
            assert!(private, "{id:?}: block {block} is written and shared");
        }
        let over = sequence.phase == Phase::Ending;
        assert!(!over || sequence.unanswered > 0, "{id:?} is over and stays");
    }

    fn audit_steps(&self, dispatcher: &Dispatcher, holds: &mut Vec<NodeId>) {
        let config = &dispatcher.config;
        assert!(
            self.in_flight.len() <= config.max_steps_in_flight as usize,
            "steps in flight"
        );
        let mut unanswered = 0;
        for record in &self.in_flight {
            holds.extend_from_slice(&record.holds);
            assert!(
                record.rows.len() <= config.max_sequences as usize,
                "rows of a step"
            );
            let tokens: usize = record.rows.iter().map(|row| row.num_tokens).sum();
            assert!(
                tokens <= config.max_batch_tokens as usize,
                "tokens of a step"
            );
            for row in &record.rows {
                let sequence = &dispatcher.sequences[row.index];
                assert!(sequence.slot == row.slot, "a row knows its slot");
                unanswered += 1;
            }
        }
        let all = self.running.iter().chain(&self.ending);
        let counted: u32 = all
            .map(|&index| dispatcher.sequences[index].unanswered)
            .sum();
        assert!(
            counted == unanswered,
            "{unanswered} rows unanswered, counted {counted}"
        );
    }
}
