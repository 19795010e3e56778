//! `/v1/chat/completions` and `/v1/completions`, and the tokenizing routes that share their fields.

mod chat_reply;
mod chat_request;
mod common;
mod completion_prompts;
mod completion_reply;
mod completion_request;
mod detokenize;
mod logprobs;
mod message_calls;
mod messages;
mod scoring;
mod stream;
mod template_fields;
mod text_fields;
mod token_rules;
mod tokenize;

pub use chat_reply::{ChatShown, ChatStream, chat_completion};
pub use chat_request::{ChatCall, read_chat};
pub use common::{StreamShape, check_model};
pub use completion_prompts::fills_no_gaps;
pub use completion_reply::{CompletionShown, CompletionStream, completion};
pub use completion_request::{CompletionCall, read_completion};
pub use detokenize::{DetokenizeCall, read_detokenize};
pub use scoring::Scoring;
pub use stream::{Identity, usage};
pub use tokenize::{TokenizeCall, read_chat_tokenize, read_tokenize};
