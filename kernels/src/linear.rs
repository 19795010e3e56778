//! `y = x w^T + b` in fp32.
//!
//! Every output element is one chain of fused multiply-adds over k = 0, 1, ..., K - 1, then the bias.
//! The chain does not depend on the number of rows, on blocking or on threads, and as every kernel set
//! fuses, it is the same on all of them. Where K is worked off in slices, the fp32 accumulators are
//! stored and loaded again, which is exact.
//!
//! Weights are packed into panels `[N / C][K][C]`, C = 3 vectors; the last panel is padded with zeros. A
//! register block is `S::ROWS` rows by one panel. With few rows the product streams the weights once,
//! at memory bandwidth; with many, a slice of a panel stays in L1 and is used by all rows of a task.

use crate::simd::{Simd, instantiate};
use crate::threads::{TaskPanic, run, threads};
use crate::{KernelSet, Rows};

/// Vectors of a panel's width.
pub(crate) const PANEL_VECTORS: usize = 3;
/// Rows of one task: its part of x stays in L2.
const TASK_ROWS: usize = 128;
/// Bytes of a panel's slice, kept in L1 while all rows of a task use it.
const SLICE_BYTES: usize = 24 * 1024;
/// How far ahead the weights are asked for when each is used once, in floats.
const PREFETCH: usize = 768;
/// Products smaller than this (multiply-adds) are not worth waking a thread.
const MIN_PARALLEL: usize = 32 * 1024;

/// Sizes of a packed weight.
#[derive(Clone, Copy, Debug)]
pub struct PackedShape {
    /// N.
    pub out_features: usize,
    /// K.
    pub in_features: usize,
    /// Columns of a panel; that of the kernel set it was packed for.
    pub columns: usize,
}

impl PackedShape {
    /// Panels, the padded one included.
    pub fn panels(&self) -> usize {
        self.out_features.div_ceil(self.columns)
    }

    /// Floats of the packed weight.
    pub fn floats(&self) -> usize {
        self.panels() * self.columns * self.in_features
    }
}

/// Packs `weight` (row-major `[N, K]`) into `packed` (`shape.floats()` floats).
///
/// # Safety
///
/// Both pointers are valid for their sizes and do not overlap.
pub unsafe fn pack(
    weight: *const f32,
    packed: *mut f32,
    shape: PackedShape,
) -> Result<(), TaskPanic> {
    let (source, target) = (weight.addr(), packed.addr());
    let PackedShape {
        out_features,
        in_features,
        columns,
    } = shape;
    run(shape.panels(), &|panel| {
        let weight = std::ptr::with_exposed_provenance::<f32>(source);
        let packed = std::ptr::with_exposed_provenance_mut::<f32>(target);
        let first = panel * columns;
        for column in 0..columns {
            for k in 0..in_features {
                // SAFETY: indices are below the sizes that the caller vouches for; panels are apart.
                unsafe {
                    let value = if first + column < out_features {
                        *weight.add((first + column) * in_features + k)
                    } else {
                        0.0
                    };
                    *packed.add((panel * in_features + k) * columns + column) = value;
                }
            }
        }
    })
}

/// One product.
#[derive(Clone, Copy, Debug)]
pub struct LinearArgs {
    /// `[M, K]`.
    pub x: Rows<*const f32>,
    /// Packed weight.
    pub weight: *const f32,
    /// Its sizes.
    pub shape: PackedShape,
    /// `[N]`, or null.
    pub bias: *const f32,
    /// `[M, N]`.
    pub y: Rows<*mut f32>,
    /// M.
    pub rows: usize,
}
// SAFETY: pointers to memory that outlives the call; tasks write disjoint parts of `y`.
unsafe impl Sync for LinearArgs {}

/// A product and how it is split into tasks.
#[derive(Clone, Copy)]
struct Plan {
    args: LinearArgs,
    panels_per_task: usize,
    row_tasks: usize,
    rows_per_task: usize,
}

