//! headrace-fake-worker: the worker's side of the step protocol with a made-up model, scripted timing and scripted faults.
//!
//! It holds slots, block tables and KV like a real worker, and refuses every misuse of the protocol by ending the stream
//! with words. Its KV is one number a token, folded from the tokens before it *through the block tables*, and the
//! next id is a function of that number: a wrong id, a lost prefix, a block used twice or copied wrongly changes
//! what comes out. [`expected_output`] and [`expected_prompt_logprobs`] say what must come out.

mod masks;
mod model;
mod rank;
mod rules;
mod sampling;
mod script;
mod server;
mod service;
mod step_stream;

pub use model::{expected_output, expected_sampled_output};
pub use sampling::expected_prompt_logprobs;
pub use script::{Fault, FaultKind, LiteralOutputs, Script, Trigger};
pub use server::{FakeWorker, ServeError, WorkerOptions, serve_until_dead};
