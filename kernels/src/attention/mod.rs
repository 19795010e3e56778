//! Paged attention: causal, grouped queries, optional sliding window, prefill and decode rows together.
//!
//! The order of every sum is fixed by absolute positions alone. A query goes over its context in
//! partitions of 256 positions; a partition has an online softmax of its own over tiles of 64, and the
//! partitions are merged in ascending order. So it does not matter which tokens were computed in one
//! chunk, what else is in the step, or whether the partitions of a long decode are shared among threads.
//!
//! What a query does not see is never multiplied: its score is dropped by a select, its value is not
//! read on behalf of that query. So blocks may hold NaN beyond a row's length.

mod partial;
mod tile;

use crate::KernelSet;
use crate::kv_cache::{Batch, BatchRow, LayerKv};
use crate::rows::Rows;
use crate::simd::{Simd, instantiate};
use crate::threads::{TaskPanic, run, threads};
use partial::{finish, merge, take_partial, total};
use std::cell::Cell;
use tile::{HeadKv, MAX_QUERIES, attend_tile};

/// Positions of a tile.
const TILE: usize = 64;
/// Positions of a partition.
const PARTITION: usize = 256;
/// Queries (tokens times heads of the group) that go over a tile together.
const ITEM_QUERIES: usize = 48;

/// Attention of one layer.
#[derive(Clone, Copy, Debug)]
pub struct AttendArgs<'a> {
    /// `[T, Hq, D]`.
    pub q: Rows<*const f32>,
    /// Hq, a multiple of Hkv.
    pub q_heads: usize,
    /// Keys and values, the step's own already written.
    pub kv: LayerKv,
    /// Rows of the step; checked.
    pub batch: Batch<'a>,
    /// Factor of the scores.
    pub scale: f32,
    /// Positions that a query sees, its own included; `usize::MAX` for all.
    pub window: usize,
    /// `[T, Hq, D]`.
    pub out: Rows<*mut f32>,
}
// SAFETY: pointers to memory that outlives the call; each item writes its own tokens and heads.
unsafe impl Sync for AttendArgs<'_> {}

/// Some tokens of a row and one key-value head: the queries that use the same keys.
struct Item<'a> {
    row: BatchRow<'a>,
    head: usize,
    /// First token, counted in the row.
    first: usize,
    tokens: usize,
    /// Where the partitions leave their partial sums, if they are separate tasks.
    partials: Option<usize>,
}

/// One task: an item, or one partition of it.
struct Task {
    item: usize,
    partition: Option<usize>,
}

struct Plan<'a> {
    args: AttendArgs<'a>,
    items: Vec<Item<'a>>,
    tasks: Vec<Task>,
    /// Partial sums of split items.
    partials: *mut f32,
    /// Indices of split items.
    split: Vec<usize>,
}
// SAFETY: as for AttendArgs; each partition writes its own partial sums.
unsafe impl Sync for Plan<'_> {}

thread_local! {
    /// Taken out while a task uses it; a closure would keep the kernel from being inlined.
    static SCRATCH: Cell<Vec<f32>> = const { Cell::new(Vec::new()) };
}

/// Queries of one item and what is summed of them.
pub(crate) struct Queries<'a> {
    head_dim: usize,
    /// Queries times the scale, `[n, D]`.
    scaled: &'a mut [f32],
    /// Weighted sums of the partition, `[n, sum_stride]`.
    sums: &'a mut [f32],
    /// D, rounded up to whole vectors.
    sum_stride: usize,
    /// Sums of the weights, one a lane, `[n, LANES]`.
    totals: &'a mut [f32],
    /// Largest scores of the partition, `[n]`; -inf where no key was seen yet.
    maxima: &'a mut [f32],
    /// Position of the first token.
    first_position: usize,
    /// Queries of one token.
    group: usize,
    window: usize,
}

impl Queries<'_> {
    /// The range of positions that a query sees.
    #[inline(always)]
    fn seen(&self, query: usize) -> (usize, usize) {
        let end = self.first_position + query / self.group + 1;
        (end.saturating_sub(self.window), end)
    }

    /// What a query sees of the tile at `start`: a range within the tile, empty if nothing.
    #[inline(always)]
    fn visible(&self, query: usize, start: usize) -> (usize, usize) {
        let (low, high) = self.seen(query);
        let low = low.saturating_sub(start).min(TILE);
        (low, high.saturating_sub(start).min(TILE).max(low))
    }
}

impl AttendArgs<'_> {
    fn group(&self) -> usize {
        self.q_heads / self.kv.heads
    }

    /// Floats of a query's partial result: maximum, total, sums.
    fn partial_floats(&self) -> usize {
        self.kv.head_dim + 2
    }
}

