//! Tree and pool against a naive model: a map from every cached prefix to its block.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{NodeId, PrefixTree};
use crate::pool::{BlockPool, Place};
use crate::types::{BlockId, Retention, TokenId};

const BLOCKS: u32 = 20;
const NAMESPACES: u64 = 2;

#[derive(Clone, Debug)]
enum Op {
    /// A sequence comes, reads the cache and takes blocks for the rest of its ids.
    Open {
        namespace: u64,
        ids: Vec<TokenId>,
        reads_cache: bool,
        retention: Retention,
    },
    /// The n-th open sequence publishes its next full blocks.
    Publish {
        which: usize,
        blocks: usize,
    },
    /// The n-th open sequence ends.
    Close {
        which: usize,
    },
    Evict,
    Flush,
    Lookup {
        namespace: u64,
        ids: Vec<TokenId>,
    },
}

fn ids() -> impl Strategy<Value = Vec<TokenId>> {
    prop::collection::vec(0..2_u32, 1..14)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..NAMESPACES, ids(), prop::bool::weighted(0.8), prop::sample::select(&[0, 35, 100]))
            .prop_map(|(namespace, ids, reads_cache, retention)| Op::Open {
                namespace,
                ids,
                reads_cache,
                retention: Retention(retention),
            }),
        4 => (0..8_usize, 1..4_usize).prop_map(|(which, blocks)| Op::Publish { which, blocks }),
        3 => (0..8_usize).prop_map(|which| Op::Close { which }),
        2 => Just(Op::Evict),
        1 => prop::bool::weighted(0.2).prop_map(|flush| if flush { Op::Flush } else { Op::Evict }),
        2 => (0..NAMESPACES, ids()).prop_map(|(namespace, ids)| Op::Lookup { namespace, ids }),
    ]
}

struct Open {
    /// With the generation in it.
    namespace: u64,
    retention: Retention,
    ids: Vec<TokenId>,
    table: Vec<BlockId>,
    published: usize,
    node: NodeId,
}

/// A block with the prefix that ends in it, and when it was last released.
#[derive(Clone, Copy, Debug)]
struct Entry {
    block: BlockId,
    used: u64,
    retention: Retention,
}

type Key = (u64, Vec<TokenId>);

struct World {
    block_size: usize,
    tree: PrefixTree,
    pool: BlockPool,
    open: Vec<Open>,
    model: BTreeMap<Key, Entry>,
    clock: u64,
    generation: u64,
}

impl World {
    fn new(block_size: usize) -> Self {
        Self {
            block_size,
            tree: PrefixTree::new(block_size),
            pool: BlockPool::new(BLOCKS),
            open: Vec::new(),
            model: BTreeMap::new(),
            clock: 0,
            generation: 0,
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Open {
                namespace,
                ids,
                reads_cache,
                retention,
            } => self.open(self.current(namespace), ids, reads_cache, retention),
            Op::Publish { which, blocks } => self.publish(which, blocks),
            Op::Close { which } => self.close(which),
            Op::Evict => {
                self.evict();
            }
            Op::Flush => self.flush(),
            Op::Lookup { namespace, ids } => {
                self.lookup(self.current(namespace), &ids);
            }
        }
        self.check();
    }

    /// To the model, a namespace after a flush is another one.
    fn current(&self, namespace: u64) -> u64 {
        namespace + NAMESPACES * self.generation
    }

    fn flush(&mut self) {
        let all = self.model.len();
        let held: Vec<Key> = self
            .model
            .keys()
            .filter(|key| self.is_held(key, None))
            .cloned()
            .collect();
        self.model.retain(|key, _| held.contains(key));
        self.generation += 1;
        assert_eq!(self.tree.flush(&mut self.pool), all - held.len());
    }

    fn is_held(&self, key: &Key, but: Option<usize>) -> bool {
        self.open.iter().enumerate().any(|(at, open)| {
            let end = open.published * self.block_size;
            Some(at) != but && open.namespace == key.0 && open.ids[..end].starts_with(&key.1)
        })
    }

    /// Ids of one block that follow a prefix, and how many of `next` they begin with.
    fn longest_partial(&self, namespace: u64, prefix: &[TokenId], next: &[TokenId]) -> usize {
        let below = self.model.keys().filter(|(other, ids)| {
            *other == namespace
                && ids.starts_with(prefix)
                && ids.len() > prefix.len()
                && ids.len() <= prefix.len() + self.block_size
        });
        let common = |ids: &[TokenId]| ids.iter().zip(next).take_while(|(a, b)| a == b).count();
        below
            .map(|(_, ids)| common(&ids[prefix.len()..]))
            .max()
            .unwrap_or(0)
    }

