//! A rendered chat prompt: the text, and where in it an added token's letters are only letters.

use std::ops::Range;

/// What a chat template made of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenderedPrompt {
    /// What the model reads.
    pub text: String,
    /// Byte ranges of `text`, sorted and disjoint: characters of contents with which an added token could start or
    /// end. An occurrence of an added token's text that starts or ends in one of them is encoded as text.
    pub(crate) content_marks: Vec<Range<usize>>,
}

impl RenderedPrompt {
    /// A prompt in which every added token's text is that token (the caller wrote all of it).
    pub fn trusted(text: String) -> Self {
        Self {
            text,
            content_marks: Vec::new(),
        }
    }
}
