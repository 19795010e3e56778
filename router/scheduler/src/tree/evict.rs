//! Taking blocks back from the tree: the end of the leaf of lowest retention first, and of the least recently used of
//! these.

use super::{NO_NODE, NodeId, PrefixTree};
use crate::planted::{self, Bug};
use crate::pool::BlockPool;
use crate::types::Retention;

impl PrefixTree {
    /// Frees one block. `false` when every block is held. O(log n) in the number of leaves.
    pub(crate) fn evict_block(&mut self, pool: &mut BlockPool) -> bool {
        let next = self.next_evicted();
        let Some(&(.., node)) = next else {
            return false;
        };
        let entry = &mut self.nodes[node as usize];
        if entry.blocks.len() == 1 {
            self.remove_leaf(pool, node);
        } else if let Some(block) = entry.blocks.pop() {
            entry.ids.truncate(entry.blocks.len() * self.block_size);
            self.loose_blocks -= 1;
            pool.evict(block);
        }
        true
    }

    fn next_evicted(&self) -> Option<&(Retention, u64, NodeId)> {
        if planted::is(Bug::RetentionInverted) {
            return self.evictable.last();
        }
        let next = self.evictable.first()?;
        if planted::is(Bug::LruInverted) {
            let end = (next.0, u64::MAX, NodeId::MAX);
            return self.evictable.range(..=end).next_back();
        }
        Some(next)
    }

    /// Frees a node without holds and children, with all its blocks.
    pub(super) fn remove_leaf(&mut self, pool: &mut BlockPool, node: NodeId) {
        let entry = &self.nodes[node as usize];
        assert!(
            entry.holds == 0 && entry.children.is_empty(),
            "node {node} is in use"
        );
        let parent = entry.parent;
        self.evictable
            .remove(&(entry.retention, entry.last_used, node));
        self.loose_blocks -= entry.blocks.len();
        for &block in &entry.blocks {
            pool.evict(block);
        }
        let position = self.child_position(parent, self.key(node));
        let child = self.nodes[parent as usize].children.remove(position);
        assert!(child.node == node, "node {node} is not where its ids say");
        self.vacate(node);
        self.note_if_evictable(parent);
    }

    /// A node that lost its last hold or child joins the evictable ones; a root goes.
    pub(super) fn note_if_evictable(&mut self, node: NodeId) {
        let entry = &self.nodes[node as usize];
        if entry.holds > 0 || !entry.children.is_empty() {
            return;
        }
        if entry.parent == NO_NODE {
            self.roots.remove(&entry.root);
            self.vacate(node);
        } else {
            self.evictable
                .insert((entry.retention, entry.last_used, node));
        }
    }

    fn vacate(&mut self, node: NodeId) {
        let entry = &mut self.nodes[node as usize];
        entry.ids = Vec::new();
        entry.blocks = Vec::new();
        entry.children = Vec::new();
        self.vacant.push(node);
    }
}
