//! Checkpoint headers, read and checked in Rust before any Python starts.
//!
//! Every length in a file is untrusted: it is compared with what is left of the file, by checked arithmetic,
//! before anything of that size is allocated. Errors are one line that names the file and the key or tensor.

mod error;
pub mod gguf;

pub use error::CheckpointError;
