//! Paged attention and the KV cache.

use super::arguments::{RowsOf, check, current_set, input, need, output, task_error, value_error};
use crate::{AttendArgs, Batch, KernelSet, LayerKv, WriteArgs};
use pyo3::prelude::*;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// `(keys, values, num_blocks, heads, head_dim, block_size)`.
type Kv = (usize, usize, usize, usize, usize, usize);
/// `(row_starts, context_lengths, block_tables, rows, table_width)`.
type Metadata = (usize, usize, usize, usize, usize);

/// # Safety
///
/// Every array has its size, and lives for `'a`.
unsafe fn batch<'a>(metadata: Metadata) -> PyResult<Batch<'a>> {
    let (row_starts, context_lengths, block_tables, rows, table_width) = metadata;
    need(
        "metadata: a null array",
        rows == 0 || (context_lengths != 0 && block_tables != 0),
    )?;
    need("metadata: no row starts", row_starts != 0)?;
    // SAFETY: the caller's contract; empty slices come from no pointer.
    unsafe {
        let slice = |address: usize, length: usize| match length {
            0 => &[][..],
            _ => std::slice::from_raw_parts(with_exposed_provenance::<i32>(address), length),
        };
        Ok(Batch {
            row_starts: slice(row_starts, rows + 1),
            context_lengths: slice(context_lengths, rows),
            block_tables: slice(block_tables, rows * table_width),
            table_width,
        })
    }
}

fn layer_kv(kv: Kv) -> PyResult<LayerKv> {
    let (keys, values, num_blocks, heads, head_dim, block_size) = kv;
    need(
        "kv: a null tensor",
        num_blocks == 0 || (keys != 0 && values != 0),
    )?;
    need(
        "kv: no heads, head dimension or block size",
        heads * head_dim * block_size > 0,
    )?;
    Ok(LayerKv {
        keys: with_exposed_provenance_mut(keys),
        values: with_exposed_provenance_mut(values),
        num_blocks,
        heads,
        head_dim,
        block_size,
    })
}

/// The set that serves attention over blocks of this size.
fn attention_set(head_dim: usize, block_size: usize) -> PyResult<KernelSet> {
    if !head_dim.is_multiple_of(8) {
        return Err(value_error(format!(
            "head_dim {head_dim} is not a multiple of 8"
        )));
    }
    current_set()?
        .for_block_size(block_size)
        .ok_or_else(|| value_error(format!("block size {block_size} is not a multiple of 8")))
}

/// Checks whether attention serves these sizes on the kernel set in use.
#[pyfunction]
pub(super) fn check_attention(head_dim: usize, block_size: usize) -> PyResult<()> {
    attention_set(head_dim, block_size).map(|_| ())
}

/// Writes the step's keys and values into their blocks.
#[pyfunction]
pub(super) fn write_kv(
    py: Python<'_>,
    k: RowsOf,
    v: RowsOf,
    tokens: usize,
    kv: Kv,
    metadata: Metadata,
) -> PyResult<()> {
    let layer = layer_kv(kv)?;
    let width = layer.heads * layer.head_dim;
    check("write_kv: k", k, tokens, width)?;
    check("write_kv: v", v, tokens, width)?;
    // SAFETY: the caller's word.
    unsafe { batch(metadata)? }
        .check(tokens, &layer)
        .map_err(value_error)?;
    py.detach(|| {
        // SAFETY: sizes and the batch were checked; addresses are the caller's word.
        unsafe {
            let (kv, batch) = (layer_kv(kv)?, batch(metadata)?);
            crate::write_kv(WriteArgs {
                k: input(k),
                v: input(v),
                kv,
                batch,
            })
            .map_err(task_error)
        }
    })
}

/// Attends every token of the step. `q` is `((address, stride), heads, tokens)`.
#[pyfunction]
pub(super) fn attend(
    py: Python<'_>,
    q: (RowsOf, usize, usize),
    kv: Kv,
    metadata: Metadata,
    scale: (f32, Option<usize>),
    out: RowsOf,
) -> PyResult<()> {
    let (q, q_heads, tokens) = q;
    let layer = layer_kv(kv)?;
    let set = attention_set(layer.head_dim, layer.block_size)?;
    let whole = q_heads > 0 && q_heads.is_multiple_of(layer.heads);
    need(
        "attend: query heads are not a multiple of the key heads",
        whole,
    )?;
    check("attend: q", q, tokens, q_heads * layer.head_dim)?;
    check("attend: out", out, tokens, q_heads * layer.head_dim)?;
    need("attend: a window of no positions", scale.1 != Some(0))?;
    // SAFETY: the caller's word.
    unsafe { batch(metadata)? }
        .check(tokens, &layer)
        .map_err(value_error)?;
    py.detach(|| {
        // SAFETY: sizes and the batch were checked; addresses are the caller's word.
        unsafe {
            let args = AttendArgs {
                q: input(q),
                q_heads,
                kv: layer_kv(kv)?,
                batch: batch(metadata)?,
                scale: scale.0,
                window: scale.1.unwrap_or(usize::MAX),
                out: output(out),
            };
            crate::attend(set, args).map_err(task_error)
        }
    })
}

/// Copies the first tokens of blocks, in order; `copies` is `(address of int32 [C, 3], C)`.
#[pyfunction]
pub(super) fn copy_blocks(py: Python<'_>, kv: Kv, copies: (usize, usize)) -> PyResult<()> {
    let (address, count) = copies;
    layer_kv(kv)?;
    need("copy_blocks: a null array", count == 0 || address != 0)?;
    if count == 0 {
        return Ok(());
    }
    py.detach(|| {
        // SAFETY: each copy is checked before it is made; addresses are the caller's word.
        unsafe {
            let copies = std::slice::from_raw_parts(with_exposed_provenance(address), count);
            crate::copy_blocks(layer_kv(kv)?, copies).map_err(value_error)
        }
    })
}
