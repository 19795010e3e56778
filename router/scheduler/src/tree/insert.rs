//! Publishing blocks.

use super::{Child, NO_NODE, Node, NodeId, PrefixTree, RootKey, common_blocks};
use crate::planted::{self, Bug};
use crate::pool::BlockPool;
use crate::types::{BlockId, Retention, TokenId};

impl PrefixTree {
    /// Adds whole blocks below `node`, which the caller holds, moves the hold to their end and returns it.
    /// `ids` has `block_size` ids for each of `blocks`, which are the caller's.
    ///
    /// Where the tree has the ids already, its blocks are exchanged for the caller's if nobody needs them;
    /// else both stay, and the caller's are private twins.
    pub(crate) fn extend(
        &mut self,
        pool: &mut BlockPool,
        node: NodeId,
        ids: &[TokenId],
        blocks: &[BlockId],
        retention: Retention,
    ) -> NodeId {
        assert!(
            ids.len() == blocks.len() * self.block_size,
            "whole blocks are published"
        );
        let mut node = node;
        let mut known = 0;
        while known < blocks.len() {
            let rest = &ids[known * self.block_size..];
            let Some((child, common)) = self.closest_child(node, rest) else {
                break;
            };
            if common < self.block_size {
                break;
            }
            let equal = common_blocks(&self.nodes[child as usize].ids, rest, self.block_size);
            node = if equal < self.nodes[child as usize].blocks.len() {
                self.split(child, equal)
            } else {
                child
            };
            if self.nodes[node as usize].holds == 0 {
                self.exchange_blocks(pool, node, &blocks[known..known + equal]);
            } else if planted::is(Bug::FreeTwinInTable) {
                for &twin in &blocks[known..known + equal] {
                    pool.give_back(twin);
                }
            }
            self.add_hold(node, retention);
            known += equal;
        }
        if known < blocks.len() {
            let fresh = &blocks[known..];
            let rest = &ids[known * self.block_size..];
            self.drop_covered_tails(pool, node, &rest[..self.block_size]);
            for &block in fresh {
                pool.publish(block);
            }
            self.held_blocks += fresh.len();
            let entry = &mut self.nodes[node as usize];
            // With this hold alone and nothing below, the node itself grows: paths stay short.
            let alike = entry.holds == 1 && entry.retention == retention;
            if entry.parent != NO_NODE && entry.children.is_empty() && alike {
                entry.ids.extend_from_slice(rest);
                entry.blocks.extend_from_slice(fresh);
            } else {
                node = self.add_child(node, rest, fresh, 1, retention);
            }
        }
        node
    }

    /// Puts `fresh` in the place of a loose node's blocks, which hold the same KV: a sequence that kept twins
    /// would need both.
    fn exchange_blocks(&mut self, pool: &mut BlockPool, node: NodeId, fresh: &[BlockId]) {
        for (place, &block) in self.nodes[node as usize].blocks.iter_mut().zip(fresh) {
            pool.evict(*place);
            pool.publish(block);
            *place = block;
        }
    }

    /// Adds a block that is not full below `node`, which the caller holds. `false`: the tree has these ids
    /// already, or a flush came between, and the block stays private.
    pub(crate) fn add_tail(
        &mut self,
        pool: &mut BlockPool,
        node: NodeId,
        ids: &[TokenId],
        block: BlockId,
        retention: Retention,
    ) -> bool {
        assert!(
            !ids.is_empty() && ids.len() < self.block_size,
            "a tail is a part of a block"
        );
        assert!(
            self.nodes[node as usize].holds > 0,
            "the caller holds the node"
        );
        let closest = self.closest_child(node, ids);
        let known = closest.is_some_and(|(_, common)| common == ids.len());
        if known || self.is_flushed(node) {
            return false;
        }
        self.drop_covered_tails(pool, node, ids);
        pool.publish(block);
        self.loose_blocks += 1;
        self.tick += 1;
        let child = self.add_child(node, ids, &[block], 0, retention);
        self.note_if_evictable(child);
        true
    }

    fn add_child(
        &mut self,
        parent: NodeId,
        ids: &[TokenId],
        blocks: &[BlockId],
        holds: u32,
        retention: Retention,
    ) -> NodeId {
        let key = &ids[..ids.len().min(self.block_size)];
        let position = self.child_position(parent, key);
        let node = self.new_node(Node {
            parent,
            ids: ids.to_vec(),
            blocks: blocks.to_vec(),
            children: Vec::new(),
            holds,
            last_used: self.tick,
            retention,
            root: RootKey::default(),
        });
        self.nodes[parent as usize].children.insert(
            position,
            Child {
                first: ids[0],
                node,
            },
        );
        node
    }

    /// Frees the tails below `node` that `key` begins with: what is about to be added covers them.
    fn drop_covered_tails(&mut self, pool: &mut BlockPool, node: NodeId, key: &[TokenId]) {
        loop {
            let position = self.child_position(node, key);
            let Some(before) = position.checked_sub(1) else {
                return;
            };
            let child = self.nodes[node as usize].children[before].node;
            let tail = self.key(child);
            let covered = tail.len() < key.len() && key.starts_with(tail);
            if !covered || self.nodes[child as usize].holds > 0 {
                return;
            }
            self.remove_leaf(pool, child);
        }
    }
}
