//! The exponential, with the same arithmetic in every lane and on every kernel set.

use super::Simd;

/// Arguments are clamped to these, so that `2^n` stays a normal number. `exp(LOWEST)` is about 1.2e-38.
const HIGHEST: f32 = 88.376_26;
const LOWEST: f32 = -87.336_54;
/// ln 2 in two parts; the first has few bits, so that `n * LN2_HIGH` is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Minimax polynomial of `(exp(r) - 1 - r) / r^2` on `-ln2/2..=ln2/2` (Cephes `expf`).
#[expect(clippy::excessive_precision, reason = "digits as published")]
const COEFFICIENTS: [f32; 6] = [
    1.987_569_1e-4,
    1.398_2e-3,
    8.333_452e-3,
    4.166_579_6e-2,
    1.666_666_5e-1,
    5.000_000_1e-1,
];

/// `e^x` to about two units in the last place; `exp(0)` is exactly 1, NaN stays NaN.
///
/// # Safety
///
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::V) -> S::V {
    // SAFETY: arithmetic only; features are the caller's contract.
    unsafe {
        // The operand order lets NaN through.
        let x = S::max(S::splat(LOWEST), S::min(S::splat(HIGHEST), x));
        let n = S::round(S::mul(x, S::splat(std::f32::consts::LOG2_E)));
        let r = S::fnma(n, S::splat(LN2_HIGH), x);
        let r = S::fnma(n, S::splat(LN2_LOW), r);
        let mut p = S::splat(COEFFICIENTS[0]);
        p = S::fma(p, r, S::splat(COEFFICIENTS[1]));
        p = S::fma(p, r, S::splat(COEFFICIENTS[2]));
        p = S::fma(p, r, S::splat(COEFFICIENTS[3]));
        p = S::fma(p, r, S::splat(COEFFICIENTS[4]));
        p = S::fma(p, r, S::splat(COEFFICIENTS[5]));
        let y = S::add(S::fma(p, S::mul(r, r), r), S::splat(1.0));
        S::mul(y, S::pow2(n))
    }
}
