//! Loops over the vectors of a row. A row's tail goes through the same arithmetic as its body, with
//! fewer lanes, so an element's bits do not depend on its place.

use super::Simd;

/// Calls `body(offset, lanes)` for the vectors of `length` floats; the last may have fewer lanes.
#[inline(always)]
pub(crate) fn each_vector<S: Simd>(length: usize, mut body: impl FnMut(usize, usize)) {
    let mut i = 0;
    while i + S::LANES <= length {
        body(i, S::LANES);
        i += S::LANES;
    }
    if i < length {
        body(i, length - i);
    }
}

/// Loads `n` lanes.
///
/// # Safety
///
/// `n` floats at `p` are valid and the features of `S` enabled.
#[inline(always)]
pub(crate) unsafe fn load<S: Simd>(p: *const f32, n: usize) -> S::V {
    // SAFETY: the caller's contract.
    unsafe {
        if n == S::LANES {
            S::load(p)
        } else {
            S::load_first(p, n)
        }
    }
}

/// Stores `n` lanes.
///
/// # Safety
///
/// `n` floats at `p` are valid and the features of `S` enabled.
#[inline(always)]
pub(crate) unsafe fn store<S: Simd>(p: *mut f32, v: S::V, n: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        if n == S::LANES {
            S::store(p, v);
        } else {
            S::store_first(p, v, n);
        }
    }
}