    fn lookup(&self, namespace: u64, ids: &[TokenId]) -> (Vec<BlockId>, Option<super::Match>) {
        let mut expected = Vec::new();
        let mut at = 0;
        while at + self.block_size <= ids.len() {
            let key = (namespace, ids[..at + self.block_size].to_vec());
            let Some(entry) = self.model.get(&key) else {
                break;
            };
            expected.push(entry.block);
            at += self.block_size;
        }
        let partial = self.longest_partial(namespace, &ids[..at], &ids[at..]);
        let mut table = Vec::new();
        let found = self.tree.lookup(namespace % NAMESPACES, ids, &mut table);
        assert_eq!(table, expected, "the blocks of the prefix");
        assert_eq!(found.map_or(0, |found| found.full_blocks), expected.len());
        let found_partial = found
            .and_then(|found| found.partial)
            .map_or(0, |partial| partial.ids);
        assert_eq!(
            found_partial, partial,
            "the partly equal block of {ids:?} from {at}"
        );
        let loose = (0..expected.len()).filter(|&block| {
            let end = (block + 1) * self.block_size;
            !self.is_held(&(namespace, ids[..end].to_vec()), None)
        });
        assert_eq!(found.map_or(0, |found| found.loose_blocks), loose.count());
        (table, found)
    }

    fn open(&mut self, namespace: u64, ids: Vec<TokenId>, reads_cache: bool, retention: Retention) {
        let needed = ids.len().div_ceil(self.block_size);
        let (table, found) = if reads_cache {
            self.lookup(namespace, &ids)
        } else {
            (Vec::new(), None)
        };
        let loose = found.map_or(0, |found| found.loose_blocks);
        if needed - table.len() + loose > self.pool.free() + self.tree.loose_blocks() {
            return;
        }
        let node = match &found {
            Some(found) => self.tree.hold_match(found, retention),
            None => self.tree.hold_root(namespace % NAMESPACES, retention),
        };
        let published = table.len();
        for block in 1..=published {
            self.use_again(
                &(namespace, ids[..block * self.block_size].to_vec()),
                retention,
                None,
            );
        }
        self.open.push(Open {
            namespace,
            retention,
            ids,
            table,
            published,
            node,
        });
        for _ in published..needed {
            if self.pool.free() == 0 {
                assert!(self.evict(), "loose blocks were counted");
            }
            let block = self.pool.take().unwrap();
            self.open.last_mut().unwrap().table.push(block);
        }
    }

    /// A block that is there already gets one more user.
    fn use_again(&mut self, key: &Key, retention: Retention, user: Option<usize>) {
        let held = self.is_held(key, user);
        let entry = self.model.get_mut(key).unwrap();
        entry.retention = if held {
            entry.retention.max(retention)
        } else {
            retention
        };
    }

    fn publish(&mut self, which: usize, blocks: usize) {
        if self.open.is_empty() {
            return;
        }
        let which = which % self.open.len();
        let open = &self.open[which];
        let to = (open.published + blocks).min(open.ids.len() / self.block_size);
        let from = open.published;
        let (namespace, ids, retention) = (open.namespace, open.ids.clone(), open.retention);
        for block in from..to {
            let end = (block + 1) * self.block_size;
            let key = (namespace, ids[..end].to_vec());
            let ours = self.open[which].table[block];
            if self.model.contains_key(&key) && self.is_held(&key, Some(which)) {
                self.use_again(&key, retention, Some(which));
                continue;
            }
            if !self.model.contains_key(&key) {
                self.drop_tails(namespace, &ids[..end - self.block_size], &ids[..end]);
            }
            self.model.insert(
                key,
                Entry {
                    block: ours,
                    used: 0,
                    retention,
                },
            );
        }
        let open = &mut self.open[which];
        open.node = self.tree.extend(
            &mut self.pool,
            open.node,
            &ids[from * self.block_size..to * self.block_size],
            &open.table[from..to],
            retention,
        );
        open.published = to;
    }

    /// Tails after `prefix` that `ids` begins with are covered by it.
    fn drop_tails(&mut self, namespace: u64, prefix: &[TokenId], ids: &[TokenId]) {
        for end in prefix.len() + 1..ids.len() {
            self.model.remove(&(namespace, ids[..end].to_vec()));
        }
    }

