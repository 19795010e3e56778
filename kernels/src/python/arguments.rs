//! Rows as Python hands them over, checks and errors.

use crate::{KernelSet, Rows, TaskPanic};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// `(address, stride in floats)`.
pub(super) type RowsOf = (usize, usize);

pub(super) fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "the signature of map_err")]
pub(super) fn task_error(error: TaskPanic) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

pub(super) fn current_set() -> PyResult<KernelSet> {
    KernelSet::current().map_err(value_error)
}

pub(super) fn need(what: &str, holds: bool) -> PyResult<()> {
    if holds {
        Ok(())
    } else {
        Err(value_error(what))
    }
}

pub(super) fn input((address, stride): RowsOf) -> Rows<*const f32> {
    Rows {
        start: with_exposed_provenance(address),
        stride,
    }
}

pub(super) fn output((address, stride): RowsOf) -> Rows<*mut f32> {
    Rows {
        start: with_exposed_provenance_mut(address),
        stride,
    }
}

/// Checks rows of `length` floats each.
pub(super) fn check(
    what: &str,
    (address, stride): RowsOf,
    rows: usize,
    length: usize,
) -> PyResult<()> {
    let holds = rows == 0 || (address != 0 && (rows == 1 || stride >= length));
    if holds {
        return Ok(());
    }
    Err(value_error(format!(
        "{what}: {rows} rows of {length} floats at {address:#x}, stride {stride}"
    )))
}
