//! Paged attention: against f64, and the same bits for every chunking, batch and number of threads.

use crate::support::{assert_near, bits, numbers, rows, rows_mut, sets};
use headrace_kernels::{
    AttendArgs, Batch, KernelSet, LayerKv, WriteArgs, attend, copy_blocks, set_threads, write_kv,
};

/// A layer's KV, all NaN at first.
struct Kv {
    keys: Vec<f32>,
    values: Vec<f32>,
    num_blocks: usize,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    q_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    block_size: usize,
}

impl Kv {
    fn new(num_blocks: usize, shape: Shape) -> Self {
        let floats = num_blocks * shape.kv_heads * shape.head_dim * shape.block_size;
        Self {
            keys: vec![f32::NAN; floats],
            values: vec![f32::NAN; floats],
            num_blocks,
            shape,
        }
    }

    fn layer(&mut self) -> LayerKv {
        LayerKv {
            keys: self.keys.as_mut_ptr(),
            values: self.values.as_mut_ptr(),
            num_blocks: self.num_blocks,
            heads: self.shape.kv_heads,
            head_dim: self.shape.head_dim,
            block_size: self.shape.block_size,
        }
    }
}

/// One sequence: its tokens' queries, keys and values.
struct Sequence {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    blocks: Vec<i32>,
    length: usize,
}

impl Sequence {
    /// The same tokens in other blocks.
    fn moved_to(&self, first_block: i32) -> Self {
        Self {
            q: self.q.clone(),
            k: self.k.clone(),
            v: self.v.clone(),
            blocks: (first_block..first_block + self.blocks.len() as i32).collect(),
            length: self.length,
        }
    }
}

fn sequence(length: usize, first_block: usize, shape: Shape, seed: u64) -> Sequence {
    let kv = length * shape.kv_heads * shape.head_dim;
    let blocks = length.div_ceil(shape.block_size);
    Sequence {
        // Large scores: the online maximum moves.
        q: numbers(length * shape.q_heads * shape.head_dim, seed)
            .iter()
            .map(|x| x * 6.0)
            .collect(),
        k: numbers(kv, seed + 1),
        v: numbers(kv, seed + 2),
        // Out of order, to see that the table is used.
        blocks: (first_block..first_block + blocks)
            .rev()
            .map(|b| b as i32)
            .collect(),
        length,
    }
}

/// One step: `(sequence, from, to)` each. Returns the outputs of its tokens.
fn step(
    set: KernelSet,
    kv: &mut Kv,
    sequences: &[Sequence],
    parts: &[(usize, usize, usize)],
    window: usize,
) -> Vec<f32> {
    let shape = kv.shape;
    let (q_width, kv_width) = (
        shape.q_heads * shape.head_dim,
        shape.kv_heads * shape.head_dim,
    );
    let width = sequences.iter().map(|s| s.blocks.len()).max().unwrap_or(0);
    let (mut starts, mut lengths, mut tables) = (vec![0], Vec::new(), Vec::new());
    let (mut q, mut k, mut v) = (Vec::new(), Vec::new(), Vec::new());
    for &(index, from, to) in parts {
        let sequence = &sequences[index];
        starts.push(starts[starts.len() - 1] + (to - from) as i32);
        lengths.push(to as i32);
        let mut table = sequence.blocks.clone();
        table.resize(width, 0);
        tables.extend(table);
        q.extend_from_slice(&sequence.q[from * q_width..to * q_width]);
        k.extend_from_slice(&sequence.k[from * kv_width..to * kv_width]);
        v.extend_from_slice(&sequence.v[from * kv_width..to * kv_width]);
    }
    let batch = Batch {
        row_starts: &starts,
        context_lengths: &lengths,
        block_tables: &tables,
        table_width: width,
    };
    let mut out = vec![f32::NAN; q.len()];
    let layer = kv.layer();
    batch
        .check(q.len() / q_width, &layer)
        .expect("a good batch");
    // SAFETY: the vectors have the sizes given, the batch was checked, the set is one of this CPU.
    unsafe {
        let write = WriteArgs {
            k: rows(&k, kv_width),
            v: rows(&v, kv_width),
            kv: layer,
            batch,
        };
        write_kv(write).expect("writes");
        let args = AttendArgs {
            q: rows(&q, q_width),
            q_heads: shape.q_heads,
            kv: layer,
            batch,
            scale: 0.3,
            window,
            out: rows_mut(&mut out, q_width),
        };
        attend(
            set.for_block_size(shape.block_size).expect("a block size"),
            args,
        )
        .expect("attends");
    }
    out
}

