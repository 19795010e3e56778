//! The block pool: where each KV block is. A block is free, private to one sequence, or in the prefix tree,
//! whose nodes count the sequences and steps that need them. Every move is checked, in release builds too.

use crate::types::BlockId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Free,
    /// In the table of exactly one sequence, which may write it.
    Private,
    /// Published: complete, shared, never written again.
    Tree,
}

/// Blocks `0..total` of one worker group.
#[derive(Debug)]
pub(crate) struct BlockPool {
    places: Vec<Place>,
    /// Used as a stack, so that a small working set stays small.
    free: Vec<BlockId>,
    private: usize,
    published: usize,
}

impl BlockPool {
    pub(crate) fn new(total: u32) -> Self {
        Self {
            places: vec![Place::Free; total as usize],
            free: (0..total).rev().collect(),
            private: 0,
            published: 0,
        }
    }

    pub(crate) fn total(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    pub(crate) fn private(&self) -> usize {
        self.private
    }

    pub(crate) fn published(&self) -> usize {
        self.published
    }

    pub(crate) fn place(&self, block: BlockId) -> Place {
        self.places[block as usize]
    }

    /// A free block becomes private.
    pub(crate) fn take(&mut self) -> Option<BlockId> {
        let block = self.free.pop()?;
        self.shift(block, Place::Free, Place::Private);
        self.private += 1;
        Some(block)
    }

    /// A private block becomes free.
    pub(crate) fn give_back(&mut self, block: BlockId) {
        self.shift(block, Place::Private, Place::Free);
        self.private -= 1;
        self.free.push(block);
    }

    /// A private block enters the tree.
    pub(crate) fn publish(&mut self, block: BlockId) {
        self.shift(block, Place::Private, Place::Tree);
        self.private -= 1;
        self.published += 1;
    }

    /// A block leaves the tree and is free.
    pub(crate) fn evict(&mut self, block: BlockId) {
        self.shift(block, Place::Tree, Place::Free);
        self.published -= 1;
        self.free.push(block);
    }

    fn shift(&mut self, block: BlockId, from: Place, to: Place) {
        let place = &mut self.places[block as usize];
        assert!(
            *place == from,
            "block {block} is {place:?}, not {from:?}, on its way to {to:?}"
        );
        *place = to;
    }

    /// Every block of the free list is free, once, and the sums are right.
    pub(crate) fn audit(&self) {
        let mut listed = vec![false; self.places.len()];
        for &block in &self.free {
            assert!(
                !listed[block as usize],
                "block {block} is on the free list twice"
            );
            listed[block as usize] = true;
        }
        let mut private = 0;
        let mut published = 0;
        for (block, place) in self.places.iter().enumerate() {
            assert!(
                listed[block] == (*place == Place::Free),
                "block {block} is {place:?}; on the free list: {}",
                listed[block]
            );
            match place {
                Place::Free => {}
                Place::Private => private += 1,
                Place::Tree => published += 1,
            }
        }
        assert!(
            private == self.private,
            "{private} private blocks, counted {}",
            self.private
        );
        assert!(
            published == self.published,
            "{published} in tree, counted {}",
            self.published
        );
    }
}
