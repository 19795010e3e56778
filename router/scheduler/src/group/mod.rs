//! One worker group: its running sequences, slots, steps in flight, block pool and prefix tree.

mod admit;
mod alone;
mod audit;
mod complete;
mod costs;
mod failure;
mod locality;
mod pace;
mod pause;
mod plan;
mod prefill;
mod release;
mod share;

use std::collections::{BTreeSet, VecDeque};

use crate::config::{SchedulerConfig, Stats};
use crate::dispatcher::Dispatcher;
use crate::planted::{self, Bug};
use crate::pool::BlockPool;
use crate::sequence::{SequenceIndex, narrow};
use crate::tree::{NodeId, PrefixTree};
use crate::types::{BlockId, GroupId, Slot, Time, TokenId};
use costs::PrefillTokens;
use pace::Pace;

/// Blocks and who needs them.
#[derive(Debug)]
struct KvBooks {
    pool: BlockPool,
    tree: PrefixTree,
}

impl KvBooks {
    /// Blocks that can be had.
    fn available(&self) -> usize {
        self.pool.free() + self.tree.loose_blocks()
    }

    /// A block for one sequence: a free one, or the least recently used of the tree.
    fn take(&mut self) -> Option<BlockId> {
        if self.pool.free() == 0 {
            self.tree.evict_block(&mut self.pool);
        }
        self.pool.take()
    }

    /// Blocks that somebody needs.
    fn owned(&self) -> usize {
        self.pool.private() + self.tree.held_blocks()
    }

    /// Free + owned + cached == total, by sums that are kept up to date in different places.
    fn check_sums(&self) {
        let (free, owned, cached) = (self.pool.free(), self.owned(), self.tree.loose_blocks());
        let total = self.pool.total();
        assert!(
            free + owned + cached == total,
            "{free} + {owned} + {cached} blocks of {total}"
        );
        let in_tree = self.tree.held_blocks() + cached;
        assert!(
            in_tree == self.pool.published(),
            "{in_tree} in the tree, published otherwise"
        );
    }
}

/// What a row of an unanswered step is about.
#[derive(Clone, Copy, Debug)]
struct RowRecord {
    index: SequenceIndex,
    slot: Slot,
    /// Ids computed before it.
    start: usize,
    num_tokens: usize,
    sample: bool,
    masked: bool,
    /// Prompt logprobs due.
    logprobs: usize,
}

/// An unanswered step.
#[derive(Debug)]
struct StepRecord {
    step_id: u64,
    rows: Vec<RowRecord>,
    /// Nodes whose blocks the step copies from.
    holds: Vec<NodeId>,
    /// Tokens of rows that do not decode.
    prefill_tokens: PrefillTokens,
    /// Rows that do.
    decode_rows: usize,
    sent_at: Time,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Group {
    id: GroupId,
    block_size: usize,
    prefix_caching: bool,
    kv: KvBooks,
    /// By rank: the last one is preempted first.
    running: Vec<SequenceIndex>,
    /// How many of those are paused.
    paused: usize,
    /// Over, with steps unanswered.
    ending: Vec<SequenceIndex>,
    free_slots: Vec<Slot>,
    /// To be told to the workers.
    finished_slots: Vec<Slot>,
    in_flight: VecDeque<StepRecord>,
    last_step: u64,
    /// A step that failed, until a plan names it. The steps in flight meanwhile are skipped by the workers.
    failed_step: Option<u64>,
    /// Sequences of failed steps: each is retried alone until one of its steps succeeds.
    retries: VecDeque<SequenceIndex>,
    /// Prefill tokens a step, after the device ran out of memory.
    prefill_limit: Option<usize>,
    /// Steps that succeeded since that limit was set.
    calm_steps: u32,
    /// What steps took, and the bound on prefills that follows.
    pace: Pace,
    /// Where the next step begins when the budget is below the number of decoding sequences.
    rotation: usize,
    /// Scratch: the decoding rows of the step being planned.
    decodes: Vec<SequenceIndex>,
    /// Scratch: the front of the queue.
    candidates: Vec<SequenceIndex>,
    /// For each running sequence that is to complete another block of known ids: the key of the next one.
    computing: BTreeSet<(u64, SequenceIndex)>,
    /// Scratch: blocks of a match.
    matched: Vec<BlockId>,
    /// Row lists of answered steps, for reuse.
    spare_rows: Vec<Vec<RowRecord>>,
}

impl Group {
    pub(crate) fn new(id: GroupId, config: &SchedulerConfig, num_blocks: u32) -> Self {
        let block_size = config.block_size as usize;
        let slots = config.max_sequences + u32::from(planted::is(Bug::SequenceCapIgnored));
        Self {
            id,
            block_size,
            prefix_caching: config.prefix_caching,
            kv: KvBooks {
                pool: BlockPool::new(num_blocks),
                tree: PrefixTree::new(block_size),
            },
            running: Vec::new(),
            paused: 0,
            ending: Vec::new(),
            free_slots: (0..slots).rev().collect(),
            finished_slots: Vec::new(),
            in_flight: VecDeque::new(),
            last_step: 0,
            failed_step: None,
            retries: VecDeque::new(),
            prefill_limit: None,
            calm_steps: 0,
            pace: Pace::new(config.policy.pace, block_size),
            rotation: 0,
            decodes: Vec::new(),
            candidates: Vec::new(),
            computing: BTreeSet::new(),
            matched: Vec::new(),
            spare_rows: Vec::new(),
        }
    }

    /// Nothing to plan and nothing to wait for.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.in_flight.is_empty() && self.finished_slots.is_empty()
    }

    /// The tokens that the pool holds.
    pub(crate) fn capacity(&self) -> u32 {
        let tokens = self.kv.pool.total().saturating_mul(self.block_size);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    pub(crate) fn add_to_stats(&self, stats: &mut Stats) {
        stats.running += self.running.len();
        stats.paused += self.paused;
        stats.ending += self.ending.len();
        stats.free_blocks += self.kv.pool.free();
        stats.owned_blocks += self.kv.owned();
        stats.cached_blocks += self.kv.tree.loose_blocks();
        stats.total_blocks += self.kv.pool.total();
        stats.steps_in_flight += self.in_flight.len();
        let shares = stats
            .prefill_share
            .into_iter()
            .chain(self.pace.last_bound());
        stats.prefill_share = shares.min();
    }

    /// Leading ids whose KV the group has.
    pub(crate) fn cached_prefix(&self, namespace: u64, ids: &[TokenId]) -> u32 {
        let found = self.kv.tree.lookup(namespace, ids, &mut Vec::new());
        found.map_or(0, |found| {
            let partial = found.partial.map_or(0, |partial| partial.ids);
            narrow(found.full_blocks * self.block_size + partial)
        })
    }

    /// What must hold after every call, cheap enough to be always on.
    pub(crate) fn check_sums(&self, dispatcher: &Dispatcher) {
        self.kv.check_sums();
        let slots = self.free_slots.len() + self.running.len() + self.ending.len();
        let all = dispatcher.config.max_sequences as usize;
        assert!(slots == all, "{slots} slots of {all}");
    }
}
