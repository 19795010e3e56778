//! Rotary position embedding, half-split ("neox") pairs, in place.

use crate::KernelSet;
use crate::rows::{Rows, for_rows};
use crate::simd::{Simd, each_vector, instantiate, load, store};
use crate::threads::TaskPanic;

/// One rotation of queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct RotaryArgs {
    /// `[T, Hq, D]`, changed in place.
    pub q: Rows<*mut f32>,
    /// Hq.
    pub q_heads: usize,
    /// `[T, Hkv, D]`, changed in place.
    pub k: Rows<*mut f32>,
    /// Hkv.
    pub k_heads: usize,
    /// D.
    pub head_dim: usize,
    /// `[P, R / 2]`.
    pub cos: *const f32,
    /// `[P, R / 2]`.
    pub sin: *const f32,
    /// R / 2, at most D / 2.
    pub half: usize,
    /// `[T]`, each below P.
    pub positions: *const i64,
    /// T.
    pub tokens: usize,
}
// SAFETY: pointers to memory that outlives the call; tokens are changed by one task each.
unsafe impl Sync for RotaryArgs {}

/// Rotates the first R dimensions of every head.
///
/// # Safety
///
/// The pointers are valid for the sizes given, positions are in the tables, and the CPU has `set`.
pub unsafe fn rotary(set: KernelSet, args: RotaryArgs) -> Result<(), TaskPanic> {
    let floats = (args.q_heads + args.k_heads) * 2 * args.half;
    // SAFETY: the caller's contract.
    for_rows(args.tokens, floats, &|token| unsafe {
        rotary_token(set, &args, token);
    })
}

instantiate! {
    /// One token.
    fn rotary_token = token_body(&RotaryArgs)
}

/// # Safety
///
/// As for [`rotary`], with the features of `S` enabled.
#[inline(always)]
unsafe fn token_body<S: Simd>(args: &RotaryArgs, token: usize) {
    // SAFETY: the token exists and its position is in the tables; halves do not overlap.
    unsafe {
        let row = *args.positions.add(token) as usize * args.half;
        let (cos, sin) = (args.cos.add(row), args.sin.add(row));
        for (heads, count) in [(&args.q, args.q_heads), (&args.k, args.k_heads)] {
            for head in 0..count {
                let first = heads.at(token).add(head * args.head_dim);
                let second = first.add(args.half);
                each_vector::<S>(
                    args.half,
                    #[inline(always)]
                    |i, n| {
                        let (c, s) = (load::<S>(cos.add(i), n), load::<S>(sin.add(i), n));
                        let a = load::<S>(first.add(i).cast_const(), n);
                        let b = load::<S>(second.add(i).cast_const(), n);
                        store::<S>(first.add(i), S::fnma(b, s, S::mul(a, c)), n);
                        store::<S>(second.add(i), S::fma(a, s, S::mul(b, c)), n);
                    },
                );
            }
        }
    }
}