/// The definition, in f64.
fn oracle(sequence: &Sequence, shape: Shape, window: usize) -> Vec<f64> {
    let Shape {
        q_heads,
        kv_heads,
        head_dim,
        ..
    } = shape;
    let group = q_heads / kv_heads;
    let mut out = Vec::new();
    for position in 0..sequence.length {
        for head in 0..q_heads {
            let q = &sequence.q[(position * q_heads + head) * head_dim..][..head_dim];
            let at = |p: usize| (p * kv_heads + head / group) * head_dim;
            let seen = (position + 1).saturating_sub(window)..position + 1;
            let weights: Vec<f64> = seen
                .clone()
                .map(|p| {
                    let k = &sequence.k[at(p)..][..head_dim];
                    let dot: f64 = q
                        .iter()
                        .zip(k)
                        .map(|(a, b)| f64::from(*a) * f64::from(*b))
                        .sum();
                    (dot * f64::from(0.3_f32)).exp()
                })
                .collect();
            let total: f64 = weights.iter().sum();
            for dim in 0..head_dim {
                let value = |p: usize| f64::from(sequence.v[at(p) + dim]);
                let sum: f64 = weights
                    .iter()
                    .zip(seen.clone())
                    .map(|(w, p)| w * value(p))
                    .sum();
                out.push(sum / total);
            }
        }
    }
    out
}

fn shapes() -> Vec<Shape> {
    let shape = |q_heads, kv_heads, head_dim, block_size| Shape {
        q_heads,
        kv_heads,
        head_dim,
        block_size,
    };
    vec![
        shape(6, 2, 64, 16),
        shape(7, 1, 24, 8),
        shape(4, 4, 16, 32),
        shape(8, 1, 72, 16),
    ]
}

/// Outputs of a sequence computed in chunks of one size, alone.
fn in_chunks(
    set: KernelSet,
    sequence: &Sequence,
    shape: Shape,
    chunk: usize,
    window: usize,
) -> Vec<f32> {
    let mut kv = Kv::new(sequence.blocks.len(), shape);
    let mut out = Vec::new();
    let mut from = 0;
    while from < sequence.length {
        let to = sequence.length.min(from + chunk);
        out.extend(step(
            set,
            &mut kv,
            std::slice::from_ref(sequence),
            &[(0, from, to)],
            window,
        ));
        from = to;
    }
    out
}

