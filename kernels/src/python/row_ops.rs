//! Row-wise ops.

use super::arguments::{RowsOf, check, current_set, input, need, output, task_error};
use crate::{ArgmaxArgs, NonFiniteArgs, NormArgs, RotaryArgs, Rows, SiluMulArgs};
use pyo3::prelude::*;
use std::ptr::{null, null_mut, with_exposed_provenance, with_exposed_provenance_mut};

/// RMS norm of `x`, or of `x + residual`, which then goes to `sum`.
#[pyfunction]
pub(super) fn rms_norm(
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
pub(super) fn rotary(
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
pub(super) fn silu_mul(
    py: Python<'_>,
    gate_up: RowsOf,
    size: (usize, usize),
    y: RowsOf,
) -> PyResult<()> {
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
pub(super) fn non_finite(
    py: Python<'_>,
    x: RowsOf,
    size: (usize, usize),
    flags: usize,
) -> PyResult<()> {
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
pub(super) fn argmax_logsumexp(
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
