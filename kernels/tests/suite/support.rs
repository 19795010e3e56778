//! What the kernel tests share: numbers, error bounds and the kernel sets.

use headrace_kernels::{KernelSet, Rows};

/// Numbers in -1..1 from a linear congruential generator.
pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((state >> 40) as f32 / (1_u32 << 23) as f32) - 1.0
    };
    (0..count).map(next).collect()
}

/// Every kernel set of this CPU.
pub(crate) fn sets() -> Vec<KernelSet> {
    KernelSet::available()
}

/// Rows of a slice.
pub(crate) fn rows(data: &[f32], stride: usize) -> Rows<*const f32> {
    Rows {
        start: data.as_ptr(),
        stride,
    }
}

/// Rows of a slice, to be written.
pub(crate) fn rows_mut(data: &mut [f32], stride: usize) -> Rows<*mut f32> {
    Rows {
        start: data.as_mut_ptr(),
        stride,
    }
}

/// Bits, so that -0 and NaN count.
pub(crate) fn bits(data: &[f32]) -> Vec<u32> {
    data.iter().map(|x| x.to_bits()).collect()
}

/// Asserts that all numbers are within `bound` of the expected ones.
pub(crate) fn assert_near(actual: &[f32], expected: &[f64], bound: f64, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (index, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!(
            (f64::from(*a) - e).abs() <= bound,
            "{what}: [{index}] is {a}, not {e}"
        );
    }
}
