//! Finding the longest cached prefix.

use super::{NodeId, PrefixTree, common_blocks, common_ids};
use crate::planted::{self, Bug};
use crate::types::{BlockId, TokenId};

/// Leading ids whose KV the tree has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// The deepest node of whole blocks; the root when there is none.
    pub(crate) node: NodeId,
    /// How many of its blocks matched.
    pub(crate) blocks_in_node: usize,
    /// Whole blocks matched.
    pub(crate) full_blocks: usize,
    /// How many of these nobody holds.
    pub(crate) loose_blocks: usize,
    /// The block that agrees in part with what follows.
    pub(crate) partial: Option<Partial>,
}

/// A block whose first ids are the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partial {
    /// The node that has the block, and to hold while it is copied.
    pub(crate) node: NodeId,
    pub(crate) block: BlockId,
    /// Ids that agree, at least 1.
    pub(crate) ids: usize,
    /// Blocks that a hold on `node` takes away from the evictable ones, beside those of the match.
    pub(crate) loose_blocks: usize,
}

impl PrefixTree {
    /// The longest prefix of `ids`. The whole blocks are appended to `table`.
    pub(crate) fn lookup(
        &self,
        namespace: u64,
        ids: &[TokenId],
        table: &mut Vec<BlockId>,
    ) -> Option<Match> {
        let namespace = if planted::is(Bug::NamespaceIgnored) {
            0
        } else {
            namespace
        };
        let root = *self.roots.get(&self.root_key(namespace))?;
        let mut found = Match {
            node: root,
            blocks_in_node: 0,
            full_blocks: 0,
            loose_blocks: 0,
            partial: None,
        };
        let mut rest = ids;
        while let Some((child, common)) = self.closest_child(found.node, rest) {
            let entry = &self.nodes[child as usize];
            let held = entry.holds > 0;
            let loose = |blocks: usize| if held { 0 } else { blocks };
            // 0 when not even the first block is equal: then `found.node` stays where it is.
            let whole = if common < self.block_size {
                0
            } else {
                common_blocks(&entry.ids, rest, self.block_size)
            };
            if whole > 0 {
                table.extend_from_slice(&entry.blocks[..whole]);
                found.node = child;
                found.blocks_in_node = whole;
                found.full_blocks += whole;
                found.loose_blocks += loose(whole);
                rest = &rest[whole * self.block_size..];
            }
            if whole < entry.blocks.len() {
                let ids = common_ids(&entry.ids[whole * self.block_size..], rest);
                if ids > 0 {
                    found.partial = Some(Partial {
                        node: child,
                        block: entry.blocks[whole],
                        ids,
                        loose_blocks: loose(entry.blocks.len() - whole),
                    });
                }
                break;
            }
        }
        Some(found)
    }

    /// The child whose first block agrees longest with the next ids, and for how many ids of that block.
    pub(super) fn closest_child(&self, node: NodeId, ids: &[TokenId]) -> Option<(NodeId, usize)> {
        let key = &ids[..ids.len().min(self.block_size)];
        let first = *key.first()?;
        let children = &self.nodes[node as usize].children;
        let position = self.child_position(node, key);
        // In sorted order no other child can agree longer than the two neighbours.
        let mut best = None;
        for child in children[position.saturating_sub(1)..].iter().take(2) {
            if child.first == first {
                let common = common_ids(self.key(child.node), key);
                if best.is_none_or(|(_, longest)| common > longest) {
                    best = Some((child.node, common));
                }
            }
        }
        best
    }
}
