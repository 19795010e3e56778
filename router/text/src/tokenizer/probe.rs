//! The library panics on some files, and takes others whose parts do not fit together and panics on the first text.
//! Here both are errors of the file.

use super::{Library, SpecialText, Tokenizer};
use crate::error::TextError;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Some words, some space, some letters that most vocabularies lack, and nothing: what trims or joins has its turn.
const TEXTS: [&str; 2] = [" a b  1\n\u{e9}\u{65e5} ", ""];

/// The library panics on some files that are no tokenizers: here that is an error like the others.
pub(super) fn read_library(json: &[u8]) -> Result<Library, TextError> {
    let invalid = |error: &dyn std::fmt::Display| TextError::Invalid(error.to_string());
    // Most of such files are not even JSON: their errors name a line, and nothing panics.
    serde_json::from_slice::<serde::de::IgnoredAny>(json).map_err(|error| invalid(&error))?;
    catch_unwind(|| Library::from_bytes(json))
        .map_err(|_| invalid(&"the tokenizer library panicked on it"))?
        .map_err(|error| invalid(&error))
}

impl Tokenizer {
    /// Refuses what would panic on every text. A text that cannot be encoded is no such fault: it fails its request.
    pub(super) fn probe(&self) -> Result<(), TextError> {
        for text in TEXTS {
            for special in [SpecialText::Parse, SpecialText::Plain] {
                self.probe_text(text, special)?;
            }
        }
        Ok(())
    }

    fn probe_text(&self, text: &str, special: SpecialText) -> Result<(), TextError> {
        // Nothing of it is used after a panic, so nothing half-done is seen.
        let encode = AssertUnwindSafe(|| self.encode_unfinished(text, special));
        let Ok(encoding) = catch_unwind(encode)
            .map_err(|_| TextError::Invalid("the library panicked on a short text".to_owned()))?
        else {
            return Ok(());
        };
        let finish = AssertUnwindSafe(|| self.finish(encoding, true).is_ok());
        catch_unwind(finish).map(drop).map_err(|_| {
            TextError::Invalid(
                "`post_processor` asks for a token or a text that is not there: the library panicked on it".to_owned(),
            )
        })
    }
}
