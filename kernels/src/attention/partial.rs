//! Partial results of a partition: maximum, total and weighted sums of one query, and their merge.

use super::Queries;
use crate::simd::{Simd, each_vector, exp, load, store};

/// Sum of a query's weights.
///
/// # Safety
///
/// The query exists; the features of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn total<S: Simd>(queries: &Queries<'_>, query: usize) -> f32 {
    // SAFETY: the caller's contract.
    unsafe { S::reduce_add(S::load(queries.totals.as_ptr().add(query * S::LANES))) }
}

/// Writes a query's partial result.
///
/// # Safety
///
/// `target` holds one; the features of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn take_partial<S: Simd>(queries: &Queries<'_>, query: usize, target: *mut f32) {
    // SAFETY: the caller's contract.
    unsafe {
        *target = queries.maxima[query];
        *target.add(1) = total::<S>(queries, query);
        let sums = queries.sums.as_ptr().add(query * queries.sum_stride);
        std::ptr::copy_nonoverlapping(sums, target.add(2), queries.head_dim);
    }
}

/// Merges the next partition (maximum, total and sums) into a partial result.
///
/// # Safety
///
/// `merged` holds a partial result, `sums` D floats; the features of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn merge<S: Simd>(
    merged: *mut f32,
    [maximum, total]: [f32; 2],
    sums: *const f32,
    head_dim: usize,
) {
    // No key of this partition was seen.
    if maximum == f32::NEG_INFINITY {
        return;
    }
    // SAFETY: the caller's contract; D is a multiple of 8, the lanes beyond it are left alone.
    unsafe {
        let target = merged.add(2);
        if *merged == f32::NEG_INFINITY {
            *merged = maximum;
            *merged.add(1) = total;
            std::ptr::copy_nonoverlapping(sums, target, head_dim);
            return;
        }
        let new = (*merged).max(maximum);
        let old_scale = exp::<S>(S::sub(S::splat(*merged), S::splat(new)));
        let scale = exp::<S>(S::sub(S::splat(maximum), S::splat(new)));
        each_vector::<S>(
            head_dim,
            #[inline(always)]
            |i, n| {
                let old = load::<S>(target.add(i).cast_const(), n);
                let sum = S::mul(load::<S>(sums.add(i), n), scale);
                store::<S>(target.add(i), S::fma(old, old_scale, sum), n);
            },
        );
        let totals = S::mul(S::splat(total), scale);
        let totals = S::fma(S::splat(*merged.add(1)), old_scale, totals);
        S::store_first(merged.add(1), totals, 1);
        *merged = new;
    }
}

/// Divides the sums by the total.
///
/// # Safety
///
/// `merged` holds a partial result, `out` D floats; the features of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd>(merged: *const f32, out: *mut f32, head_dim: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        let total = S::splat(*merged.add(1));
        each_vector::<S>(
            head_dim,
            #[inline(always)]
            |i, n| {
                let sums = load::<S>(merged.add(2 + i), n);
                store::<S>(out.add(i), S::div(sums, total), n);
            },
        );
    }
}
