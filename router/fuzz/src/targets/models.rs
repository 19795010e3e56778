//! The tokenizers that targets share: byte-level, byte fallback and, where it is installed, the demo model's.

use headrace_text::Tokenizer;
use std::sync::{Arc, OnceLock};

#[path = "../../../dialect/tests/tiny_tokenizer/mod.rs"]
pub(super) mod tiny_tokenizer;

#[path = "../../../text/tests/support/mod.rs"]
mod support;

/// `tokenizer.json` of a tokenizer with byte fallback.
pub(super) const BYTE_FALLBACK: &[u8] =
    include_bytes!("../../../text/tests/golden/tiny_byte_fallback.json");

/// A tokenizer and what is special about it.
pub(super) struct Model {
    pub(super) tokenizer: Arc<Tokenizer>,
    /// A text of these bytes comes back from its ids as it was; `None`: none need.
    pub(super) kept_bytes: Option<[bool; 256]>,
}

impl Model {
    fn byte_level(tokenizer: Tokenizer) -> Self {
        let mut kept = [false; 256];
        for id in 0..tokenizer.vocab_size() {
            if let [byte] = tokenizer.token_bytes(id) {
                kept[usize::from(*byte)] = true;
            }
        }
        Self {
            tokenizer: Arc::new(tokenizer),
            kept_bytes: Some(kept),
        }
    }

    /// Whether the text must come back from its ids.
    pub(super) fn keeps(&self, text: &str) -> bool {
        self.kept_bytes
            .is_some_and(|kept| text.bytes().all(|byte| kept[usize::from(byte)]))
    }
}

/// All of them; the order is fixed, the demo model's is last.
pub(super) fn models() -> &'static [Model] {
    static MODELS: OnceLock<Vec<Model>> = OnceLock::new();
    MODELS.get_or_init(|| {
        let tiny = tiny_tokenizer::json().to_string();
        let mut models = vec![
            Model::byte_level(Tokenizer::from_bytes(tiny.as_bytes()).unwrap()),
            Model {
                tokenizer: Arc::new(Tokenizer::from_bytes(BYTE_FALLBACK).unwrap()),
                kept_bytes: None,
            },
        ];
        if let Some(path) = support::demo_gguf() {
            // Its vocabulary lacks some bytes that begin rare characters.
            models.push(Model::byte_level(Tokenizer::from_gguf(&path).unwrap()));
        }
        models
    })
}
