//! How few ids a text may become, known without encoding it.
//!
//! In a byte-level vocabulary ids stand for bytes, and nothing on the way to them drops any: so a text has at least as
//! many ids as its length over the longest token's. Where something may shorten the text (a normaliser, an added token that
//! swallows the white space around it, a pre-tokeniser that removes) there is no such bound.

use crate::pieces::PieceTable;
use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior;
use tokenizers::{DecoderWrapper, Model, ModelWrapper, PreTokenizerWrapper, Tokenizer as Library};

/// The bound of one tokenizer.
#[derive(Debug)]
pub(super) struct FewestTokens {
    /// Bytes that the model has a token for. It drops the others, so that they do not count.
    is_counted: [bool; 256],
    /// Bytes of the longest token.
    longest: usize,
}

impl FewestTokens {
    /// The bound, if this tokenizer has one.
    pub(super) fn new(library: &Library, pieces: &PieceTable) -> Option<Self> {
        let ModelWrapper::BPE(model) = library.get_model() else {
            return None;
        };
        let swallows = library
            .get_added_tokens_decoder()
            .values()
            .any(|token| token.lstrip || token.rstrip);
        let keeps_bytes = library.get_normalizer().is_none()
            && library.get_pre_tokenizer().is_some_and(is_byte_level)
            && matches!(library.get_decoder(), Some(DecoderWrapper::ByteLevel(_)))
            && model.end_of_word_suffix.is_none()
            && model.continuing_subword_prefix.is_none()
            && !swallows;
        if !keeps_bytes {
            return None;
        }
        let mut bound = Self {
            is_counted: [false; 256],
            longest: 0,
        };
        for id in 0..u32::try_from(pieces.len()).ok()? {
            let bytes = pieces.bytes(id);
            bound.longest = bound.longest.max(bytes.len());
            if let [byte] = bytes
                && model.id_to_token(id).is_some()
            {
                bound.is_counted[usize::from(*byte)] = true;
            }
        }
        (bound.longest > 0).then_some(bound)
    }

    /// A number of ids that the text's encoding does not fall short of.
    pub(super) fn of(&self, text: &str) -> usize {
        text.bytes()
            .filter(|byte| self.is_counted[usize::from(*byte)])
            .count()
            .div_ceil(self.longest)
    }
}

/// Whether the last step maps bytes to letters, and no step before it drops anything.
fn is_byte_level(pre_tokenizer: &PreTokenizerWrapper) -> bool {
    match pre_tokenizer {
        PreTokenizerWrapper::ByteLevel(_) => true,
        PreTokenizerWrapper::Sequence(sequence) => {
            let Some((last, before)) = sequence.as_ref().split_last() else {
                return false;
            };
            is_byte_level(last)
                && before.iter().all(|step| match step {
                    PreTokenizerWrapper::Split(split) => {
                        !matches!(split.behavior, SplitDelimiterBehavior::Removed)
                    }
                    PreTokenizerWrapper::Digits(_) => true,
                    _ => false,
                })
        }
        _ => false,
    }
}
