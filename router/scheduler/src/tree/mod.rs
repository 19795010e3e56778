//! The prefix tree: which token prefixes have their KV in which blocks.
//!
//! A path-compressed radix tree for each namespace. A node holds the ids of a run of whole blocks and the
//! blocks themselves; a *tail* is a leaf of one block that is not full. Siblings are sorted by the ids of
//! their first block, so the sibling that agrees longest with a query is a neighbour of where the query
//! would stand: that is the block to copy from when no whole block agrees.
//!
//! A *hold* on a node keeps it and all above it. Holds are counted on the whole path, so the blocks that
//! nobody needs are known by a sum and the nodes of no hold and no children are the evictable ones.
//!
//! A hold has a *retention*. A node's is the highest among its holds, counted from when it was last held by nobody:
//! so of those that hold it or, when none does, of those that last did. Evictable nodes go in its order, then least
//! recently used first; however high, it makes a node later, never safe.
//!
//! A *flush* frees what nobody holds and starts a new generation of roots. What is held stays with its holders below
//! the old roots, where no lookup comes, and is freed when the last hold ends.

mod audit;
mod evict;
mod flush;
mod insert;
mod lookup;
#[cfg(test)]
mod model_test;

use std::cmp::Ordering;
use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

pub(crate) use lookup::Match;

use crate::pool::BlockPool;
use crate::types::{BlockId, Retention, TokenId};

/// Index of a node.
pub(crate) type NodeId = u32;

/// The parent of a root.
const NO_NODE: NodeId = NodeId::MAX;

#[derive(Debug)]
struct Node {
    parent: NodeId,
    /// A multiple of the block size, or fewer than one block in a tail. Empty in a root.
    ids: Vec<TokenId>,
    blocks: Vec<BlockId>,
    /// Sorted by the ids of the child's first block.
    children: Vec<Child>,
    /// Holds on this node and below.
    holds: u32,
    /// Tick of the last hold or release; never older than a child's.
    last_used: u64,
    /// The highest of the holds since it was last held by nobody.
    retention: Retention,
    /// Where a root is listed.
    root: RootKey,
}

/// Roots are told apart by namespace and by how many flushes there were before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct RootKey {
    generation: u64,
    namespace: u64,
}

#[derive(Clone, Copy, Debug)]
struct Child {
    /// The first id of `node`, so that most comparisons touch this list only.
    first: TokenId,
    node: NodeId,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PrefixTree {
    block_size: usize,
    nodes: Vec<Node>,
    vacant: Vec<NodeId>,
    roots: FxHashMap<RootKey, NodeId>,
    /// Lookups see the roots of this one.
    generation: u64,
    /// Nodes without holds and children: lowest retention first, then least recently used.
    evictable: BTreeSet<(Retention, u64, NodeId)>,
    tick: u64,
    held_blocks: usize,
    loose_blocks: usize,
}

impl PrefixTree {
    pub(crate) fn new(block_size: usize) -> Self {
        Self {
            block_size,
            nodes: Vec::new(),
            vacant: Vec::new(),
            roots: FxHashMap::default(),
            generation: 0,
            evictable: BTreeSet::new(),
            tick: 0,
            held_blocks: 0,
            loose_blocks: 0,
        }
    }

    /// Blocks on held paths.
    pub(crate) fn held_blocks(&self) -> usize {
        self.held_blocks
    }

    /// Blocks that can be evicted, one after the other.
    pub(crate) fn loose_blocks(&self) -> usize {
        self.loose_blocks
    }

    /// Holds the root of a namespace, which is made when it is new.
    pub(crate) fn hold_root(&mut self, namespace: u64, retention: Retention) -> NodeId {
        let key = self.root_key(namespace);
        let root = if let Some(&root) = self.roots.get(&key) {
            root
        } else {
            let root = self.new_node(Node {
                parent: NO_NODE,
                ids: Vec::new(),
                blocks: Vec::new(),
                children: Vec::new(),
                holds: 0,
                last_used: 0,
                retention,
                root: key,
            });
            self.roots.insert(key, root);
            root
        };
        self.hold(root, retention);
        root
    }

    /// Holds what `found` matched in whole blocks: the node ends where the match ends.
    pub(crate) fn hold_match(&mut self, found: &Match, retention: Retention) -> NodeId {
        let node = if found.blocks_in_node < self.nodes[found.node as usize].blocks.len() {
            self.split(found.node, found.blocks_in_node)
        } else {
            found.node
        };
        self.hold(node, retention);
        node
    }

