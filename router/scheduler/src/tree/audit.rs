//! The full check of the tree.

use super::{NO_NODE, NodeId, PrefixTree};
use crate::pool::{BlockPool, Place};

impl PrefixTree {
    /// Panics unless links, order, counts and places are consistent. `held` lists every hold of a sequence
    /// or an unanswered step.
    pub(crate) fn audit(&self, pool: &BlockPool, held: &[NodeId]) {
        let mut due = vec![0_u32; self.nodes.len()];
        for &node in held {
            let mut at = node;
            while at != NO_NODE {
                due[at as usize] += 1;
                at = self.nodes[at as usize].parent;
            }
        }
        let mut seen = vec![false; pool.total()];
        let mut sums = Sums::default();
        for (&key, &root) in &self.roots {
            assert!(self.nodes[root as usize].root == key, "a root's place");
            assert!(
                self.nodes[root as usize].parent == NO_NODE,
                "a root has no parent"
            );
            let mut open = vec![root];
            while let Some(node) = open.pop() {
                let flushed = key.generation < self.generation;
                assert!(
                    !flushed || self.nodes[node as usize].holds > 0,
                    "flushed blocks stay without a hold"
                );
                self.audit_node(node, &due, pool, &mut seen, &mut sums);
                open.extend(
                    self.nodes[node as usize]
                        .children
                        .iter()
                        .map(|child| child.node),
                );
            }
        }
        assert!(
            sums.held == self.held_blocks,
            "held {} counted {}",
            sums.held,
            self.held_blocks
        );
        assert!(
            sums.loose == self.loose_blocks,
            "loose {} vs {}",
            sums.loose,
            self.loose_blocks
        );
        assert!(
            sums.evictable == self.evictable.len(),
            "stale evictable nodes"
        );
        assert!(
            sums.nodes + self.vacant.len() == self.nodes.len(),
            "a node is lost"
        );
        assert!(
            sums.held + sums.loose == pool.published(),
            "a published block is in no node"
        );
    }

    fn audit_node(
        &self,
        node: NodeId,
        due: &[u32],
        pool: &BlockPool,
        seen: &mut [bool],
        sums: &mut Sums,
    ) {
        let entry = &self.nodes[node as usize];
        let is_root = entry.parent == NO_NODE;
        sums.nodes += 1;
        assert!(
            entry.holds == due[node as usize],
            "node {node}: {} holds",
            entry.holds
        );
        assert!(is_root == entry.ids.is_empty(), "only a root is empty");
        assert!(
            entry.ids.len().div_ceil(self.block_size) == entry.blocks.len(),
            "ids per block"
        );
        if !entry.ids.len().is_multiple_of(self.block_size) {
            assert!(entry.ids.len() < self.block_size, "a tail stands alone");
            assert!(entry.children.is_empty(), "a tail is a leaf");
        }
        for &block in &entry.blocks {
            assert!(
                pool.place(block) == Place::Tree,
                "block {block} is not published"
            );
            assert!(!seen[block as usize], "block {block} is in two nodes");
            seen[block as usize] = true;
        }
        for pair in entry.children.windows(2) {
            assert!(
                self.key(pair[0].node) < self.key(pair[1].node),
                "siblings are sorted"
            );
        }
        for child in &entry.children {
            let below = &self.nodes[child.node as usize];
            assert!(below.parent == node, "a child knows its parent");
            assert!(below.ids[0] == child.first, "a child's first id");
            assert!(
                below.last_used <= entry.last_used || entry.holds > 0,
                "use is seen above"
            );
        }
        if entry.holds > 0 {
            sums.held += entry.blocks.len();
        } else {
            sums.loose += entry.blocks.len();
            assert!(
                !(is_root && entry.children.is_empty()),
                "an unused root stays"
            );
            if entry.children.is_empty() {
                sums.evictable += 1;
                assert!(
                    self.evictable
                        .contains(&(entry.retention, entry.last_used, node)),
                    "a leaf is not listed"
                );
            }
        }
    }
}

#[derive(Default)]
struct Sums {
    nodes: usize,
    held: usize,
    loose: usize,
    evictable: usize,
}
