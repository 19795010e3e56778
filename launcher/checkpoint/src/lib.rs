//! Checkpoint headers, read and checked in Rust before any Python starts.
//!
//! What it is: readers of GGUF and safetensors headers ([`gguf`], [`safetensors`]), configs in Hugging Face's
//! keys whatever the format ([`hf_config`]), and the check that a checkpoint's tensors are those which its config
//! promises ([`layout`]).
//!
//! What it lacks on purpose: tensor data (the workers map that) and text (the router's).
//!
//! Every length in a file is untrusted: it is compared with what is left of the file, by checked arithmetic,
//! before anything of that size is allocated. Errors are one line that names the file and the key or tensor.

mod error;
pub mod gguf;
pub mod hf_config;
pub mod layout;
pub mod safetensors;

pub use error::{CheckpointError, OneLine};
