//! Constraints on generated text: a JSON schema or a regex becomes a mask of allowed ids for every output position.
//!
//! What it is: [`GrammarCompiler`] (one a model; checks and compiles a [`GrammarSource`]), [`CompiledGrammar`] (shared
//! by every sequence of a request) and [`GrammarState`] (one a sequence: mask, accept, mask, …).
//!
//! What it lacks on purpose: HTTP, the wire types of any dialect, the scheduler.
//!
//! Invariants:
//! - A text that ends where its grammar is complete matches the grammar; special tokens are never part of it.
//! - Compiling is bounded in bytes, nesting, time and memory, and a mask in time and memory; what is over a bound ends
//!   in one line ([`GrammarError`], [`DeadEnd`]). A panic of the library is such an end too.
//! - No state is shared between sequences: what one of them does changes no other's masks.

mod cache;
mod compiler;
mod error;
mod mask;
mod pattern;
mod schema;
mod source;
mod state;
mod tokens;

pub use compiler::{CompiledGrammar, GrammarCompiler};
pub use error::{DeadEnd, GrammarError};
pub use mask::Mask;
pub use source::GrammarSource;
pub use state::GrammarState;
