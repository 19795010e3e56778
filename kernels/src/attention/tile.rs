//! A few queries over one tile of keys and values: scores, online softmax, weighted sum.

use super::{Queries, TILE};
use crate::kv_cache::LayerKv;
use crate::simd::{Simd, exp};

/// Most queries of a register block, on every kernel set.
pub(super) const MAX_QUERIES: usize = 6;

/// One head's blocks of one row.
#[derive(Clone, Copy)]
pub(super) struct HeadKv<'a> {
    pub(super) kv: LayerKv,
    pub(super) table: &'a [i32],
    pub(super) head: usize,
}

/// Calls `$f::<S, N>` with N = `$count`, which is 1 to 6.
macro_rules! by_count {
    ($count:expr, $f:ident($($argument:expr),*)) => {
        match $count {
            1 => $f::<S, 1>($($argument),*),
            2 => $f::<S, 2>($($argument),*),
            3 => $f::<S, 3>($($argument),*),
            4 => $f::<S, 4>($($argument),*),
            5 => $f::<S, 5>($($argument),*),
            _ => $f::<S, 6>($($argument),*),
        }
    };
}

/// Takes queries `first..first + count` over the tile that starts at position `start`.
///
/// # Safety
///
/// At least one of the queries sees a key of the tile; the table holds every position that they see;
/// `count` is 1 to [`MAX_QUERIES`]; the features of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn attend_tile<S: Simd>(
    queries: &mut Queries<'_>,
    head: &HeadKv<'_>,
    first: usize,
    count: usize,
    start: usize,
) {
    let mut ranges = [(0, 0); MAX_QUERIES];
    let (mut low, mut high, mut end) = (0, TILE, 0);
    for (i, range) in ranges.iter_mut().enumerate().take(count) {
        *range = queries.visible(first + i, start);
        (low, high, end) = (low.max(range.0), high.min(range.1), end.max(range.1));
    }
    let mut weights = [0.0_f32; MAX_QUERIES * TILE];
    let d = queries.head_dim;
    // SAFETY: the caller's contract; queries, sums and weights hold `count` entries from `first` on.
    unsafe {
        let q = queries.scaled.as_ptr().add(first * d);
        by_count!(count, scores(q, head, start, end, weights.as_mut_ptr()));
        for (i, range) in ranges.iter().enumerate().take(count) {
            soften::<S>(
                queries,
                first + i,
                *range,
                weights.as_mut_ptr().add(i * TILE),
            );
        }
        let stride = queries.sum_stride;
        let sums = queries.sums.as_mut_ptr().add(first * stride);
        let weights = weights.as_ptr();
        // Keys that all the queries see are summed together, what only some see before and after that;
        // so each query's own order is always that of the positions.
        let shared = low < high;
        for (i, (from, to)) in ranges.iter().copied().enumerate().take(count) {
            let (w, s) = (weights.add(i * TILE), sums.add(i * stride));
            mix::<S, 1>(
                head,
                start,
                (from, if shared { low } else { to }),
                w,
                s,
                stride,
            );
        }
        if shared {
            by_count!(count, mix(head, start, (low, high), weights, sums, stride));
            for (i, (_, to)) in ranges.iter().copied().enumerate().take(count) {
                let (w, s) = (weights.add(i * TILE), sums.add(i * stride));
                mix::<S, 1>(head, start, (high, to), w, s, stride);
            }
        }
    }
}

