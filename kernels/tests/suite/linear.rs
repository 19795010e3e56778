//! `linear`: against f64, and the same bits for every number of rows, threads and on every kernel set.

use crate::support::{assert_near, bits, numbers, rows, rows_mut, sets};
use headrace_kernels::{KernelSet, LinearArgs, PackedShape, linear, pack, set_threads};

struct Case {
    n: usize,
    k: usize,
    weight: Vec<f32>,
    bias: Vec<f32>,
    x: Vec<f32>,
}

const ROWS: usize = 70;

fn case(n: usize, k: usize) -> Case {
    Case {
        n,
        k,
        weight: numbers(n * k, 1),
        bias: numbers(n, 2),
        x: numbers(ROWS * k, 3),
    }
}

fn product(set: KernelSet, case: &Case, from: usize, count: usize) -> Vec<f32> {
    let (n, k) = (case.n, case.k);
    let shape = PackedShape {
        out_features: n,
        in_features: k,
        columns: set.panel_columns(),
    };
    let mut packed = vec![f32::NAN; shape.floats()];
    let mut y = vec![f32::NAN; count * n];
    // SAFETY: the vectors have the sizes given, and the set is one of this CPU.
    unsafe {
        pack(case.weight.as_ptr(), packed.as_mut_ptr(), shape).expect("packs");
        let args = LinearArgs {
            x: rows(&case.x[from * k..], k),
            weight: packed.as_ptr(),
            shape,
            bias: case.bias.as_ptr(),
            y: rows_mut(&mut y, n),
            rows: count,
        };
        linear(set, args).expect("multiplies");
    }
    y
}

/// Sizes around vectors and panels of every set; K below and above a slice.
const SIZES: [(usize, usize); 6] = [(1, 1), (7, 5), (24, 130), (49, 257), (100, 64), (192, 600)];

#[test]
fn is_the_chain_of_fused_multiply_adds() {
    for (n, k) in SIZES {
        let case = case(n, k);
        let mut chain = Vec::new();
        let mut wide = Vec::new();
        for row in 0..ROWS {
            for column in 0..n {
                let pairs = || (0..k).map(|i| (case.x[row * k + i], case.weight[column * k + i]));
                let sum = pairs().fold(0.0_f32, |sum, (x, w)| x.mul_add(w, sum));
                chain.push(sum + case.bias[column]);
                let sum: f64 = pairs().map(|(x, w)| f64::from(x) * f64::from(w)).sum();
                wide.push(sum + f64::from(case.bias[column]));
            }
        }
        for set in sets() {
            let y = product(set, &case, 0, ROWS);
            // Rounding: at most k + 1 half units of sums that stay below k.
            let bound = (k as f64 + 1.0) * k as f64 * f64::from(f32::EPSILON);
            assert_near(&y, &wide, bound, set.name());
            assert_eq!(bits(&y), bits(&chain), "{} {n} x {k}", set.name());
        }
    }
}

#[test]
fn rows_have_the_same_bits_in_any_number_and_on_any_threads() {
    let case = case(577, 576);
    for set in sets() {
        set_threads(1).expect("threads");
        let whole = product(set, &case, 0, ROWS);
        for threads in [1, 2, 3] {
            set_threads(threads).expect("threads");
            for count in [1, 2, 3, 5, 9, 16, 17, 64] {
                let from = ROWS - count;
                let part = product(set, &case, from, count);
                let expected = &whole[from * case.n..];
                assert_eq!(
                    bits(&part),
                    bits(expected),
                    "{} {threads} {count}",
                    set.name()
                );
            }
        }
    }
}

#[test]
fn strided_rows_and_many_of_them() {
    let (n, k, count, stride) = (40, 33, 300, 50);
    let x = numbers(count * stride, 4);
    let weight = numbers(n * k, 5);
    let mut dense = Vec::new();
    for row in x.chunks_exact(stride) {
        dense.extend_from_slice(&row[..k]);
    }
    for set in sets() {
        let shape = PackedShape {
            out_features: n,
            in_features: k,
            columns: set.panel_columns(),
        };
        let mut packed = vec![0.0; shape.floats()];
        let mut outputs = Vec::new();
        for (x, stride) in [(&x, stride), (&dense, k)] {
            let mut y = vec![f32::NAN; count * n];
            // SAFETY: the vectors have the sizes given, and the set is one of this CPU.
            unsafe {
                pack(weight.as_ptr(), packed.as_mut_ptr(), shape).expect("packs");
                let args = LinearArgs {
                    x: rows(x, stride),
                    weight: packed.as_ptr(),
                    shape,
                    bias: std::ptr::null(),
                    y: rows_mut(&mut y, n),
                    rows: count,
                };
                linear(set, args).expect("multiplies");
            }
            outputs.push(bits(&y));
        }
        assert_eq!(outputs[0], outputs[1], "{}", set.name());
    }
}
