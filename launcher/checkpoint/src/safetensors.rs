//! safetensors headers, one file or several shards. Rules: the format's README and the reference crate's
//! `validate` (huggingface/safetensors).

mod header;
mod shards;

pub use header::{Dtype, SafetensorsFile, SafetensorsTensor};
pub use shards::SafetensorsModel;
