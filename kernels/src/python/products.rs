//! Packing and products.

use super::arguments::{RowsOf, check, current_set, input, need, output, task_error};
use crate::{LinearArgs, PackedShape};
use pyo3::prelude::*;
use std::ptr::{null, with_exposed_provenance, with_exposed_provenance_mut};

/// `(address, out_features, in_features, columns of a panel)`.
type Weight = (usize, usize, usize, usize);

/// Packs a contiguous weight `[N, K]` into panels.
#[pyfunction]
pub(super) fn pack_linear(
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
pub(super) fn linear(
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