    fn close(&mut self, which: usize) {
        if self.open.is_empty() {
            return;
        }
        let open = self.open.swap_remove(which % self.open.len());
        self.clock += 1;
        let whole = open.published * self.block_size;
        // Closed in mid-way, full blocks that were not published are dropped.
        let tail = &open.ids[whole..];
        let flushed = open.namespace / NAMESPACES < self.generation;
        if !tail.is_empty() && tail.len() < self.block_size {
            let prefix = &open.ids[..whole];
            let covered = self.longest_partial(open.namespace, prefix, tail) == tail.len();
            let block = open.table[open.published];
            let added = self
                .tree
                .add_tail(&mut self.pool, open.node, tail, block, open.retention);
            assert_eq!(added, !covered && !flushed);
            if added {
                self.drop_tails(open.namespace, prefix, &open.ids);
                let entry = Entry {
                    block,
                    used: self.clock,
                    retention: open.retention,
                };
                self.model.insert((open.namespace, open.ids.clone()), entry);
                self.clock += 1;
            }
        }
        for block in open.table {
            if self.pool.place(block) == Place::Private {
                self.pool.give_back(block);
            }
        }
        for (key, entry) in &mut self.model {
            if key.0 == open.namespace && open.ids[..whole].starts_with(&key.1) {
                entry.used = self.clock;
            }
        }
        self.tree.release(&mut self.pool, open.node);
        if flushed {
            let kept = |key: &Key| key.0 != open.namespace || self.is_held(key, None);
            let gone: Vec<Key> = self
                .model
                .keys()
                .filter(|key| !kept(key))
                .cloned()
                .collect();
            for key in gone {
                let entry = self.model.remove(&key).unwrap();
                assert_eq!(
                    self.pool.place(entry.block),
                    Place::Free,
                    "{key:?} was flushed"
                );
            }
        }
    }

    fn evict(&mut self) -> bool {
        let leaves: Vec<(Key, Entry)> = self
            .model
            .iter()
            .filter(|(key, _)| {
                let extended = |other: &&Key| {
                    other.0 == key.0 && other.1.len() > key.1.len() && other.1.starts_with(&key.1)
                };
                let is_tail = !key.1.len().is_multiple_of(self.block_size);
                let is_leaf = is_tail || !self.model.keys().any(|other| extended(&other));
                is_leaf && !self.is_held(key, None)
            })
            .map(|(key, entry)| (key.clone(), *entry))
            .collect();
        let evicted = self.tree.evict_block(&mut self.pool);
        let oldest = leaves
            .iter()
            .min_by_key(|(_, entry)| (entry.retention, entry.used));
        assert_eq!(evicted, oldest.is_some());
        if let Some((key, entry)) = oldest {
            assert_eq!(
                self.pool.place(entry.block),
                Place::Free,
                "of the lowest retention the oldest leaf {key:?} goes"
            );
            self.model.remove(key);
        }
        evicted
    }

    fn check(&self) {
        let holds: Vec<NodeId> = self.open.iter().map(|open| open.node).collect();
        self.tree.audit(&self.pool, &holds);
        self.pool.audit();
        let held = self
            .model
            .keys()
            .filter(|key| self.is_held(key, None))
            .count();
        assert_eq!(self.tree.held_blocks(), held);
        assert_eq!(self.tree.loose_blocks(), self.model.len() - held);
        for (key, entry) in &self.model {
            assert_eq!(self.pool.place(entry.block), Place::Tree, "{key:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn tree_and_pool_agree_with_a_map_of_prefixes(
        block_size in 1..5_usize,
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut world = World::new(block_size);
        for op in ops {
            world.apply(op);
        }
        while !world.open.is_empty() {
            world.close(0);
            world.check();
        }
        while world.evict() {
            world.check();
        }
        assert_eq!(world.pool.free(), BLOCKS as usize);
        assert!(world.tree.roots.is_empty(), "empty namespaces are forgotten");
    }
}

proptest! {
    /// The pool alone: a block is where the last accepted move put it.
    #[test]
    fn pool_counts_agree(moves in prop::collection::vec((0..4_u8, 0..16_usize), 1..200)) {
        let mut pool = BlockPool::new(8);
        let (mut private, mut published) = (Vec::new(), Vec::new());
        for (kind, which) in moves {
            match kind {
                0 => {
                    let block = pool.take();
                    assert_eq!(block.is_some(), private.len() + published.len() < 8);
                    private.extend(block);
                }
                1 if !private.is_empty() => {
                    pool.give_back(private.swap_remove(which % private.len()));
                }
                2 if !private.is_empty() => {
                    let block = private.swap_remove(which % private.len());
                    pool.publish(block);
                    published.push(block);
                }
                3 if !published.is_empty() => {
                    pool.evict(published.swap_remove(which % published.len()));
                }
                _ => {}
            }
            pool.audit();
            assert_eq!(pool.private(), private.len());
            assert_eq!(pool.published(), published.len());
            assert_eq!(pool.free(), 8 - private.len() - published.len());
        }
    }
}

#[test]
#[should_panic(expected = "is Free, not Private")]
fn a_block_is_freed_once() {
    let mut pool = BlockPool::new(2);
    let block = pool.take().unwrap();
    pool.give_back(block);
    pool.give_back(block);
}
