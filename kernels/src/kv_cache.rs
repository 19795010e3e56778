//! One layer's keys and values in blocks: where things are, writing, copying.
//!
//! Keys are `[num_blocks, Hkv, D, S]` (S positions of one dimension are one or more vectors, so scores
//! need no horizontal sums), values are `[num_blocks, Hkv, S, D]`.

use crate::rows::{Rows, for_rows};
use crate::threads::TaskPanic;

/// One layer's keys and values.
#[derive(Clone, Copy, Debug)]
pub struct LayerKv {
    /// `[num_blocks, Hkv, D, S]`.
    pub keys: *mut f32,
    /// `[num_blocks, Hkv, S, D]`.
    pub values: *mut f32,
    /// Blocks in the pool.
    pub num_blocks: usize,
    /// Hkv.
    pub heads: usize,
    /// D.
    pub head_dim: usize,
    /// S.
    pub block_size: usize,
}

impl LayerKv {
    /// Floats of one head's part of a block.
    fn head_floats(&self) -> usize {
        self.head_dim * self.block_size
    }

    /// Offset of a head's part of a block, the same in keys and values.
    fn offset(&self, block: usize, head: usize) -> usize {
        (block * self.heads + head) * self.head_floats()
    }

    /// Keys `[D, S]` of a head's part of a block.
    ///
    /// # Safety
    ///
    /// Block and head exist.
    #[inline(always)]
    pub(crate) unsafe fn keys_of(&self, block: usize, head: usize) -> *mut f32 {
        // SAFETY: the caller's contract.
        unsafe { self.keys.add(self.offset(block, head)) }
    }

    /// Values `[S, D]` of a head's part of a block.
    ///
    /// # Safety
    ///
    /// Block and head exist.
    #[inline(always)]
    pub(crate) unsafe fn values_of(&self, block: usize, head: usize) -> *mut f32 {
        // SAFETY: the caller's contract.
        unsafe { self.values.add(self.offset(block, head)) }
    }
}

/// Rows of a step: whose tokens they are and where their KV is.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// `[R + 1]`, offset of each row's first token.
    pub row_starts: &'a [i32],
    /// `[R]`, tokens with KV after the step.
    pub context_lengths: &'a [i32],
    /// `[R, table_width]`.
    pub block_tables: &'a [i32],
    /// Entries of a row's table.
    pub table_width: usize,
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchRow<'a> {
    /// Index of its first token in the step.
    pub(crate) first_token: usize,
    /// Its tokens in the step.
    pub(crate) tokens: usize,
    /// Position of its first token.
    pub(crate) first_position: usize,
    /// Its blocks.
    pub(crate) table: &'a [i32],
}

/// What is wrong with a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchError(pub String);

impl std::fmt::Display for BatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BatchError {}

fn refuse<T>(reason: String) -> Result<T, BatchError> {
    Err(BatchError(reason))
}

impl<'a> Batch<'a> {
    /// Checks everything that kernels rely on, in time linear in rows and blocks.
    pub fn check(&self, tokens: usize, kv: &LayerKv) -> Result<(), BatchError> {
        let rows = self.context_lengths.len();
        if self.row_starts.len() != rows + 1 || self.block_tables.len() != rows * self.table_width {
            return refuse(format!(
                "{rows} context lengths, {} row starts, {} table entries of {} a row",
                self.row_starts.len(),
                self.block_tables.len(),
                self.table_width
            ));
        }
        if self.row_starts[0] != 0 || usize::try_from(self.row_starts[rows]) != Ok(tokens) {
            return refuse(format!(
                "row starts do not go from 0 to the {tokens} tokens"
            ));
        }
        for row in 0..rows {
            let count = self.row_starts[row + 1].checked_sub(self.row_starts[row]);
            let length = self.context_lengths[row];
            let Some(count) = count.filter(|count| *count >= 0 && *count <= length) else {
                return refuse(format!(
                    "row {row}: more tokens than its context of {length}"
                ));
            };
            if count == 0 {
                continue;
            }
            let blocks = (length as usize).div_ceil(kv.block_size);
            if blocks > self.table_width {
                return refuse(format!("row {row}: a table too short for {length} tokens"));
            }
            let table = &self.block_tables[row * self.table_width..][..blocks];
            let known = |block: &i32| usize::try_from(*block).is_ok_and(|b| b < kv.num_blocks);
            if !table.iter().all(known) {
                return refuse(format!("row {row}: a block outside the {}", kv.num_blocks));
            }
        }
        Ok(())
    }

