//! The full check of the queue.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{AccountIndex, OVERDUE, Queue, locality};
use crate::policy::QueueOrder;
use crate::sequence::{Phase, SequenceTable};

impl Queue {
    /// Panics unless every waiting sequence stands where its class, arrival, deadline and tenant say.
    pub(crate) fn audit(&self, sequences: &SequenceTable) {
        let mut of_accounts: FxHashMap<AccountIndex, u64> = FxHashMap::default();
        let mut of_first: BTreeMap<i32, u64> = BTreeMap::new();
        let (mut tokens, mut in_lines, mut rises, mut deadlines, mut alike) = (0, 0, 0, 0, 0);
        for (&arrival, &index) in &self.by_arrival {
            let sequence = &sequences[index];
            let id = sequence.id;
            assert!(sequence.phase == Phase::Waiting, "{id:?} queues");
            assert!(sequence.rank.1 == arrival, "{id:?} stands at its arrival");
            assert!(sequence.table.is_empty(), "{id:?} waits with blocks");
            tokens += sequence.ids.len() as u64;
            let first = sequence.returned || sequence.rank.0 == OVERDUE;
            if first {
                let found = self.first.get(&sequence.rank);
                assert!(found == Some(&index), "{id:?} is not served first");
                *of_first.entry(sequence.rank.0).or_default() += sequence.ids.len() as u64;
            } else {
                in_lines += 1;
                let line = &self.accounts.entries[sequence.account as usize].line;
                assert!(line.get(&arrival) == Some(&index), "{id:?} is in no line");
                *of_accounts.entry(sequence.account).or_default() += sequence.ids.len() as u64;
                let begins = locality::beginning(sequence, self.block_size);
                alike += usize::from(begins.is_some() && self.policy.order == QueueOrder::Lpm);
            }
            if let Some(at) = sequence.next_rise {
                rises += 1;
                assert!(self.rises.contains(&(at, index)), "{id:?} never rises");
            }
            assert!(!sequence.stands_aside(), "{id:?} is paused and queues");
            if let Some(at) = sequence.deadline.filter(|_| !sequence.admitted) {
                deadlines += 1;
                assert!(
                    self.deadlines.contains(&(at, index)),
                    "{id:?} never expires"
                );
            }
        }
        for (&arrival, &index) in &self.parked {
            let sequence = &sequences[index];
            let id = sequence.id;
            assert!(sequence.phase == Phase::Waiting, "{id:?} is parked");
            assert!(sequence.stands_aside(), "{id:?} is parked without a cause");
            assert!(
                sequence.rank.1 == arrival,
                "{id:?} is parked at its arrival"
            );
            assert!(sequence.table.is_empty(), "{id:?} is parked with blocks");
            assert!(sequence.next_rise.is_none(), "{id:?} rises while parked");
            if let Some(at) = sequence.deadline.filter(|_| !sequence.admitted) {
                deadlines += 1;
                let listed = self.deadlines.contains(&(at, index));
                assert!(listed, "{id:?} never expires");
            }
        }
        assert!(
            tokens == self.tokens,
            "{tokens} wait, counted {}",
            self.tokens
        );
        assert!(
            in_lines + self.first.len() == self.len(),
            "one queues twice"
        );
        assert!(rises == self.rises.len(), "a stale rise");
        assert!(deadlines == self.deadlines.len(), "a stale deadline");
        assert!(alike == self.locality.len(), "a stale beginning");
        let mut users: FxHashMap<AccountIndex, u32> = FxHashMap::default();
        for (_, sequence) in sequences.iter() {
            if sequence.phase != Phase::Ending {
                *users.entry(sequence.account).or_default() += 1;
            }
        }
        assert!(of_first == self.first_tokens, "ids served first");
        self.accounts.audit(&users, &of_accounts);
    }
}
