//! Row-wise ops: against f64, with the same bits wherever a row or an element is.

use crate::support::{assert_near, bits, numbers, rows, rows_mut, sets};
use headrace_kernels::{
    ArgmaxArgs, KernelSet, NonFiniteArgs, NormArgs, RotaryArgs, Rows, SiluMulArgs,
    argmax_logsumexp, non_finite, rms_norm, rotary, set_threads, silu_mul,
};

fn silu(set: KernelSet, gate_up: &[f32], size: usize) -> Vec<f32> {
    let count = gate_up.len() / (2 * size);
    let mut y = vec![f32::NAN; count * size];
    let args = SiluMulArgs {
        gate_up: rows(gate_up, 2 * size),
        y: rows_mut(&mut y, size),
        rows: count,
        size,
    };
    // SAFETY: the vectors have the sizes given, and the set is one of this CPU.
    unsafe { silu_mul(set, args) }.expect("computes");
    y
}

#[test]
fn silu_mul_is_right_and_an_element_has_the_same_bits_everywhere() {
    for set in sets() {
        for size in [1, 15, 16, 37] {
            let gate_up: Vec<f32> = numbers(3 * 2 * size, 1).iter().map(|x| x * 20.0).collect();
            let y = silu(set, &gate_up, size);
            let mut expected = Vec::new();
            for row in gate_up.chunks_exact(2 * size) {
                for (g, u) in row[..size].iter().zip(&row[size..]) {
                    let (g, u) = (f64::from(*g), f64::from(*u));
                    expected.push(g / (1.0 + (-g).exp()) * u);
                }
            }
            assert_near(&y, &expected, 4e-5, set.name());
            for (index, value) in y.iter().enumerate() {
                let (row, column) = (index / size, index % size);
                let pair = [
                    gate_up[row * 2 * size + column],
                    gate_up[row * 2 * size + size + column],
                ];
                assert_eq!(
                    bits(&silu(set, &pair, 1)),
                    bits(&[*value]),
                    "{}",
                    set.name()
                );
            }
        }
        // Extremes: no overflow on the way, NaN stays NaN.
        let y = silu(set, &[-1e30, 1e30, -200.0, f32::NAN, 1.0, 1.0, 1.0, 1.0], 4);
        assert!(y[0].abs() < 1e-6 && y[2].abs() < 1e-30, "{y:?}");
        assert!((y[1] - 1e30).abs() < 1e24 && y[3].is_nan(), "{y:?}");
    }
}

fn norm(set: KernelSet, x: &[f32], residual: Option<&[f32]>, weight: &[f32]) -> [Vec<f32>; 2] {
    let hidden = weight.len();
    let count = x.len() / hidden;
    let (mut y, mut sum) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
    let none = Rows {
        start: std::ptr::null(),
        stride: 0,
    };
    let args = NormArgs {
        x: rows(x, hidden),
        residual: residual.map_or(none, |residual| rows(residual, hidden)),
        weight: weight.as_ptr(),
        eps: 1e-5,
        sum: rows_mut(&mut sum, hidden),
        y: rows_mut(&mut y, hidden),
        rows: count,
        hidden,
    };
    // SAFETY: the vectors have the sizes given, and the set is one of this CPU.
    unsafe { rms_norm(set, args) }.expect("computes");
    [y, sum]
}

#[test]
fn rms_norm_is_right_and_a_row_has_the_same_bits_everywhere() {
    for set in sets() {
        for hidden in [1, 8, 63, 576] {
            let x = numbers(200 * hidden, 2);
            let residual = numbers(200 * hidden, 3);
            let weight = numbers(hidden, 4);
            set_threads(2).expect("threads");
            let [y, sum] = norm(set, &x, Some(&residual), &weight);
            let mut expected = Vec::new();
            for row in sum.chunks_exact(hidden) {
                let squares: f64 = row.iter().map(|v| f64::from(*v).powi(2)).sum();
                let scale = 1.0 / (squares / hidden as f64 + f64::from(1e-5_f32)).sqrt();
                let scaled = row.iter().zip(&weight);
                expected.extend(scaled.map(|(v, w)| f64::from(*v) * scale * f64::from(*w)));
            }
            assert_near(&y, &expected, 4e-6, set.name());
            let sums: Vec<f32> = x.iter().zip(&residual).map(|(a, b)| a + b).collect();
            assert_eq!(bits(&sum), bits(&sums));
            assert_eq!(bits(&norm(set, &sum, None, &weight)[0]), bits(&y));
            for (row, expected) in y.chunks_exact(hidden).enumerate() {
                let one = norm(set, &sum[row * hidden..][..hidden], None, &weight);
                assert_eq!(bits(&one[0]), bits(expected));
            }
        }
    }
}