    /// Rows of a checked batch.
    pub(crate) fn rows(self) -> impl Iterator<Item = BatchRow<'a>> {
        (0..self.context_lengths.len()).map(move |row| {
            let first_token = self.row_starts[row] as usize;
            let tokens = self.row_starts[row + 1] as usize - first_token;
            BatchRow {
                first_token,
                tokens,
                first_position: self.context_lengths[row] as usize - tokens,
                table: &self.block_tables[row * self.table_width..][..self.table_width],
            }
        })
    }
}

/// Keys and values of the step's tokens, on their way into the blocks.
#[derive(Clone, Copy, Debug)]
pub struct WriteArgs<'a> {
    /// `[T, Hkv, D]`.
    pub k: Rows<*const f32>,
    /// `[T, Hkv, D]`.
    pub v: Rows<*const f32>,
    /// Where they go.
    pub kv: LayerKv,
    /// Whose they are; checked.
    pub batch: Batch<'a>,
}
// SAFETY: pointers to memory that outlives the call; a task writes one head of one row, and no two
// rows of a step write to the same block.
unsafe impl Sync for WriteArgs<'_> {}

/// Writes keys and values at their rows' positions.
///
/// # Safety
///
/// The pointers are valid for the sizes given and the batch was checked.
pub unsafe fn write_kv(args: WriteArgs<'_>) -> Result<(), TaskPanic> {
    let rows: Vec<BatchRow<'_>> = args.batch.rows().collect();
    let heads = args.kv.heads;
    let tokens = rows.iter().map(|row| row.tokens).max().unwrap_or(0);
    for_rows(rows.len() * heads, tokens * args.kv.head_dim * 4, &|task| {
        let row = &rows[task / heads];
        for index in 0..row.tokens {
            // SAFETY: the caller's contract.
            unsafe { write_token(&args, row, index, task % heads) };
        }
    })
}

/// Writes one head of one token.
///
/// # Safety
///
/// As for [`write_kv`].
unsafe fn write_token(args: &WriteArgs<'_>, row: &BatchRow<'_>, index: usize, head: usize) {
    let LayerKv {
        head_dim,
        block_size,
        ..
    } = args.kv;
    let position = row.first_position + index;
    let block = row.table[position / block_size] as usize;
    let slot = position % block_size;
    // SAFETY: the block is in the pool (checked) and the slot in the block.
    unsafe {
        let k = args.k.at(row.first_token + index).add(head * head_dim);
        let v = args.v.at(row.first_token + index).add(head * head_dim);
        let keys = args.kv.keys_of(block, head);
        for dim in 0..head_dim {
            *keys.add(dim * block_size + slot) = *k.add(dim);
        }
        let values = args.kv.values_of(block, head).add(slot * head_dim);
        std::ptr::copy_nonoverlapping(v, values, head_dim);
    }
}

/// Copies the first tokens of blocks: `copies` holds source, destination and number of tokens of each
/// copy, which are done in order.
///
/// # Safety
///
/// The pointers of `kv` are valid for its sizes.
pub unsafe fn copy_blocks(kv: LayerKv, copies: &[[i32; 3]]) -> Result<(), BatchError> {
    for copy in copies {
        let bound = |value: i32, limit: usize| usize::try_from(value).ok().filter(|v| *v < limit);
        let [source, destination, count] = *copy;
        let (Some(source), Some(destination), Some(count)) = (
            bound(source, kv.num_blocks),
            bound(destination, kv.num_blocks),
            bound(count, kv.block_size + 1),
        ) else {
            return refuse(format!("copy {copy:?}: outside the pool or the block"));
        };
        if source == destination {
            continue;
        }
        for head in 0..kv.heads {
            // SAFETY: both blocks exist and differ, and the count fits a block.
            unsafe {
                let (from, to) = (kv.keys_of(source, head), kv.keys_of(destination, head));
                for dim in 0..kv.head_dim {
                    let offset = dim * kv.block_size;
                    std::ptr::copy_nonoverlapping(from.add(offset), to.add(offset), count);
                }
                let (from, to) = (kv.values_of(source, head), kv.values_of(destination, head));
                std::ptr::copy_nonoverlapping(from, to, count * kv.head_dim);
            }
        }
    }
    Ok(())
}
