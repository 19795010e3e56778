//! What this machine's cores can do at most, beside what the products reach: fp32 multiply-adds from
//! registers, reads from memory, and `linear` at several numbers of rows. Best of many short runs, so
//! that other work on the machine disturbs it little.
//!
//! Usage: `limits [threads]`.

#![expect(clippy::print_stdout, reason = "a measuring program")]

use headrace_kernels::{
    KernelSet, LinearArgs, PackedShape, Rows, advise_large_pages, linear, set_threads,
};
use std::hint::black_box;
use std::time::Instant;

/// Seconds of the fastest of `runs` calls.
fn best(runs: usize, mut body: impl FnMut(usize)) -> f64 {
    body(0);
    (0..runs)
        .map(|run| {
            let start = Instant::now();
            body(run);
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// Runs `body` on `threads` threads at the same time.
fn on_threads(threads: usize, body: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for thread in 1..threads {
            let body = &body;
            scope.spawn(move || body(thread));
        }
        body(0);
    });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn fma_avx512(rounds: usize) -> f32 {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_reduce_add_ps, _mm512_set1_ps};
    let (a, b) = (
        _mm512_set1_ps(black_box(0.999)),
        _mm512_set1_ps(black_box(1e-3)),
    );
    let mut sums = [b; 16];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    sums.iter().map(|sum| _mm512_reduce_add_ps(*sum)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fma_avx2(rounds: usize) -> f32 {
    use std::arch::x86_64::{_mm256_add_ps, _mm256_cvtss_f32, _mm256_fmadd_ps, _mm256_set1_ps};
    let (a, b) = (
        _mm256_set1_ps(black_box(0.999)),
        _mm256_set1_ps(black_box(1e-3)),
    );
    let mut sums = [b; 12];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    _mm256_cvtss_f32(sums.iter().fold(a, |x, y| _mm256_add_ps(x, *y)))
}

/// Multiply-adds from registers, in GFLOP/s.
fn fma_limit(set: KernelSet, threads: usize) -> f64 {
    let rounds = 200_000;
    let (flops, body): (usize, fn(usize) -> f32) = match set.name() {
        // SAFETY: the set is one this CPU has.
        #[cfg(target_arch = "x86_64")]
        "avx512" => (16 * 16 * 2, |rounds| unsafe { fma_avx512(rounds) }),
        // SAFETY: the set is one this CPU has.
        #[cfg(target_arch = "x86_64")]
        "avx2" => (12 * 8 * 2, |rounds| unsafe { fma_avx2(rounds) }),
        _ => return f64::NAN,
    };
    let seconds = best(30, |_| {
        on_threads(threads, |_| {
            black_box(body(rounds));
        });
    });
    (threads * rounds * flops) as f64 / seconds / 1e9
}

/// Reads from memory, in GB/s.
fn read_limit(threads: usize) -> f64 {
    let mut data: Vec<f32> = Vec::with_capacity(128 << 20);
    // SAFETY: the vector's own memory.
    unsafe { advise_large_pages(data.as_mut_ptr(), data.capacity() * 4) };
    data.resize(128 << 20, 1.0);
    let part = data.len() / threads;
    let seconds = best(10, |_| {
        on_threads(threads, |thread| {
            let mut sums = [0.0_f32; 64];
            for chunk in data[thread * part..][..part].chunks_exact(64) {
                for (sum, x) in sums.iter_mut().zip(chunk) {
                    *sum += x;
                }
            }
            black_box(sums);
        });
    });
    (data.len() * 4) as f64 / seconds / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads = std::env::args().nth(1).map_or(Ok(1), |n| n.parse())?;
    set_threads(threads)?;
    let set = KernelSet::current()?;
    println!("{} threads, {}", threads, set.name());
    println!("multiply-adds {:.0} GFLOP/s", fma_limit(set, threads));
    println!("reads {:.1} GB/s", read_limit(threads));
    for (n, k, copies) in [(1536, 576, 120), (576, 1536, 120), (49152, 576, 3)] {
        let columns = set.panel_columns();
        let shape = PackedShape {
            out_features: n,
            in_features: k,
            columns,
        };
        let mut weights: Vec<f32> = Vec::with_capacity(shape.floats() * copies);
        // SAFETY: the vector's own memory.
        unsafe { advise_large_pages(weights.as_mut_ptr(), weights.capacity() * 4) };
        weights.resize(shape.floats() * copies, 0.01);
        let mut y = vec![0.0_f32; n * 256];
        let x = vec![0.5_f32; k * 256];
        for rows in [1, 4, 8, 16, 64, 256] {
            let runs = if n > 40_000 { 30 } else { 480 };
            let seconds = best(runs, |run| {
                let args = LinearArgs {
                    x: Rows {
                        start: x.as_ptr(),
                        stride: k,
                    },
                    weight: weights[(run % copies) * shape.floats()..].as_ptr(),
                    shape,
                    bias: std::ptr::null(),
                    y: Rows {
                        start: y.as_mut_ptr(),
                        stride: n,
                    },
                    rows,
                };
                // SAFETY: the vectors have these sizes.
                black_box(unsafe { linear(set, args) }.is_ok());
            });
            println!(
                "{n:>6} x {k:<5} rows {rows:<4} {:>5.0} GFLOP/s {:>6.1} GB/s of weights",
                (2 * n * k * rows) as f64 / seconds / 1e9,
                (4 * n * k) as f64 / seconds / 1e9
            );
        }
    }
    Ok(())
}