/// Scores of `N` queries for the keys of the tile up to `end`, one chain over the dimensions each. What
/// lies beyond `end` is not computed from memory beyond it and holds nothing of use.
///
/// # Safety
///
/// As for [`attend_tile`]; `q` holds N queries, `scores` N tiles.
#[inline(always)]
unsafe fn scores<S: Simd, const N: usize>(
    q: *const f32,
    head: &HeadKv<'_>,
    start: usize,
    end: usize,
    scores: *mut f32,
) {
    let LayerKv {
        head_dim,
        block_size,
        ..
    } = head.kv;
    let last = (end - 1) / S::LANES;
    let mut vector = 0;
    while vector <= last {
        // SAFETY: a vector of keys lies in one block, for the block size is a multiple of the lanes;
        // the block is in the table, for its first key is seen. Past the last one it is repeated.
        unsafe {
            if S::KEY_VECTORS == 4 {
                let mut keys = [std::ptr::null(); 4];
                for (v, keys) in keys.iter_mut().enumerate() {
                    *keys = keys_at::<S>(head, start, (vector + v).min(last));
                }
                let mut sums = [[S::splat(0.0); 4]; N];
                dot::<S, N, 4>(q, keys, head_dim, block_size, &mut sums);
                put::<S, N, 4>(&sums, scores.add(vector * S::LANES));
                vector += 4;
            } else {
                let mut keys = [std::ptr::null(); 2];
                for (v, keys) in keys.iter_mut().enumerate() {
                    *keys = keys_at::<S>(head, start, (vector + v).min(last));
                }
                let mut sums = [[S::splat(0.0); 2]; N];
                dot::<S, N, 2>(q, keys, head_dim, block_size, &mut sums);
                put::<S, N, 2>(&sums, scores.add(vector * S::LANES));
                vector += 2;
            }
        }
    }
}

/// First dimension of the keys of vector `vector` of the tile.
///
/// # Safety
///
/// As for [`scores`].
#[inline(always)]
unsafe fn keys_at<S: Simd>(head: &HeadKv<'_>, start: usize, vector: usize) -> *const f32 {
    let position = start + vector * S::LANES;
    let block = head.table[position / head.kv.block_size] as usize;
    // SAFETY: the caller's contract.
    unsafe {
        head.kv
            .keys_of(block, head.head)
            .add(position % head.kv.block_size)
            .cast_const()
    }
}

/// # Safety
///
/// As for [`scores`].
#[inline(always)]
unsafe fn dot<S: Simd, const N: usize, const V: usize>(
    q: *const f32,
    keys: [*const f32; V],
    head_dim: usize,
    block_size: usize,
    sums: &mut [[S::V; V]; N],
) {
    // SAFETY: the caller's contract.
    unsafe {
        for dim in 0..head_dim {
            let mut k = [S::splat(0.0); V];
            for (k, keys) in k.iter_mut().zip(keys) {
                *k = S::load(keys.add(dim * block_size));
            }
            for (n, sums) in sums.iter_mut().enumerate() {
                let q = S::splat(*q.add(n * head_dim + dim));
                for (sum, k) in sums.iter_mut().zip(k) {
                    *sum = S::fma(q, k, *sum);
                }
            }
        }
    }
}

/// # Safety
///
/// `scores` holds N tiles.
#[inline(always)]
unsafe fn put<S: Simd, const N: usize, const V: usize>(sums: &[[S::V; V]; N], scores: *mut f32) {
    for (n, sums) in sums.iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            // SAFETY: the caller's contract.
            unsafe { S::store(scores.add(n * TILE + v * S::LANES), *sum) };
        }
    }
}

/// Turns the scores of one query into weights against the new maximum, and scales what was summed so
/// far to it. Weights of keys that the query does not see become 0.
///
/// # Safety
///
/// `weights` holds a tile; the features of `S` are enabled.
#[inline(always)]
unsafe fn soften<S: Simd>(
    queries: &mut Queries<'_>,
    query: usize,
    (low, high): (usize, usize),
    weights: *mut f32,
) {
    if low >= high {
        return;
    }
    let vectors = low / S::LANES..high.div_ceil(S::LANES);
    let seen = |vector: usize| {
        let first = vector * S::LANES;
        (low.saturating_sub(first), (high - first).min(S::LANES))
    };
    // SAFETY: vectors lie in the tile; sums and totals hold the query.
    unsafe {
        let lowest = S::splat(f32::NEG_INFINITY);
        let mut tile_maximum = lowest;
        for vector in vectors.clone() {
            let (from, to) = seen(vector);
            let score = S::load(weights.add(vector * S::LANES).cast_const());
            tile_maximum = S::max(S::select_range(score, lowest, from, to), tile_maximum);
        }
        let old = queries.maxima[query];
        let new = old.max(S::reduce_max(tile_maximum));
        queries.maxima[query] = new;
        let (maximum, zero) = (S::splat(new), S::splat(0.0));
        // Nothing was summed yet where the old maximum is -inf; exp gives a small number, and 0 stays 0.
        let scale = exp::<S>(S::sub(S::splat(old), maximum));
        let totals = queries.totals.as_mut_ptr().add(query * S::LANES);
        let mut total = S::mul(S::load(totals.cast_const()), scale);
        for vector in vectors {
            let (from, to) = seen(vector);
            let p = weights.add(vector * S::LANES);
            let weight = exp::<S>(S::sub(S::load(p.cast_const()), maximum));
            let weight = S::select_range(weight, zero, from, to);
            total = S::add(total, weight);
            S::store(p, weight);
        }
        S::store(totals, total);
        let sums = queries.sums.as_mut_ptr().add(query * queries.sum_stride);
        for i in (0..queries.sum_stride).step_by(S::LANES) {
            S::store(
                sums.add(i),
                S::mul(S::load(sums.add(i).cast_const()), scale),
            );
        }
    }
}