impl Item<'_> {
    /// The partitions that any of the item's queries sees.
    fn partitions(&self, window: usize) -> std::ops::Range<usize> {
        let first = self.row.first_position + self.first;
        let low = (first + 1).saturating_sub(window);
        low / PARTITION..(first + self.tokens).div_ceil(PARTITION)
    }
}

/// Attends every token of the step.
///
/// # Safety
///
/// The pointers are valid for the sizes given, `out` overlaps nothing, the batch was checked, the block
/// size is a multiple of the lanes of `set`, and the CPU has `set`.
pub unsafe fn attend(set: KernelSet, args: AttendArgs<'_>) -> Result<(), TaskPanic> {
    let mut partials = Vec::new();
    let mut plan = plan(args);
    let floats = plan.args.partial_floats() * plan.args.group();
    let count: usize = plan
        .tasks
        .iter()
        .filter(|task| task.partition.is_some())
        .count();
    partials.resize(count * floats, 0.0_f32);
    plan.partials = partials.as_mut_ptr();
    // SAFETY: the caller's contract.
    run(plan.tasks.len(), &|task| unsafe {
        attend_task(set, &plan, task);
    })?;
    // SAFETY: the caller's contract; the partial sums are complete.
    run(plan.split.len(), &|index| unsafe {
        merge_task(set, &plan, index);
    })
}

