//! Vectors of `f32`: one trait, one implementation a kernel set.
//!
//! Kernels are written once, generic over [`Simd`], and instantiated inside functions that enable the
//! CPU feature (`instantiate!`). Every multiply-add is fused on every set, so a chain of
//! [`Simd::fma`] has the same bits on all of them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod exp;
mod portable;
mod vectors;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use exp::exp;
pub(crate) use portable::Portable;
pub(crate) use vectors::{each_vector, load, store};

/// A vector of `LANES` floats.
///
/// # Safety
///
/// All methods need the CPU features of the implementation; pointers must be valid for the lanes that
/// are read or written (no alignment is needed).
pub(crate) trait Simd: Copy {
    /// Lanes of a vector.
    const LANES: usize;
    /// Rows of a product's register block; `3 * ROWS + 4` registers must exist.
    const ROWS: usize;
    /// Vectors of keys (or of value dimensions) that attention takes at a time, 4 or 2:
    /// `7 * KEY_VECTORS + 1` registers must exist.
    const KEY_VECTORS: usize;
    /// The vector.
    type V: Copy;

    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(p: *const f32) -> Self::V;
    unsafe fn store(p: *mut f32, v: Self::V);
    /// Loads `n` lanes, the others are 0; nothing beyond is touched.
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V;
    /// Stores the first `n` lanes.
    unsafe fn store_first(p: *mut f32, v: Self::V, n: usize);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`, rounded once.
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where either is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` where either is NaN.
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    /// To the nearest integer, ties to even.
    unsafe fn round(a: Self::V) -> Self::V;
    /// `2^n` for integral `n` in `-126..=127`; any finite number elsewhere.
    unsafe fn pow2(n: Self::V) -> Self::V;
    /// Lanes `low..high` of `v`, `other` elsewhere.
    unsafe fn select_range(v: Self::V, other: Self::V, low: usize, high: usize) -> Self::V;
    /// Bit `i` is set where lane `i` of `a` equals that of `b`.
    unsafe fn equal_mask(a: Self::V, b: Self::V) -> u32;
    /// Sum of the lanes, in one fixed order.
    unsafe fn reduce_add(v: Self::V) -> f32;
    /// Maximum of the lanes.
    unsafe fn reduce_max(v: Self::V) -> f32;
    /// Asks for the cache line at `p`, which may be any address.
    unsafe fn prefetch(p: *const f32);
}

/// Makes `$name(set, args)` out of a generic kernel, one instance for each kernel set.
macro_rules! instantiate {
    ($(#[$doc:meta])* $vis:vis fn $name:ident = $body:ident(&$args:ty)) => {
        $(#[$doc])*
        $vis unsafe fn $name(set: $crate::KernelSet, args: &$args, task: usize) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma")]
            unsafe fn avx512(args: &$args, task: usize) {
                // SAFETY: the caller's contract, and this function enables the features.
                unsafe { $body::<$crate::simd::Avx512>(args, task) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            unsafe fn avx2(args: &$args, task: usize) {
                // SAFETY: the caller's contract, and this function enables the features.
                unsafe { $body::<$crate::simd::Avx2>(args, task) }
            }
            // SAFETY: a KernelSet exists only where the CPU has its features; the rest is the
            // caller's contract.
            unsafe {
                match set {
                    #[cfg(target_arch = "x86_64")]
                    $crate::KernelSet::Avx512 => avx512(args, task),
                    #[cfg(target_arch = "x86_64")]
                    $crate::KernelSet::Avx2 => avx2(args, task),
                    $crate::KernelSet::Scalar => $body::<$crate::simd::Portable>(args, task),
                }
            }
        }
    };
}
pub(crate) use instantiate;
