//! RMS norm, with and without the residual sum before it.
//!
//! The mean is summed in four vector accumulators and then in one fixed tree: the order depends on the
//! hidden size and the kernel set alone.

use crate::KernelSet;
use crate::rows::{Rows, for_rows};
use crate::simd::{Simd, each_vector, instantiate, load, store};
use crate::threads::TaskPanic;

/// One norm of `rows` rows.
#[derive(Clone, Copy, Debug)]
pub struct NormArgs {
    /// `[T, H]`.
    pub x: Rows<*const f32>,
    /// `[T, H]` that is added to x before the norm; null for none.
    pub residual: Rows<*const f32>,
    /// `[H]`.
    pub weight: *const f32,
    /// Added to the mean of the squares.
    pub eps: f32,
    /// x + residual, `[T, H]` contiguous; not written without a residual.
    pub sum: Rows<*mut f32>,
    /// `[T, H]`.
    pub y: Rows<*mut f32>,
    /// T.
    pub rows: usize,
    /// H.
    pub hidden: usize,
}
// SAFETY: pointers to memory that outlives the call; rows are written by one task each.
unsafe impl Sync for NormArgs {}

/// `y = n / sqrt(mean(n^2) + eps) * weight`, n = x or x + residual.
///
/// # Safety
///
/// The pointers are valid for the sizes given, outputs overlap nothing, and the CPU has `set`.
pub unsafe fn rms_norm(set: KernelSet, args: NormArgs) -> Result<(), TaskPanic> {
    // SAFETY: the caller's contract.
    for_rows(args.rows, args.hidden, &|row| unsafe {
        norm_row(set, &args, row);
    })
}

instantiate! {
    /// One row.
    fn norm_row = row_body(&NormArgs)
}

/// # Safety
///
/// As for [`rms_norm`], with the features of `S` enabled.
#[inline(always)]
unsafe fn row_body<S: Simd>(args: &NormArgs, row: usize) {
    let hidden = args.hidden;
    // SAFETY: the row exists, and lanes beyond `hidden` are neither read nor written.
    unsafe {
        let mut x = args.x.at(row);
        let y = args.y.at(row);
        if !args.residual.start.is_null() {
            let (residual, sum) = (args.residual.at(row), args.sum.at(row));
            each_vector::<S>(
                hidden,
                #[inline(always)]
                |i, n| {
                    let total = S::add(load::<S>(x.add(i), n), load::<S>(residual.add(i), n));
                    store::<S>(sum.add(i), total, n);
                },
            );
            x = sum.cast_const();
        }
        let mut sums = [S::splat(0.0); 4];
        each_vector::<S>(
            hidden,
            #[inline(always)]
            |i, n| {
                let v = load::<S>(x.add(i), n);
                let sum = &mut sums[(i / S::LANES) % 4];
                *sum = S::fma(v, v, *sum);
            },
        );
        let total = S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3]));
        let mean = S::reduce_add(total) / hidden as f32;
        let scale = S::splat(1.0 / (mean + args.eps).sqrt());
        each_vector::<S>(
            hidden,
            #[inline(always)]
            |i, n| {
                let scaled = S::mul(load::<S>(x.add(i), n), scale);
                store::<S>(
                    y.add(i),
                    S::mul(scaled, load::<S>(args.weight.add(i), n)),
                    n,
                );
            },
        );
    }
}
