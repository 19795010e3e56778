//! The vocabulary as the library wants it: a trie of each id's bytes.

use headrace_text::Tokenizer;
use std::sync::Arc;
use toktrie::{INVALID_TOKEN, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv};

/// The trie alone. Nothing is ever tokenised: text that a grammar forces is left to the model to spell, so that
/// every way to write it stays open (the ids of what a model would write itself do not change).
struct Vocabulary {
    trie: TokTrie,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.trie.greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

/// The ids below `vocab_size`. Special tokens, ends of sequence and ids without a text are no text.
pub(crate) fn environment(tokenizer: &Tokenizer, eos_ids: &[TokenId], vocab_size: u32) -> TokEnv {
    let words = (0..vocab_size)
        .map(|id| {
            if id >= tokenizer.vocab_size() || tokenizer.is_special(id) || eos_ids.contains(&id) {
                return Vec::new();
            }
            match tokenizer.token_bytes(id) {
                [] => Vec::new(),
                bytes => [tokenizer.separator(), bytes].concat(),
            }
        })
        .collect();
    from_words(words, eos_ids)
}

/// A word for every id; an empty one is no text.
pub(crate) fn from_words(mut words: Vec<Vec<u8>>, eos_ids: &[TokenId]) -> TokEnv {
    for word in &mut words {
        // The library's own mark. No character of UTF-8 starts with it.
        if word.first() == Some(&TokTrie::SPECIAL_TOKEN_MARKER) || word.len() > LONGEST_TOKEN {
            word.clear();
        }
    }
    let vocab_size = u32::try_from(words.len()).unwrap_or(u32::MAX);
    let trie = TokTrie::from(&TokRxInfo::new(vocab_size, INVALID_TOKEN), &words);
    let trie = if eos_ids.is_empty() {
        trie
    } else {
        trie.with_eos_tokens(eos_ids)
    };
    Arc::new(Vocabulary { trie })
}

/// Bytes; the trie holds none that is longer.
const LONGEST_TOKEN: usize = 1000;
