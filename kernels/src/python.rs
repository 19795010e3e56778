//! The Python module `headrace._kernels`: addresses and sizes in, nothing out.
//!
//! Tensors come as addresses, so that nothing here depends on torch. Rows come as `(address, stride)`,
//! the stride in floats. The caller (`headrace.ops.native`) vouches that addresses and sizes belong
//! together; what is cheap to check is checked here and raises `ValueError`. The GIL is released while a
//! kernel runs.

use crate::{
    ArgmaxArgs, AttendArgs, Batch, KernelSet, LayerKv, LinearArgs, NonFiniteArgs, NormArgs,
    PackedShape, RotaryArgs, Rows, SiluMulArgs, TaskPanic, WriteArgs,
};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};

/// `(address, stride in floats)`.
type RowsOf = (usize, usize);
/// `(address, out_features, in_features, columns of a panel)`.
type Weight = (usize, usize, usize, usize);
/// `(keys, values, num_blocks, heads, head_dim, block_size)`.
type Kv = (usize, usize, usize, usize, usize, usize);
/// `(row_starts, context_lengths, block_tables, rows, table_width)`.
type Metadata = (usize, usize, usize, usize, usize);

fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of map_err")]
fn task_error(error: TaskPanic) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

fn current_set() -> PyResult<KernelSet> {
    KernelSet::current().map_err(value_error)
}

fn need(what: &str, holds: bool) -> PyResult<()> {
    if holds {
        Ok(())
    } else {
        Err(value_error(what))
    }
}

fn input((address, stride): RowsOf) -> Rows<*const f32> {
    Rows {
        start: with_exposed_provenance(address),
        stride,
    }
}

fn output((address, stride): RowsOf) -> Rows<*mut f32> {
    Rows {
        start: with_exposed_provenance_mut(address),
        stride,
    }
}

/// Checks rows of `length` floats each.
fn check(what: &str, (address, stride): RowsOf, rows: usize, length: usize) -> PyResult<()> {
    let holds = rows == 0 || (address != 0 && (rows == 1 || stride >= length));
    if holds {
        return Ok(());
    }
    Err(value_error(format!(
        "{what}: {rows} rows of {length} floats at {address:#x}, stride {stride}"
    )))
}

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

/// Kernel sets that this CPU has, best first.
#[pyfunction]
fn kernel_sets() -> Vec<&'static str> {
    KernelSet::available()
        .into_iter()
        .map(KernelSet::name)
        .collect()
}

/// The kernel set in use.
#[pyfunction]
fn kernel_set() -> PyResult<&'static str> {
    Ok(current_set()?.name())
}

/// Uses another kernel set from now on; weights packed before are refused.
#[pyfunction]
fn set_kernel_set(name: &str) -> PyResult<()> {
    KernelSet::force(KernelSet::from_name(name).map_err(value_error)?);
    Ok(())
}

/// Compute threads, the caller's included.
#[pyfunction]
fn threads() -> usize {
    crate::threads()
}