/// Computes the product on all threads.
///
/// # Safety
///
/// The pointers are valid for the sizes given; `y` overlaps nothing; the CPU has `set`, and the weight
/// was packed with its number of columns.
pub unsafe fn linear(set: KernelSet, args: LinearArgs) -> Result<(), TaskPanic> {
    let LinearArgs { rows, shape, .. } = args;
    if rows == 0 || shape.out_features == 0 {
        return Ok(());
    }
    let panels = shape.panels();
    let row_tasks = rows.div_ceil(TASK_ROWS);
    let work = rows * shape.in_features * shape.out_features;
    let threads = if work < MIN_PARALLEL { 1 } else { threads() };
    // Several tasks a thread, so that one that loses its core for a while does not hold up the others.
    let wanted = if threads == 1 { 1 } else { threads * 8 };
    let panels_per_task = panels.div_ceil(wanted.div_ceil(row_tasks)).max(1);
    let column_tasks = panels.div_ceil(panels_per_task);
    let plan = Plan {
        args,
        panels_per_task,
        row_tasks,
        rows_per_task: rows.div_ceil(row_tasks),
    };
    let tasks = column_tasks * row_tasks;
    if threads == 1 {
        for task in 0..tasks {
            // SAFETY: the caller's contract.
            unsafe { linear_task(set, &plan, task) };
        }
        return Ok(());
    }
    // SAFETY: the caller's contract.
    run(tasks, &|task| unsafe { linear_task(set, &plan, task) })
}

instantiate! {
    /// One task of a product.
    fn linear_task = task_body(&Plan)
}

/// # Safety
///
/// As for [`linear`], with the features of `S` enabled.
#[inline(always)]
unsafe fn task_body<S: Simd>(plan: &Plan, task: usize) {
    let args = &plan.args;
    let PackedShape {
        out_features,
        in_features,
        columns,
    } = args.shape;
    // Row tasks of the same panels follow each other, so that the second finds them in a cache.
    let first_panel = (task / plan.row_tasks) * plan.panels_per_task;
    let last_panel = (first_panel + plan.panels_per_task).min(args.shape.panels());
    let first_row = (task % plan.row_tasks) * plan.rows_per_task;
    let rows = plan.rows_per_task.min(args.rows - first_row.min(args.rows));
    let blocks = rows.div_ceil(S::ROWS);
    // A single block uses each weight once: no slices.
    let slice = if blocks <= 1 {
        in_features
    } else {
        SLICE_BYTES / (4 * columns)
    };
    for panel in first_panel..last_panel {
        let width = columns.min(out_features - panel * columns);
        let mut k0 = 0;
        loop {
            let depth = slice.min(in_features - k0);
            let last = k0 + depth == in_features;
            let mut done = 0;
            for block in 0..blocks {
                // Even blocks: 17 rows are 6 + 6 + 5, not 8 + 8 + 1.
                let count = (rows - done).div_ceil(blocks - block);
                let row = first_row + done;
                // SAFETY: rows, columns and k are below the sizes that the caller vouches for.
                unsafe {
                    let weight = args.weight.add((panel * in_features + k0) * columns);
                    let tile = Tile {
                        x: args.x.at(row).add(k0),
                        x_stride: args.x.stride,
                        weight,
                        ahead: if blocks == 1 {
                            weight.wrapping_add(PREFETCH)
                        } else {
                            // Each block fetches its share of the slice that follows.
                            let share = (4 - blocks.min(3)) * S::LANES;
                            weight.wrapping_add(depth * (columns + block % PANEL_VECTORS * share))
                        },
                        depth,
                        y: args.y.at(row).add(panel * columns),
                        y_stride: args.y.stride,
                        width,
                        resume: k0 > 0,
                        bias: if last && !args.bias.is_null() {
                            args.bias.add(panel * columns)
                        } else {
                            std::ptr::null()
                        },
                    };
                    match (blocks, block) {
                        (1, _) => tile_of_rows::<S, 3>(&tile, count),
                        (2, _) => tile_of_rows::<S, 2>(&tile, count),
                        // Later blocks ask again: that is free, and the loop without is compiled
                        // into one a third slower on AVX2.
                        _ => tile_of_rows::<S, 1>(&tile, count),
                    }
                }
                done += count;
            }
            k0 += depth;
            if last {
                break;
            }
        }
    }
}