/// Adds weight times value for the tile's keys `low..high`, in order, to the sums of N queries.
///
/// # Safety
///
/// As for [`attend_tile`]; `weights` holds N tiles, `sums` N sums `stride` apart.
#[inline(always)]
unsafe fn mix<S: Simd, const N: usize>(
    head: &HeadKv<'_>,
    start: usize,
    (low, high): (usize, usize),
    weights: *const f32,
    sums: *mut f32,
    stride: usize,
) {
    let head_dim = head.kv.head_dim;
    let mut dim = 0;
    // SAFETY: dimensions beyond the head's are neither read nor written.
    unsafe {
        while dim < head_dim && low < high {
            let left = head_dim - dim;
            let args = (head, start, (low, high), weights, sums, stride);
            if S::KEY_VECTORS == 4 && left >= 4 * S::LANES {
                mix_vectors::<S, N, 4>(args, dim, S::LANES);
                dim += 4 * S::LANES;
            } else if left >= 2 * S::LANES {
                mix_vectors::<S, N, 2>(args, dim, S::LANES);
                dim += 2 * S::LANES;
            } else {
                mix_vectors::<S, N, 1>(args, dim, left.min(S::LANES));
                dim += S::LANES;
            }
        }
    }
}

type MixArgs<'a> = (
    &'a HeadKv<'a>,
    usize,
    (usize, usize),
    *const f32,
    *mut f32,
    usize,
);

/// [`mix`] for V vectors of dimensions from `dim` on; `lanes` of each exist.
///
/// # Safety
///
/// As for [`mix`].
#[inline(always)]
unsafe fn mix_vectors<S: Simd, const N: usize, const V: usize>(
    (head, start, (low, high), weights, sums, stride): MixArgs<'_>,
    dim: usize,
    lanes: usize,
) {
    let LayerKv {
        head_dim,
        block_size,
        ..
    } = head.kv;
    // SAFETY: the caller's contract.
    unsafe {
        let mut totals = [[S::splat(0.0); V]; N];
        for (n, totals) in totals.iter_mut().enumerate() {
            for (v, total) in totals.iter_mut().enumerate() {
                *total = S::load(sums.add(n * stride + dim + v * S::LANES).cast_const());
            }
        }
        let mut key = low;
        while key < high {
            let position = start + key;
            let slot = position % block_size;
            let block = head.table[position / block_size] as usize;
            let end = high.min(key + block_size - slot);
            let mut row = head
                .kv
                .values_of(block, head.head)
                .add(slot * head_dim + dim);
            while key < end {
                let mut values = [S::splat(0.0); V];
                for (v, value) in values.iter_mut().enumerate() {
                    let p = row.add(v * S::LANES).cast_const();
                    *value = if V == 1 && lanes < S::LANES {
                        S::load_first(p, lanes)
                    } else {
                        S::load(p)
                    };
                }
                for (n, totals) in totals.iter_mut().enumerate() {
                    let weight = S::splat(*weights.add(n * TILE + key));
                    for (total, value) in totals.iter_mut().zip(values) {
                        *total = S::fma(weight, value, *total);
                    }
                }
                row = row.wrapping_add(head_dim);
                key += 1;
            }
        }
        for (n, totals) in totals.iter().enumerate() {
            for (v, total) in totals.iter().enumerate() {
                S::store(sums.add(n * stride + dim + v * S::LANES), *total);
            }
        }
    }
}