/// Sets the number of compute threads, the caller's included.
#[pyfunction]
fn set_threads(py: Python<'_>, threads: usize) -> PyResult<()> {
    need("set_threads: at least one thread", threads > 0)?;
    py.detach(|| crate::set_threads(threads))
        .map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Asks for large pages in memory that was not touched yet; a hint.
#[pyfunction]
fn advise_large_pages(address: usize, bytes: usize) -> PyResult<()> {
    need("advise_large_pages: a null address", address != 0)?;
    // SAFETY: the caller's word.
    unsafe { crate::advise_large_pages(with_exposed_provenance_mut(address), bytes) };
    Ok(())
}

/// Columns of a packed panel of the kernel set in use.
#[pyfunction]
fn panel_columns() -> PyResult<usize> {
    Ok(current_set()?.panel_columns())
}

/// Checks whether attention serves these sizes on the kernel set in use.
#[pyfunction]
fn check_attention(head_dim: usize, block_size: usize) -> PyResult<()> {
    attention_set(head_dim, block_size).map(|_| ())
}

/// Packs a contiguous weight `[N, K]` into panels.
#[pyfunction]
fn pack_linear(
    py: Python<'_>,
    weight: usize,
    packed: Weight,
    packed_floats: usize,
) -> PyResult<()> {
    let (target, out_features, in_features, columns) = packed;
    need("pack_linear: a null tensor", weight != 0 && target != 0)?;
    need("pack_linear: panels of no columns", columns > 0)?;
    let shape = PackedShape {
        out_features,
        in_features,
        columns,
    };
    need(
        "pack_linear: the packed tensor has the wrong size",
        packed_floats == shape.floats(),
    )?;
    py.detach(|| {
        // SAFETY: sizes were checked; addresses are the caller's word.
        unsafe {
            crate::pack(
                with_exposed_provenance(weight),
                with_exposed_provenance_mut(target),
                shape,
            )
        }
    })
    .map_err(task_error)
}

/// `y = x w^T + bias`.
#[pyfunction]
fn linear(
    py: Python<'_>,
    x: RowsOf,
    rows: usize,
    weight: Weight,
    bias: Option<usize>,
    y: RowsOf,
) -> PyResult<()> {
    let (packed, out_features, in_features, columns) = weight;
    let set = current_set()?;
    check("linear: x", x, rows, in_features)?;
    check("linear: y", y, rows, out_features)?;
    need(
        "linear: a null weight or bias",
        packed != 0 && bias != Some(0),
    )?;
    need(
        "linear: packed for another kernel set",
        columns == set.panel_columns(),
    )?;
    py.detach(|| {
        let args = LinearArgs {
            x: input(x),
            weight: with_exposed_provenance(packed),
            shape: PackedShape {
                out_features,
                in_features,
                columns,
            },
            bias: bias.map_or(null(), with_exposed_provenance),
            y: output(y),
            rows,
        };
        // SAFETY: sizes were checked; addresses are the caller's word.
        unsafe { crate::linear(set, args) }
    })
    .map_err(task_error)
}

/// RMS norm of `x`, or of `x + residual`, which then goes to `sum`.
#[pyfunction]
fn rms_norm(
    py: Python<'_>,
    x: RowsOf,
    residual: Option<(RowsOf, RowsOf)>,
    size: (usize, usize),
    weight: (usize, f32),
    y: RowsOf,
) -> PyResult<()> {
    let (rows, hidden) = size;
    let set = current_set()?;
    check("rms_norm: x", x, rows, hidden)?;
    check("rms_norm: y", y, rows, hidden)?;
    if let Some((residual, sum)) = residual {
        check("rms_norm: residual", residual, rows, hidden)?;
        check("rms_norm: sum", sum, rows, hidden)?;
    }
    need("rms_norm: a null weight", weight.0 != 0)?;
    py.detach(|| {
        let args = NormArgs {
            x: input(x),
            residual: residual.map_or(
                Rows {
                    start: null(),
                    stride: 0,
                },
                |pair| input(pair.0),
            ),
            weight: with_exposed_provenance(weight.0),
            eps: weight.1,
            sum: residual.map_or(
                Rows {
                    start: null_mut(),
                    stride: 0,
                },
                |pair| output(pair.1),
            ),
            y: output(y),
            rows,
            hidden,
        };
        // SAFETY: sizes were checked; addresses are the caller's word.
        unsafe { crate::rms_norm(set, args) }
    })
    .map_err(task_error)
}

/// Rotates queries and keys in place. `tables` is `(cos, sin, positions in the tables, R / 2)`.
#[pyfunction]
fn rotary(
    py: Python<'_>,
    q: (RowsOf, usize),
    k: (RowsOf, usize),
    head_dim: usize,
    tables: (usize, usize, usize, usize),
    positions: (usize, usize),
) -> PyResult<()> {
    let set = current_set()?;
    let (cos, sin, table_positions, half) = tables;
    let (positions, tokens) = positions;
    check("rotary: q", q.0, tokens, q.1 * head_dim)?;
    check("rotary: k", k.0, tokens, k.1 * head_dim)?;
    need("rotary: a null table or no positions", cos != 0 && sin != 0)?;
    need(
        "rotary: more rotary dimensions than the head has",
        2 * half <= head_dim,
    )?;
    if tokens == 0 {
        return Ok(());
    }
    need("rotary: no positions", positions != 0)?;
    let range = {
        // SAFETY: the caller's word.
        let all = unsafe {
            std::slice::from_raw_parts(with_exposed_provenance::<i64>(positions), tokens)
        };
        all.iter()
            .all(|p| usize::try_from(*p).is_ok_and(|p| p < table_positions))
    };
    need("rotary: a position outside the tables", range)?;
    py.detach(|| {
        let args = RotaryArgs {
            q: output(q.0),
            q_heads: q.1,
            k: output(k.0),
            k_heads: k.1,
            head_dim,
            cos: with_exposed_provenance(cos),
            sin: with_exposed_provenance(sin),
            half,
            positions: with_exposed_provenance(positions),
            tokens,
        };
        // SAFETY: sizes and positions were checked; addresses are the caller's word.
        unsafe { crate::rotary(set, args) }
    })
    .map_err(task_error)
}

/// `y = silu(gate) * up`; `size` is `(rows, I)`.
#[pyfunction]
fn silu_mul(py: Python<'_>, gate_up: RowsOf, size: (usize, usize), y: RowsOf) -> PyResult<()> {
    let set = current_set()?;
    let (rows, size) = size;
    check("silu_mul: gate_up", gate_up, rows, 2 * size)?;
    check("silu_mul: y", y, rows, size)?;
    py.detach(|| {
        let args = SiluMulArgs {
            gate_up: input(gate_up),
            y: output(y),
            rows,
            size,
        };
        // SAFETY: sizes were checked; addresses are the caller's word.
        unsafe { crate::silu_mul(set, args) }
    })
    .map_err(task_error)
}

/// Writes 1 to the flag (a byte) of each row that holds a NaN or an infinity, else 0.
#[pyfunction]
fn non_finite(py: Python<'_>, x: RowsOf, size: (usize, usize), flags: usize) -> PyResult<()> {
    let set = current_set()?;
    let (rows, size) = size;
    check("non_finite: x", x, rows, size)?;
    need("non_finite: no flags", rows == 0 || flags != 0)?;
    py.detach(|| {
        let flags = with_exposed_provenance_mut(flags);
        let args = NonFiniteArgs {
            x: input(x),
            flags,
            rows,
            size,
        };
        // SAFETY: sizes were checked; addresses are the caller's word.
        unsafe { crate::non_finite(set, args) }
    })
    .map_err(task_error)
}

/// Index of the maximum (int64) and logsumexp of each row.
#[pyfunction]
fn argmax_logsumexp(
    py: Python<'_>,
    logits: RowsOf,
    size: (usize, usize),
    index: usize,
    logsumexp: usize,
) -> PyResult<()> {
    let set = current_set()?;
    let (rows, size) = size;
    check("argmax_logsumexp: logits", logits, rows, size)?;
    need("argmax_logsumexp: empty rows", size > 0)?;
    need(
        "argmax_logsumexp: no output",
        rows == 0 || (index != 0 && logsumexp != 0),
    )?;
    py.detach(|| {
        let args = ArgmaxArgs {
            logits: input(logits),
            index: with_exposed_provenance_mut(index),
            logsumexp: with_exposed_provenance_mut(logsumexp),
            rows,
            size,
        };
        // SAFETY: sizes were checked; addresses are the caller's word.
        unsafe { crate::argmax_logsumexp(set, args) }
    })
    .map_err(task_error)
}

/// Writes the step's keys and values into their blocks.
#[pyfunction]
fn write_kv(
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
fn attend(
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
fn copy_blocks(py: Python<'_>, kv: Kv, copies: (usize, usize)) -> PyResult<()> {
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

/// Native kernels of headrace.
#[pymodule]
#[pyo3(name = "_kernels")]
mod module {
    #[pymodule_export]
    use super::{
        advise_large_pages, argmax_logsumexp, attend, check_attention, copy_blocks, kernel_set,
        kernel_sets, linear, non_finite, pack_linear, panel_columns, rms_norm, rotary,
        set_kernel_set, set_threads, silu_mul, threads, write_kv,
    };
}
