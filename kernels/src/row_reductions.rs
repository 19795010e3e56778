//! What sampling and the numeric checks need to know of a row: is it finite, where is its maximum, how
//! large is the sum of its exponentials.

use crate::KernelSet;
use crate::rows::{Rows, for_rows};
use crate::simd::{Simd, each_vector, exp, instantiate, load};
use crate::threads::TaskPanic;

/// A check of `rows` rows.
#[derive(Clone, Copy, Debug)]
pub struct NonFiniteArgs {
    /// `[T, H]`.
    pub x: Rows<*const f32>,
    /// `[T]`, 1 where the row holds a NaN or an infinity, else 0.
    pub flags: *mut u8,
    /// T.
    pub rows: usize,
    /// H.
    pub size: usize,
}
// SAFETY: pointers to memory that outlives the call; flags are written by one task each.
unsafe impl Sync for NonFiniteArgs {}

/// Marks the rows that hold a NaN or an infinity.
///
/// # Safety
///
/// The pointers are valid for the sizes given, and the CPU has `set`.
pub unsafe fn non_finite(set: KernelSet, args: NonFiniteArgs) -> Result<(), TaskPanic> {
    // SAFETY: the caller's contract.
    for_rows(args.rows, args.size, &|row| unsafe {
        non_finite_row(set, &args, row);
    })
}

instantiate! {
    /// One row.
    fn non_finite_row = non_finite_body(&NonFiniteArgs)
}

/// # Safety
///
/// As for [`non_finite`], with the features of `S` enabled.
#[inline(always)]
unsafe fn non_finite_body<S: Simd>(args: &NonFiniteArgs, row: usize) {
    // SAFETY: the row exists, and lanes beyond its end are not read (they count as 0).
    unsafe {
        let x = args.x.at(row);
        // 0 * v is 0 for finite v and NaN otherwise, and NaN stays in the sum.
        let zero = S::splat(0.0);
        let mut sum = zero;
        each_vector::<S>(
            args.size,
            #[inline(always)]
            |i, n| sum = S::fma(load::<S>(x.add(i), n), zero, sum),
        );
        let all = (1_u64 << S::LANES) - 1;
        *args.flags.add(row) = u8::from(u64::from(S::equal_mask(sum, zero)) != all);
    }
}

/// Maximum and logsumexp of `rows` rows.
#[derive(Clone, Copy, Debug)]
pub struct ArgmaxArgs {
    /// `[T, V]`, V at least 1.
    pub logits: Rows<*const f32>,
    /// `[T]`: index of the maximum, the lowest one on ties; 0 when all are NaN.
    pub index: *mut i64,
    /// `[T]`: ln of the sum of the exponentials.
    pub logsumexp: *mut f32,
    /// T.
    pub rows: usize,
    /// V.
    pub size: usize,
}
// SAFETY: pointers to memory that outlives the call; outputs are written by one task each.
unsafe impl Sync for ArgmaxArgs {}

/// Finds the maximum and the logsumexp of every row. NaN is not looked at by the maximum.
///
/// # Safety
///
/// The pointers are valid for the sizes given, and the CPU has `set`.
pub unsafe fn argmax_logsumexp(set: KernelSet, args: ArgmaxArgs) -> Result<(), TaskPanic> {
    // SAFETY: the caller's contract.
    for_rows(args.rows, args.size, &|row| unsafe {
        argmax_row(set, &args, row);
    })
}

instantiate! {
    /// One row.
    fn argmax_row = argmax_body(&ArgmaxArgs)
}

/// # Safety
///
/// As for [`argmax_logsumexp`], with the features of `S` enabled.
#[inline(always)]
unsafe fn argmax_body<S: Simd>(args: &ArgmaxArgs, row: usize) {
    // SAFETY: the row exists, and lanes beyond its end are not read.
    unsafe {
        let x = args.logits.at(row);
        let lowest = S::splat(f32::NEG_INFINITY);
        let mut maxima = [lowest; 4];
        each_vector::<S>(
            args.size,
            #[inline(always)]
            |i, n| {
                let v = S::select_range(load::<S>(x.add(i), n), lowest, 0, n);
                let maximum = &mut maxima[(i / S::LANES) % 4];
                // A NaN in v gives the second operand.
                *maximum = S::max(v, *maximum);
            },
        );
        let maximum = S::reduce_max(S::max(
            S::max(maxima[0], maxima[1]),
            S::max(maxima[2], maxima[3]),
        ));
        let (maxima, zero) = (S::splat(maximum), S::splat(0.0));
        let mut index = None;
        let mut sums = [zero; 4];
        each_vector::<S>(
            args.size,
            #[inline(always)]
            |i, n| {
                let v = load::<S>(x.add(i), n);
                if index.is_none() {
                    let equal = S::equal_mask(v, maxima) & (((1_u64 << n) - 1) as u32);
                    if equal != 0 {
                        index = Some(i + equal.trailing_zeros() as usize);
                    }
                }
                let e = S::select_range(exp::<S>(S::sub(v, maxima)), zero, 0, n);
                let sum = &mut sums[(i / S::LANES) % 4];
                *sum = S::add(*sum, e);
            },
        );
        let sum = S::reduce_add(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])));
        *args.index.add(row) = index.unwrap_or(0) as i64;
        *args.logsumexp.add(row) = if maximum == f32::NEG_INFINITY {
            maximum
        } else {
            maximum + sum.ln()
        };
    }
}