/// Cuts the step into items, and items into partitions where there are too few for the threads.
fn plan(args: AttendArgs<'_>) -> Plan<'_> {
    let group = args.group();
    let tokens_per_item = (ITEM_QUERIES / group).max(1);
    let mut items = Vec::new();
    for row in args.batch.rows() {
        for first in (0..row.tokens).step_by(tokens_per_item) {
            let tokens = tokens_per_item.min(row.tokens - first);
            for head in 0..args.kv.heads {
                items.push(Item {
                    row,
                    head,
                    first,
                    tokens,
                    partials: None,
                });
            }
        }
    }
    let few = threads() > 1 && items.len() < 4 * threads();
    let (mut tasks, mut split, mut partials) = (Vec::new(), Vec::new(), 0);
    for (index, item) in items.iter_mut().enumerate() {
        let partitions = item.partitions(args.window);
        if few && item.tokens == 1 && partitions.len() > 1 {
            item.partials = Some(partials);
            partials += partitions.len();
            split.push(index);
            tasks.extend(partitions.map(|p| Task {
                item: index,
                partition: Some(p),
            }));
        } else {
            tasks.push(Task {
                item: index,
                partition: None,
            });
        }
    }
    // The longest first, so that no thread ends with a long one alone.
    if items.len() > 1 {
        tasks.sort_by_key(|task| {
            let item = &items[task.item];
            let end = item.row.first_position + item.first + item.tokens;
            std::cmp::Reverse(if task.partition.is_some() {
                PARTITION
            } else {
                end * item.tokens
            })
        });
    }
    Plan {
        args,
        items,
        tasks,
        partials: std::ptr::null_mut(),
        split,
    }
}

instantiate! {
    /// One item, or one partition of it.
    fn attend_task = task_body(&Plan<'_>)
}

/// # Safety
///
/// As for [`attend`], with the features of `S` enabled.
#[inline(always)]
unsafe fn task_body<S: Simd>(plan: &Plan<'_>, task: usize) {
    let Task { item, partition } = plan.tasks[task];
    let item = &plan.items[item];
    let (args, group) = (&plan.args, plan.args.group());
    let (count, head_dim) = (item.tokens * group, args.kv.head_dim);
    let sum_stride = head_dim.next_multiple_of(S::LANES);
    let partial = args.partial_floats();
    let mut scratch = SCRATCH.take();
    let sizes = [
        count * head_dim,
        count * sum_stride,
        count * S::LANES,
        count,
    ];
    let needed = sizes.iter().sum::<usize>() + count * partial;
    if scratch.len() < needed {
        scratch.resize(needed, 0.0);
    }
    let (scaled, rest) = scratch.split_at_mut(sizes[0]);
    let (sums, rest) = rest.split_at_mut(sizes[1]);
    let (totals, rest) = rest.split_at_mut(sizes[2]);
    let (maxima, rest) = rest.split_at_mut(sizes[3]);
    let merged = &mut rest[..count * partial];
    let mut queries = Queries {
        head_dim,
        scaled,
        sums,
        sum_stride,
        totals,
        maxima,
        first_position: item.row.first_position + item.first,
        group,
        window: args.window,
    };
    let head = HeadKv {
        kv: args.kv,
        table: item.row.table,
        head: item.head,
    };
    // SAFETY: the caller's contract; the item's tokens and heads exist.
    unsafe {
        load_queries(args, item, &mut queries);
        if let (Some(partition), Some(first)) = (partition, item.partials) {
            attend_partition::<S>(&mut queries, &head, partition);
            let index = first + partition - item.partitions(args.window).start;
            let target = plan.partials.add(index * group * partial);
            for query in 0..count {
                take_partial::<S>(&queries, query, target.add(query * partial));
            }
            SCRATCH.set(scratch);
            return;
        }
        merged.fill(0.0);
        for query in 0..count {
            merged[query * partial] = f32::NEG_INFINITY;
        }
        let mut part = [0.0_f32; 2];
        for partition in item.partitions(args.window) {
            attend_partition::<S>(&mut queries, &head, partition);
            for query in 0..count {
                let sums = queries.sums.as_ptr().add(query * sum_stride);
                part[0] = queries.maxima[query];
                part[1] = total::<S>(&queries, query);
                let target = merged.as_mut_ptr().add(query * partial);
                merge::<S>(target, part, sums, head_dim);
            }
        }
        for query in 0..count {
            let out = output(args, item, query);
            finish::<S>(merged.as_ptr().add(query * partial), out, head_dim);
        }
    }
    SCRATCH.set(scratch);
}

instantiate! {
    /// Merges the partitions of one split item.
    fn merge_task = merge_body(&Plan<'_>)
}

/// # Safety
///
/// As for [`attend`], with the features of `S` enabled and the partial sums complete.
#[inline(always)]
unsafe fn merge_body<S: Simd>(plan: &Plan<'_>, index: usize) {
    let item = &plan.items[plan.split[index]];
    let (args, group, head_dim) = (&plan.args, plan.args.group(), plan.args.kv.head_dim);
    let partial = args.partial_floats();
    let Some(first) = item.partials else { return };
    let partitions = item.partitions(args.window).len();
    for query in 0..group {
        // SAFETY: the item has `partitions` times `group` partial sums from `first` on.
        unsafe {
            let merged = plan.partials.add((first * group + query) * partial);
            for p in 1..partitions {
                let part = merged.add(p * group * partial).cast_const();
                merge::<S>(merged, [*part, *part.add(1)], part.add(2), head_dim);
            }
            finish::<S>(merged.cast_const(), output(args, item, query), head_dim);
        }
    }
}

/// Where a query's result goes.
///
/// # Safety
///
/// The query exists.
#[inline(always)]
unsafe fn output(args: &AttendArgs<'_>, item: &Item<'_>, query: usize) -> *mut f32 {
    let group = args.group();
    let token = item.row.first_token + item.first + query / group;
    let head = item.head * group + query % group;
    // SAFETY: the caller's contract.
    unsafe { args.out.at(token).add(head * args.kv.head_dim) }
}

/// Copies the item's queries, scaled.
///
/// # Safety
///
/// As for [`attend`].
#[inline(always)]
unsafe fn load_queries(args: &AttendArgs<'_>, item: &Item<'_>, queries: &mut Queries<'_>) {
    let (group, head_dim) = (args.group(), args.kv.head_dim);
    for token in 0..item.tokens {
        // SAFETY: tokens and heads exist.
        unsafe {
            let q = args.q.at(item.row.first_token + item.first + token);
            let q = q.add(item.head * group * head_dim);
            let target = &mut queries.scaled[token * group * head_dim..][..group * head_dim];
            for (i, value) in target.iter_mut().enumerate() {
                *value = *q.add(i) * args.scale;
            }
        }
    }
}

/// Attends all queries over one partition, from nothing.
///
/// # Safety
///
/// As for [`attend`], with the features of `S` enabled.
#[inline(always)]
unsafe fn attend_partition<S: Simd>(
    queries: &mut Queries<'_>,
    head: &HeadKv<'_>,
    partition: usize,
) {
    queries.sums.fill(0.0);
    queries.totals.fill(0.0);
    queries.maxima.fill(f32::NEG_INFINITY);
    let count = queries.maxima.len();
    let blocks = count.div_ceil(MAX_QUERIES);
    for tile in 0..PARTITION / TILE {
        let start = partition * PARTITION + tile * TILE;
        let mut first = 0;
        for block in 0..blocks {
            let size = (count - first).div_ceil(blocks - block);
            // Positions grow with the queries: the last sees furthest, the first furthest back.
            let (_, end) = queries.seen(first + size - 1);
            let (low, _) = queries.seen(first);
            if start < end && low < start + TILE {
                // SAFETY: the caller's contract; a key of the tile is seen.
                unsafe { attend_tile::<S>(queries, head, first, size, start) };
            }
            first += size;
        }
    }
}
