//! The Python module `headrace._kernels`: addresses and sizes in, nothing out.
//!
//! Tensors come as addresses, so that nothing here depends on torch. Rows come as `(address, stride)`,
//! the stride in floats. The caller (`headrace.ops.native`) vouches that addresses and sizes belong
//! together; what is cheap to check is checked here and raises `ValueError`. The GIL is released while a
//! kernel runs.

mod arguments;
mod attention;
mod products;
mod row_ops;
mod settings;

/// Native kernels of headrace.
#[pyo3::pymodule]
#[pyo3(name = "_kernels")]
mod module {
    #[pymodule_export]
    use super::attention::{attend, check_attention, copy_blocks, write_kv};
    #[pymodule_export]
    use super::products::{linear, pack_linear};
    #[pymodule_export]
    use super::row_ops::{argmax_logsumexp, non_finite, rms_norm, rotary, silu_mul};
    #[pymodule_export]
    use super::settings::{
        advise_large_pages, kernel_set, kernel_sets, panel_columns, set_kernel_set, set_threads,
        threads,
    };
}