#[test]
fn equals_the_definition_in_any_chunks_with_the_same_bits() {
    for shape in shapes() {
        for window in [usize::MAX, 70, 1] {
            // Beyond one partition of 256 positions.
            let sequence = sequence(330, 0, shape, 7);
            let expected = oracle(&sequence, shape, window);
            for set in sets() {
                set_threads(1).expect("threads");
                let whole = in_chunks(set, &sequence, shape, sequence.length, window);
                let what = format!("{} {shape:?} window {window}", set.name());
                assert_near(&whole, &expected, 2e-5, &what);
                set_threads(2).expect("threads");
                // Where multiply-adds are emulated, one chunking is enough.
                let chunks = if set == KernelSet::Scalar {
                    &[50][..]
                } else {
                    &[1, 16, 50]
                };
                for &chunk in chunks {
                    let other = in_chunks(set, &sequence, shape, chunk, window);
                    assert_eq!(bits(&whole), bits(&other), "{what} chunks of {chunk}");
                }
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_batch_on_any_threads() {
    let shape = shapes()[0];
    let lengths = [600, 1, 40, 17];
    let mut first_block = 0;
    let sequences: Vec<Sequence> = lengths
        .iter()
        .enumerate()
        .map(|(index, length)| {
            let sequence = sequence(*length, first_block, shape, 20 + index as u64);
            first_block += sequence.blocks.len();
            sequence
        })
        .collect();
    for set in sets() {
        set_threads(1).expect("threads");
        let alone: Vec<Vec<f32>> = sequences
            .iter()
            .map(|sequence| in_chunks(set, &sequence.moved_to(0), shape, 128, usize::MAX))
            .collect();
        for threads in [1, 2, 4] {
            set_threads(threads).expect("threads");
            let mut kv = Kv::new(first_block, shape);
            // A long decode, two prefills and one that begins, in the same step.
            let _ = step(
                set,
                &mut kv,
                &sequences,
                &[(0, 0, 599), (2, 0, 30)],
                usize::MAX,
            );
            let parts = [(3, 0, 17), (0, 599, 600), (1, 0, 1), (2, 30, 40)];
            let out = step(set, &mut kv, &sequences, &parts, usize::MAX);
            let width = shape.q_heads * shape.head_dim;
            let expected: Vec<f32> = parts
                .iter()
                .flat_map(|&(index, from, to)| alone[index][from * width..to * width].to_vec())
                .collect();
            assert_eq!(
                bits(&out),
                bits(&expected),
                "{} {threads} threads",
                set.name()
            );
        }
    }
}

#[test]
fn a_later_token_that_overflows_harms_no_earlier_one() {
    let shape = shapes()[0];
    for set in sets() {
        let good = sequence(40, 0, shape, 3);
        let mut bad = sequence(40, 0, shape, 3);
        let width = shape.kv_heads * shape.head_dim;
        bad.k[30 * width..31 * width].fill(f32::INFINITY);
        bad.v[30 * width..31 * width].fill(f32::NAN);
        let good = in_chunks(set, &good, shape, 40, usize::MAX);
        let bad = in_chunks(set, &bad, shape, 40, usize::MAX);
        let before = 30 * shape.q_heads * shape.head_dim;
        assert_eq!(
            bits(&good[..before]),
            bits(&bad[..before]),
            "{}",
            set.name()
        );
        assert!(bad[before..].iter().any(|x| !x.is_finite()));
    }
}

#[test]
fn copies_the_first_tokens_of_a_block() {
    let shape = shapes()[0];
    let set = sets()[0];
    let source = sequence(16, 0, shape, 9);
    let mut kv = Kv::new(2, shape);
    let _ = step(
        set,
        &mut kv,
        std::slice::from_ref(&source),
        &[(0, 0, 16)],
        usize::MAX,
    );
    // SAFETY: the layer is alive.
    unsafe { copy_blocks(kv.layer(), &[[0, 1, 11]]) }.expect("copies");
    let mut continued = sequence(16, 0, shape, 9);
    continued.blocks = vec![1];
    // Tokens 11 to 15 of the second block come from this step, the others from the copy.
    let out = step(
        set,
        &mut kv,
        std::slice::from_ref(&continued),
        &[(0, 11, 16)],
        usize::MAX,
    );
    let expected = in_chunks(set, &source, shape, 16, usize::MAX);
    assert_eq!(
        bits(&out),
        bits(&expected[11 * shape.q_heads * shape.head_dim..])
    );
    let mut fresh = Kv::new(2, shape);
    // SAFETY: the layer is alive; bad copies are refused before anything is touched.
    unsafe {
        for bad in [[0, 2, 1], [-1, 0, 1], [0, 1, 17], [0, 1, -1]] {
            assert!(copy_blocks(fresh.layer(), &[bad]).is_err(), "{bad:?}");
        }
    }
}

#[test]
fn bad_batches_are_refused() {
    let shape = shapes()[0];
    let mut kv = Kv::new(4, shape);
    let layer = kv.layer();
    let check = |starts: &[i32], lengths: &[i32], tables: &[i32], tokens: usize| {
        let table_width = tables.len() / lengths.len().max(1);
        Batch {
            row_starts: starts,
            context_lengths: lengths,
            block_tables: tables,
            table_width,
        }
        .check(tokens, &layer)
    };
    assert!(check(&[0, 2, 3], &[20, 5], &[0, 1, 2, 0], 3).is_ok());
    assert!(
        check(&[0, 2, 3], &[20, 5], &[0, 4, 2, 0], 3).is_err(),
        "a block outside the pool"
    );
    assert!(
        check(&[0, 2, 3], &[20, 5], &[0, -1, 2, 0], 3).is_err(),
        "a negative block"
    );
    assert!(
        check(&[0, 2, 3], &[20, 5], &[0, 2], 3).is_err(),
        "a short table"
    );
    assert!(
        check(&[0, 2, 3], &[1, 5], &[0, 1, 2, 0], 3).is_err(),
        "more tokens than context"
    );
    assert!(
        check(&[0, 2, 1], &[20, 5], &[0, 1, 2, 0], 1).is_err(),
        "starts that fall"
    );
    assert!(
        check(&[0, 2, 3], &[20, 5], &[0, 1, 2, 0], 4).is_err(),
        "tokens of no row"
    );
    assert!(
        check(&[0, 2], &[20, 5], &[0, 1, 2, 0], 2).is_err(),
        "too few starts"
    );
}
