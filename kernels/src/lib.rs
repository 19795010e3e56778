//! fp32 CPU kernels of the headrace workers, and the Python module `headrace._kernels` over them.
//!
//! The promise of every kernel: an output row is computed in one fixed order, whatever the number of
//! rows, chunk bounds, cache hits and threads, so its bits are always the same on one kernel set. Kernel
//! sets (AVX-512F, AVX2 with FMA, plain Rust) are chosen at run time.

mod activation;
mod attention;
mod kernel_set;
mod kv_cache;
mod linear;
mod norm;
mod pages;
mod python;
mod rotary;
mod row_reductions;
mod rows;
mod simd;
mod threads;

pub use activation::{SiluMulArgs, silu_mul};
pub use attention::{AttendArgs, attend};
pub use kernel_set::{KERNEL_SET_VARIABLE, KernelSet, UnavailableSet};
pub use kv_cache::{Batch, BatchError, LayerKv, WriteArgs, copy_blocks, write_kv};
pub use linear::{LinearArgs, PackedShape, linear, pack};
pub use norm::{NormArgs, rms_norm};
pub use pages::advise_large_pages;
pub use rotary::{RotaryArgs, rotary};
pub use row_reductions::{ArgmaxArgs, NonFiniteArgs, argmax_logsumexp, non_finite};
pub use rows::Rows;
pub use threads::{TaskPanic, set_threads, threads};
