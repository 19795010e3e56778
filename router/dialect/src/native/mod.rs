//! TGI's own routes: `/`, `/generate`, `/generate_stream`.

mod reply;
mod request;

pub(crate) use request::{read_parameters, read_prompts};

pub use reply::{NativeOutput, NativeStream, response};
pub use request::{NativeRequest, NativeRoute, read_generate};
