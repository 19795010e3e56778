//! Kernel sets, threads and pages.

use super::arguments::{current_set, need, value_error};
use crate::KernelSet;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::ptr::with_exposed_provenance_mut;

/// Kernel sets that this CPU has, best first.
#[pyfunction]
pub(super) fn kernel_sets() -> Vec<&'static str> {
    KernelSet::available()
        .into_iter()
        .map(KernelSet::name)
        .collect()
}

/// The kernel set in use.
#[pyfunction]
pub(super) fn kernel_set() -> PyResult<&'static str> {
    Ok(current_set()?.name())
}

/// Uses another kernel set from now on; weights packed before are refused.
#[pyfunction]
pub(super) fn set_kernel_set(name: &str) -> PyResult<()> {
    KernelSet::force(KernelSet::from_name(name).map_err(value_error)?);
    Ok(())
}

/// Compute threads, the caller's included.
#[pyfunction]
pub(super) fn threads() -> usize {
    crate::threads()
}

/// Sets the number of compute threads, the caller's included.
#[pyfunction]
pub(super) fn set_threads(py: Python<'_>, threads: usize) -> PyResult<()> {
    need("set_threads: at least one thread", threads > 0)?;
    py.detach(|| crate::set_threads(threads))
        .map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Asks for large pages in memory that was not touched yet; a hint.
#[pyfunction]
pub(super) fn advise_large_pages(address: usize, bytes: usize) -> PyResult<()> {
    need("advise_large_pages: a null address", address != 0)?;
    // SAFETY: the caller's word.
    unsafe { crate::advise_large_pages(with_exposed_provenance_mut(address), bytes) };
    Ok(())
}

/// Columns of a packed panel of the kernel set in use.
#[pyfunction]
pub(super) fn panel_columns() -> PyResult<usize> {
    Ok(current_set()?.panel_columns())
}
