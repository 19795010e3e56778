//! Forgetting everything that was cached, at an operator's word.

use super::{NO_NODE, NodeId, PrefixTree, RootKey};
use crate::planted::{self, Bug};
use crate::pool::BlockPool;

impl PrefixTree {
    /// Frees all blocks that nobody holds, and lets no lookup find the others, nor what their holders will publish.
    /// Returns how many blocks are free by it.
    pub(crate) fn flush(&mut self, pool: &mut BlockPool) -> usize {
        let loose = self.loose_blocks;
        while self.evict_block(pool) {}
        self.generation += u64::from(!planted::is(Bug::FlushKeepsHeld));
        loose
    }

    /// Whether a flush came since the root above `node` was made.
    pub(crate) fn is_flushed(&self, node: NodeId) -> bool {
        // Most trees never were.
        if self.generation == 0 {
            return false;
        }
        let mut at = node;
        loop {
            let entry = &self.nodes[at as usize];
            if entry.parent == NO_NODE {
                return entry.root.generation < self.generation;
            }
            at = entry.parent;
        }
    }

    /// Where the root of a namespace is listed now.
    pub(super) fn root_key(&self, namespace: u64) -> RootKey {
        RootKey {
            generation: self.generation,
            namespace,
        }
    }
}
