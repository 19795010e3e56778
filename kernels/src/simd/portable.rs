//! 8 lanes in plain Rust: any CPU. Where the CPU has no fused multiply-add, `mul_add` is emulated and
//! slow, but right; on `AArch64` the arrays become NEON registers.

use super::Simd;
use std::array::from_fn;

const LANES: usize = 8;

/// Plain arrays.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

impl Simd for Portable {
    const LANES: usize = LANES;
    const ROWS: usize = 4;
    const KEY_VECTORS: usize = 2;
    type V = [f32; LANES];

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self::V {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self::V {
        // SAFETY: the trait's contract.
        unsafe { p.cast::<Self::V>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: Self::V) {
        // SAFETY: the trait's contract.
        unsafe { p.cast::<Self::V>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V {
        let mut v = [0.0; LANES];
        for (i, x) in v.iter_mut().enumerate().take(n) {
            // SAFETY: the trait's contract; only lanes below n are read.
            *x = unsafe { p.add(i).read_unaligned() };
        }
        v
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f32, v: Self::V, n: usize) {
        for (i, x) in v.iter().enumerate().take(n) {
            // SAFETY: the trait's contract; only lanes below n are written.
            unsafe { p.add(i).write_unaligned(*x) }
        }
    }
    #[inline(always)]
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        from_fn(|i| (-a[i]).mul_add(b[i], c[i]))
    }
    #[inline(always)]
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn round(a: Self::V) -> Self::V {
        from_fn(|i| a[i].round_ties_even())
    }
    #[inline(always)]
    unsafe fn pow2(n: Self::V) -> Self::V {
        from_fn(|i| f32::from_bits(((n[i] as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn select_range(v: Self::V, other: Self::V, low: usize, high: usize) -> Self::V {
        from_fn(|i| if i >= low && i < high { v[i] } else { other[i] })
    }
    #[inline(always)]
    #[expect(
        clippy::float_cmp,
        reason = "the index of an exact maximum is looked for"
    )]
    unsafe fn equal_mask(a: Self::V, b: Self::V) -> u32 {
        (0..LANES).fold(0, |mask, i| mask | (u32::from(a[i] == b[i]) << i))
    }
    #[inline(always)]
    unsafe fn reduce_add(v: Self::V) -> f32 {
        let four: [f32; 4] = from_fn(|i| v[i] + v[i + 4]);
        (four[0] + four[2]) + (four[1] + four[3])
    }
    #[inline(always)]
    unsafe fn reduce_max(v: Self::V) -> f32 {
        v.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
}
