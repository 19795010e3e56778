//! Two sequences do not compute the same block: the later one waits until the earlier one's is published.
//!
//! A running sequence is listed under the next block that it will publish, as long as it runs. So whatever takes
//! it out of its slot (the end, a cancel, a failure, a preemption) also ends the waiting for it.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::Group;
use crate::dispatcher::Dispatcher;
use crate::planted::{self, Bug};
use crate::sequence::{Sequence, SequenceIndex};

impl Group {
    /// Lists a running sequence under the block after its published ones, if it knows all ids of that.
    pub(super) fn list_computing(&mut self, dispatcher: &mut Dispatcher, index: SequenceIndex) {
        self.unlist_computing(dispatcher, index);
        if !self.prefix_caching || dispatcher.config.policy.share_prefixes.is_zero() {
            return;
        }
        let sequence = &mut dispatcher.sequences[index];
        // What it publishes after a flush is nobody else's, and a paused one may never publish.
        if self.kv.tree.is_flushed(sequence.node) || sequence.paused {
            return;
        }
        let key = self.block_key(sequence, sequence.published, sequence.ids.len());
        if let Some(key) = key {
            sequence.computing = Some(key);
            self.computing.insert((key, index));
        }
    }

    pub(super) fn unlist_computing(&mut self, dispatcher: &mut Dispatcher, index: SequenceIndex) {
        if let Some(key) = dispatcher.sequences[index].computing.take() {
            let listed = self.computing.remove(&(key, index));
            assert!(listed, "a sequence is listed under its next block");
        }
    }

    /// Whether a running sequence is to publish the block behind the first `cached` ones of a waiting one.
    pub(super) fn is_being_computed(
        &self,
        dispatcher: &Dispatcher,
        index: SequenceIndex,
        cached: usize,
    ) -> bool {
        if self.computing.is_empty() || planted::is(Bug::SharingIgnored) {
            return false;
        }
        let sequence = &dispatcher.sequences[index];
        let Some(key) = self.block_key(sequence, cached, sequence.cacheable()) else {
            return false;
        };
        let end = (cached + 1) * self.block_size;
        let same = |&(_, other): &(u64, SequenceIndex)| {
            let other = &dispatcher.sequences[other];
            other.namespace == sequence.namespace
                && other.published == cached
                && other.ids[..end] == sequence.ids[..end]
        };
        self.computing
            .range((key, SequenceIndex::MIN)..=(key, SequenceIndex::MAX))
            .any(same)
    }

    /// A hash of block `block` of the sequence and of where it stands; `None` when it ends after `limit` ids.
    fn block_key(&self, sequence: &Sequence, block: usize, limit: usize) -> Option<u64> {
        let start = block * self.block_size;
        let end = start + self.block_size;
        (end <= limit).then(|| {
            let mut hasher = FxHasher::default();
            (sequence.namespace, start).hash(&mut hasher);
            sequence.ids[start..end].hash(&mut hasher);
            hasher.finish()
        })
    }

    /// Who is listed runs, is listed once, and under the right block.
    pub(super) fn audit_computing(&self, dispatcher: &Dispatcher) {
        let mut listed = 0;
        for &index in &self.running {
            let sequence = &dispatcher.sequences[index];
            if let Some(key) = sequence.computing {
                listed += 1;
                let id = sequence.id;
                assert!(
                    self.computing.contains(&(key, index)),
                    "{id:?} is not listed"
                );
                let due = self.block_key(sequence, sequence.published, sequence.ids.len());
                assert!(due == Some(key), "{id:?} is listed under another block");
            }
        }
        assert!(
            listed == self.computing.len(),
            "one is listed and does not run"
        );
    }
}
