//! What can go wrong. Every message is one line that begins with the file.

use headrace_checkpoint::OneLine;
use std::path::PathBuf;

/// Why a vocabulary was not converted.
#[derive(Debug, thiserror::Error)]
pub enum VocabularyError {
    /// The file could not be read.
    #[error("{}: {}", path.display(), OneLine(reason))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// The file cannot be converted.
    #[error("{}: cannot be converted to tokenizer.json: {}", path.display(), OneLine(reason))]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong or unknown.
        reason: String,
    },
}
