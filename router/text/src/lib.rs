//! Text in the router: ids ⇄ text, chat templates, stops.
//!
//! What it is: [`Tokenizer`] (from `tokenizer.json` or from GGUF metadata), [`Detokenizer`] (ids to text, token by
//! token), [`StopMatcher`] (stop strings over streamed text) and [`ChatTemplate`] (messages to a prompt).
//!
//! What it lacks on purpose: the scheduler, gRPC, HTTP and the wire types of any dialect.
//!
//! Invariants:
//! - The concatenated texts of a stream equal the whole text, for every split and every byte (`detokenizer`).
//! - A control token's text inside a system, user or tool content never becomes that token (`template`,
//!   `added_tokens`), and without such text the ids are those of `transformers`.
//! - Templates end: they have fuel, a recursion limit and a bound on all that they build (`template`).

mod added_tokens;
mod detokenizer;
mod error;
mod gguf;
mod infill;
mod pieces;
mod prompt;
mod stop;
mod template;
mod tokenizer;

pub use detokenizer::{Delta, Detokenizer, decode_with_special};
pub use error::{TemplateError, TextError};
pub use gguf::{GgufVocabulary, TokenKind, VocabularyModel};
pub use headrace_checkpoint::OneLine;
pub use infill::Infill;
pub use pieces::Piece;
pub use prompt::RenderedPrompt;
pub use stop::{StopMatcher, StopMode, StopStep};
pub use template::{ChatTemplate, RenderOptions, TemplateSources, ToolCallIds};
pub use tokenizer::{Encoding, SpecialText, Tokenizer, Wanted};