    /// Holds a node and all above it.
    pub(crate) fn hold(&mut self, node: NodeId, retention: Retention) {
        let mut at = node;
        while at != NO_NODE {
            self.add_hold(at, retention);
            at = self.nodes[at as usize].parent;
        }
    }

    /// Ends a hold. What nobody holds any more may be evicted from now on, and is freed where a flush came between.
    pub(crate) fn release(&mut self, pool: &mut BlockPool, node: NodeId) {
        let flushed = self.is_flushed(node);
        self.tick += 1;
        let tick = self.tick;
        let mut at = node;
        while at != NO_NODE {
            let entry = &mut self.nodes[at as usize];
            assert!(
                entry.holds > 0,
                "node {at} is released more often than held"
            );
            entry.holds -= 1;
            entry.last_used = tick;
            let parent = entry.parent;
            if entry.holds == 0 {
                self.held_blocks -= entry.blocks.len();
                self.loose_blocks += entry.blocks.len();
                self.note_if_evictable(at);
                if flushed && parent != NO_NODE {
                    self.remove_leaf(pool, at);
                }
            }
            at = parent;
        }
    }

    /// Counts a hold on one node only: the way of a hold that moves down.
    fn add_hold(&mut self, node: NodeId, retention: Retention) {
        let entry = &mut self.nodes[node as usize];
        entry.holds += 1;
        if entry.holds == 1 {
            self.loose_blocks -= entry.blocks.len();
            self.held_blocks += entry.blocks.len();
            if entry.children.is_empty() {
                self.evictable
                    .remove(&(entry.retention, entry.last_used, node));
            }
            entry.retention = retention;
        } else {
            entry.retention = entry.retention.max(retention);
        }
    }

    /// Parts `node` after its first `blocks`. The new node is the upper part; `node` stays the lower one, and
    /// so do the holds on it.
    fn split(&mut self, node: NodeId, blocks: usize) -> NodeId {
        // Looked up first: the ids that tell the place are about to move.
        let parent = self.nodes[node as usize].parent;
        let position = self.child_position(parent, self.key(node));
        let entry = &mut self.nodes[node as usize];
        assert!(
            blocks > 0 && blocks < entry.blocks.len(),
            "a node is split inside"
        );
        let lower_ids = entry.ids.split_off(blocks * self.block_size);
        let lower_blocks = entry.blocks.split_off(blocks);
        let first = lower_ids[0];
        let upper = Node {
            parent,
            ids: std::mem::replace(&mut entry.ids, lower_ids),
            blocks: std::mem::replace(&mut entry.blocks, lower_blocks),
            children: vec![Child { first, node }],
            holds: entry.holds,
            last_used: entry.last_used,
            retention: entry.retention,
            root: RootKey::default(),
        };
        let upper = self.new_node(upper);
        let child = &mut self.nodes[parent as usize].children[position];
        assert!(child.node == node, "node {node} is not where its ids say");
        child.node = upper;
        self.nodes[node as usize].parent = upper;
        upper
    }

    fn new_node(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.vacant.pop() {
            self.nodes[id as usize] = node;
            id
        } else {
            self.nodes.push(node);
            crate::sequence::narrow(self.nodes.len() - 1)
        }
    }

    /// The ids of a node's first block.
    fn key(&self, node: NodeId) -> &[TokenId] {
        let ids = &self.nodes[node as usize].ids;
        &ids[..ids.len().min(self.block_size)]
    }

    /// How many children of `node` sort before `key`, which is not empty.
    fn child_position(&self, node: NodeId, key: &[TokenId]) -> usize {
        self.nodes[node as usize]
            .children
            .partition_point(|child| match child.first.cmp(&key[0]) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => self.key(child.node) < key,
            })
    }
}

/// How many leading blocks of `block_size` ids are equal.
fn common_blocks(a: &[TokenId], b: &[TokenId], block_size: usize) -> usize {
    let blocks = a.len().min(b.len()) / block_size;
    let whole = blocks * block_size;
    if a[..whole] == b[..whole] {
        return blocks;
    }
    (0..blocks)
        .position(|block| {
            let range = block * block_size..(block + 1) * block_size;
            a[range.clone()] != b[range]
        })
        .unwrap_or(blocks)
}

/// How many leading ids are equal.
fn common_ids(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
