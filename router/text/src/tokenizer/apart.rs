//! Models that make an added token out of its letters: a unigram model knows its control pieces as any other, and some
//! BPE models take a word that is a token as that token. Where such letters are to stay text, the token is broken apart.

use rustc_hash::FxHashMap;
use tokenizers::{Model, Token, Tokenizer as Library};

/// The added tokens that a model makes by itself, and their texts.
#[derive(Debug)]
pub(super) struct MadeByModel(FxHashMap<u32, String>);

impl MadeByModel {
    pub(super) fn new(library: &Library) -> Self {
        let made = library.get_added_tokens_decoder().into_iter();
        let made = made.filter(|(id, token)| {
            // Runs of white space carry no control.
            let is_space = token.content.chars().all(char::is_whitespace);
            let makes = |tokens: Vec<Token>| tokens.iter().any(|made| made.id == *id);
            !is_space
                && library
                    .get_model()
                    .tokenize(&token.content)
                    .is_ok_and(makes)
        });
        Self(made.map(|(id, token)| (id, token.content)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The model's tokens of a text that holds no added token.
    pub(super) fn tokenize(&self, library: &Library, text: &str) -> tokenizers::Result<Vec<Token>> {
        let mut out = Vec::new();
        for token in library.get_model().tokenize(text)? {
            let first = token.value.chars().next().map_or(0, char::len_utf8);
            // What is unknown has an id of its own with any text.
            if self.0.get(&token.id) != Some(&token.value) || first == token.value.len() {
                out.push(token);
                continue;
            }
            let (head, tail) = token.value.split_at(first);
            for (part, shift) in [(head, 0), (tail, first)] {
                let start = token.offsets.0 + shift;
                out.extend(self.tokenize(library, part)?.into_iter().map(|token| {
                    let (begin, end) = token.offsets;
                    Token::new(token.id, token.value, (start + begin, start + end))
                }));
            }
        }
        Ok(out)
    }
}