/// Some rows times a slice of one panel.
struct Tile {
    x: *const f32,
    x_stride: usize,
    weight: *const f32,
    /// Weights that are fetched into the cache on the way; may lie beyond the last.
    ahead: *const f32,
    depth: usize,
    y: *mut f32,
    y_stride: usize,
    /// Columns that exist; the others are padding.
    width: usize,
    /// Whether `y` holds the sums over the slices before.
    resume: bool,
    /// Added at the end; null for none.
    bias: *const f32,
}

/// `AHEAD` vectors are fetched ahead for each k.
///
/// # Safety
///
/// As for [`linear`]; `1 <= count <= S::ROWS <= 8`.
#[inline(always)]
unsafe fn tile_of_rows<S: Simd, const AHEAD: usize>(tile: &Tile, count: usize) {
    // SAFETY: the caller's contract.
    unsafe {
        match count {
            1 => tile_body::<S, 1, AHEAD>(tile),
            2 => tile_body::<S, 2, AHEAD>(tile),
            3 => tile_body::<S, 3, AHEAD>(tile),
            4 => tile_body::<S, 4, AHEAD>(tile),
            5 if S::ROWS > 4 => tile_body::<S, 5, AHEAD>(tile),
            6 if S::ROWS > 4 => tile_body::<S, 6, AHEAD>(tile),
            7 if S::ROWS > 4 => tile_body::<S, 7, AHEAD>(tile),
            8 if S::ROWS > 4 => tile_body::<S, 8, AHEAD>(tile),
            _ => {}
        }
    }
}

/// # Safety
///
/// As for [`linear`].
#[inline(always)]
unsafe fn tile_body<S: Simd, const ROWS: usize, const AHEAD: usize>(tile: &Tile) {
    let lanes = S::LANES;
    // SAFETY: `width` columns of `ROWS` rows of y, `depth` floats of each row of x and `depth` times
    // the panel's columns of the weight are valid by the caller's contract.
    unsafe {
        let mut sums = [[S::splat(0.0); PANEL_VECTORS]; ROWS];
        if tile.resume {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (vector, sum) in sums.iter_mut().enumerate() {
                    let y = tile
                        .y
                        .wrapping_add(row * tile.y_stride + vector * lanes)
                        .cast_const();
                    *sum = load_columns::<S>(y, tile.width, vector);
                }
            }
        }
        let (mut weight, mut ahead) = (tile.weight, tile.ahead);
        for k in 0..tile.depth {
            let mut columns = [S::splat(0.0); PANEL_VECTORS];
            for (vector, column) in columns.iter_mut().enumerate() {
                *column = S::load(weight.add(vector * lanes));
            }
            for vector in 0..AHEAD {
                S::prefetch(ahead.wrapping_add(vector * lanes));
            }
            ahead = ahead.wrapping_add(AHEAD * lanes);
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = S::splat(*tile.x.add(row * tile.x_stride + k));
                for (sum, column) in sums.iter_mut().zip(columns) {
                    *sum = S::fma(x, column, *sum);
                }
            }
            weight = weight.add(PANEL_VECTORS * lanes);
        }
        if !tile.bias.is_null() {
            for vector in 0..PANEL_VECTORS {
                let bias =
                    load_columns::<S>(tile.bias.wrapping_add(vector * lanes), tile.width, vector);
                for sums in &mut sums {
                    sums[vector] = S::add(sums[vector], bias);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (vector, sum) in sums.iter().enumerate() {
                let y = tile.y.wrapping_add(row * tile.y_stride + vector * lanes);
                if (vector + 1) * lanes <= tile.width {
                    S::store(y, *sum);
                } else if vector * lanes < tile.width {
                    S::store_first(y, *sum, tile.width - vector * lanes);
                }
            }
        }
    }
}

/// Loads the columns of vector `vector` that lie below `width`.
///
/// # Safety
///
/// As for [`linear`]; `p` points at the vector's first column.
#[inline(always)]
unsafe fn load_columns<S: Simd>(p: *const f32, width: usize, vector: usize) -> S::V {
    let (low, high) = (vector * S::LANES, (vector + 1) * S::LANES);
    // SAFETY: only columns below the width are read.
    unsafe {
        if high <= width {
            S::load(p)
        } else if low < width {
            S::load_first(p, width - low)
        } else {
            S::splat(0.0)
        }
    }
}