#[test]
fn rotary_turns_pairs_and_leaves_the_rest() {
    let (tokens, heads, head_dim, half, positions) = (5, 3, 40, 12, [3_i64, 0, 9, 9, 4]);
    let cos = numbers(10 * half, 5);
    let sin = numbers(10 * half, 6);
    let x = numbers(tokens * heads * head_dim, 7);
    let mut expected: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    for (token, position) in positions.iter().enumerate() {
        for head in 0..heads {
            for i in 0..half {
                let first = (token * heads + head) * head_dim + i;
                let row = *position as usize * half + i;
                let (c, s) = (f64::from(cos[row]), f64::from(sin[row]));
                let (a, b) = (f64::from(x[first]), f64::from(x[first + half]));
                expected[first] = a * c - b * s;
                expected[first + half] = b * c + a * s;
            }
        }
    }
    for set in sets() {
        let (mut q, mut k) = (x.clone(), x[..tokens * head_dim].to_vec());
        let args = RotaryArgs {
            q: rows_mut(&mut q, heads * head_dim),
            q_heads: heads,
            k: rows_mut(&mut k, head_dim),
            k_heads: 1,
            head_dim,
            cos: cos.as_ptr(),
            sin: sin.as_ptr(),
            half,
            positions: positions.as_ptr(),
            tokens,
        };
        // SAFETY: the vectors have the sizes given, and the set is one of this CPU.
        unsafe { rotary(set, args) }.expect("computes");
        assert_near(&q, &expected, 1e-6, set.name());
        assert_eq!(
            bits(&q[..head_dim]),
            bits(&k[..head_dim]),
            "keys turn as queries do"
        );
        assert_eq!(bits(&q[2 * half..head_dim]), bits(&x[2 * half..head_dim]));
    }
}

#[test]
fn non_finite_rows_are_marked() {
    for set in sets() {
        for size in [1, 8, 37] {
            let mut x = numbers(6 * size, 8);
            x[size] = f32::NAN;
            x[3 * size - 1] = f32::INFINITY;
            x[4 * size] = f32::NEG_INFINITY;
            x[5 * size] = f32::MAX;
            let mut flags = [9_u8; 6];
            let args = NonFiniteArgs {
                x: rows(&x, size),
                flags: flags.as_mut_ptr(),
                rows: 6,
                size,
            };
            // SAFETY: the vectors have the sizes given, and the set is one of this CPU.
            unsafe { non_finite(set, args) }.expect("computes");
            assert_eq!(flags, [0, 1, 1, 0, 1, 0], "{} {size}", set.name());
        }
    }
}

fn argmax(set: KernelSet, logits: &[f32], size: usize) -> (Vec<i64>, Vec<f32>) {
    let count = logits.len() / size;
    let (mut index, mut logsumexp) = (vec![-1; count], vec![f32::NAN; count]);
    let args = ArgmaxArgs {
        logits: rows(logits, size),
        index: index.as_mut_ptr(),
        logsumexp: logsumexp.as_mut_ptr(),
        rows: count,
        size,
    };
    // SAFETY: the vectors have the sizes given, and the set is one of this CPU.
    unsafe { argmax_logsumexp(set, args) }.expect("computes");
    (index, logsumexp)
}

#[test]
fn argmax_takes_the_first_of_equals_and_logsumexp_is_right() {
    for set in sets() {
        for size in [1, 5, 16, 1001] {
            let mut logits: Vec<f32> = numbers(3 * size, 9).iter().map(|x| x * 9.0).collect();
            logits[size + size / 2] = 20.0;
            logits[2 * size - 1] = 20.0;
            logits[2 * size] = f32::NEG_INFINITY;
            let (index, logsumexp) = argmax(set, &logits, size);
            let mut wide = Vec::new();
            for (row, found) in logits.chunks_exact(size).zip(&index) {
                let best = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let first = row.iter().position(|x| *x >= best).expect("a maximum");
                assert_eq!(*found, first as i64, "{} {size}", set.name());
                wide.push(row.iter().map(|x| f64::from(*x).exp()).sum::<f64>().ln());
            }
            if size == 1 {
                assert!(logsumexp[2] == f32::NEG_INFINITY);
                wide[2] = 0.0;
            }
            let finite: Vec<f32> = logsumexp
                .iter()
                .map(|x| if x.is_finite() { *x } else { 0.0 })
                .collect();
            assert_near(&finite, &wide, 1e-5, set.name());
            let (_, one) = argmax(set, &logits[size..2 * size], size);
            assert_eq!(bits(&one), bits(&logsumexp[1..2]));
        }
        let (index, logsumexp) = argmax(set, &[1.0, f32::NAN, 3.0, 2.0], 4);
        assert_eq!(index, [2]);
        assert!(logsumexp[0].is_nan());
    }
}
