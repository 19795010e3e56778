//! Which waiting sequences begin as one that entered lately, at any depth of the queue.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use crate::sequence::{Sequence, SequenceIndex};

/// Beginnings remembered, and with them the matches that one admission looks up.
const REMEMBERED: usize = 16;

/// Waiting sequences by their first block.
#[derive(Debug, Default)]
pub(crate) struct Locality {
    waiting: FxHashMap<u64, BTreeSet<(i32, u64, SequenceIndex)>>,
    /// First blocks of what entered lately, the last one in front.
    entered: VecDeque<u64>,
}

impl Locality {
    pub(crate) fn push(&mut self, sequence: &Sequence, index: SequenceIndex, block_size: usize) {
        if let Some(key) = beginning(sequence, block_size) {
            let (class, arrival) = sequence.rank;
            let waiting = self.waiting.entry(key).or_default();
            waiting.insert((class, arrival, index));
        }
    }

    pub(crate) fn remove(&mut self, sequence: &Sequence, index: SequenceIndex, block_size: usize) {
        let Some(key) = beginning(sequence, block_size) else {
            return;
        };
        let (class, arrival) = sequence.rank;
        if let Some(waiting) = self.waiting.get_mut(&key) {
            waiting.remove(&(class, arrival, index));
            if waiting.is_empty() {
                self.waiting.remove(&key);
            }
        }
    }

    pub(crate) fn serve(&mut self, sequence: &Sequence, block_size: usize) {
        if let Some(key) = beginning(sequence, block_size) {
            self.entered.retain(|&other| other != key);
            self.entered.push_front(key);
            self.entered.truncate(REMEMBERED);
        }
    }

    pub(crate) fn alike(&self, class: i32, candidates: &mut Vec<SequenceIndex>) {
        for key in &self.entered {
            if let Some(waiting) = self.waiting.get(key) {
                let mut of_class = waiting.range((class, 0, 0)..);
                let oldest = of_class.next().filter(|(other, ..)| *other == class);
                candidates.extend(oldest.map(|&(.., index)| index));
            }
        }
    }

    /// How many wait, for the audit.
    pub(crate) fn len(&self) -> usize {
        self.waiting.values().map(BTreeSet::len).sum()
    }
}

/// A hash of the first block of what may come from the cache; `None` when that is shorter.
pub(crate) fn beginning(sequence: &Sequence, block_size: usize) -> Option<u64> {
    (sequence.prompt_length > block_size && !sequence.wants_prompt_logprobs).then(|| {
        let mut hasher = FxHasher::default();
        sequence.namespace.hash(&mut hasher);
        sequence.ids[..block_size].hash(&mut hasher);
        hasher.finish()
    })
}
