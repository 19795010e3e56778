//! `silu(gate) * up`.

use crate::KernelSet;
use crate::rows::{Rows, for_rows};
use crate::simd::{Simd, each_vector, exp, instantiate, load, store};
use crate::threads::TaskPanic;

/// One activation.
#[derive(Clone, Copy, Debug)]
pub struct SiluMulArgs {
    /// `[T, 2 I]`, the gates first.
    pub gate_up: Rows<*const f32>,
    /// `[T, I]`.
    pub y: Rows<*mut f32>,
    /// T.
    pub rows: usize,
    /// I.
    pub size: usize,
}
// SAFETY: pointers to memory that outlives the call; rows are written by one task each.
unsafe impl Sync for SiluMulArgs {}

/// `y = gate / (1 + exp(-gate)) * up`, element by element.
///
/// # Safety
///
/// The pointers are valid for the sizes given, `y` overlaps nothing, and the CPU has `set`.
pub unsafe fn silu_mul(set: KernelSet, args: SiluMulArgs) -> Result<(), TaskPanic> {
    // SAFETY: the caller's contract.
    for_rows(args.rows, 3 * args.size, &|row| unsafe {
        silu_mul_row(set, &args, row);
    })
}

instantiate! {
    /// One row.
    fn silu_mul_row = row_body(&SiluMulArgs)
}

/// # Safety
///
/// As for [`silu_mul`], with the features of `S` enabled.
#[inline(always)]
unsafe fn row_body<S: Simd>(args: &SiluMulArgs, row: usize) {
    // SAFETY: the row exists, and lanes beyond its end are neither read nor written.
    unsafe {
        let gate = args.gate_up.at(row);
        let up = gate.add(args.size);
        let y = args.y.at(row);
        each_vector::<S>(
            args.size,
            #[inline(always)]
            |i, n| {
                let g = load::<S>(gate.add(i), n);
                let one = S::splat(1.0);
                let divisor = S::add(one, exp::<S>(S::sub(S::splat(0.0), g)));
                store::<S>(
                    y.add(i),
                    S::mul(S::div(g, divisor), load::<S>(up.add(i), n)),
                    n,
                );
            },
        );
    }
}
