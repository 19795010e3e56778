//! What can go wrong between text and ids. Every message is one line that names the file, key or value.

use headrace_checkpoint::OneLine;
use std::path::PathBuf;

/// Failure to load a tokenizer, to encode a text or to take a stop string.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// A file could not be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// A file was read and does not hold what it should.
    #[error("{}: {}", path.display(), OneLine(reason))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Which key or value, and why.
        reason: String,
    },
    /// The tokenizer asks for something that headrace does not do.
    #[error("unsupported tokenizer: {}", OneLine(_0))]
    Unsupported(String),
    /// The tokenizer's data contradicts itself.
    #[error("invalid tokenizer: {}", OneLine(_0))]
    Invalid(String),
    /// A text could not be turned into ids.
    #[error("tokenizer error {}", OneLine(_0))]
    Encode(String),
    /// A stop string that would match everywhere.
    #[error("stop sequence {index} is empty")]
    EmptyStop {
        /// Its place in the request.
        index: usize,
    },
}

impl TextError {
    /// Names the file that an error without one came from.
    #[must_use]
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        match self {
            Self::Unsupported(_) | Self::Invalid(_) => Self::Malformed {
                path: path.to_path_buf(),
                reason: self.to_string(),
            },
            Self::Read { .. }
            | Self::Malformed { .. }
            | Self::Encode(_)
            | Self::EmptyStop { .. } => self,
        }
    }
}

/// Failure to load or render a chat template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The model ships no template.
    #[error("the model has no chat template")]
    Missing,
    /// A file could not be read or does not hold a template.
    #[error("{path}: {reason}")]
    Source {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The template does not compile.
    #[error("the chat template does not compile: {0}")]
    Compile(String),
    /// The template called `raise_exception`: its own words about these messages.
    #[error("{0}")]
    Raised(String),
    /// The template failed on these messages.
    #[error("the chat template failed: {0}")]
    Render(String),
    /// The template used more instructions than a conversation can need.
    #[error("the chat template ran for too long and was stopped")]
    OutOfFuel,
    /// The template wrote more than a prompt can hold.
    #[error("the chat template wrote more than {limit} bytes and was stopped")]
    TooLong {
        /// Bytes.
        limit: usize,
    },
    /// The template builds more than what is rendered beside others may.
    #[error("the chat template needs up to {bytes} bytes of memory")]
    NeedsMemory {
        /// What it may take when it is rendered by itself.
        bytes: usize,
    },
    /// The request's messages or options do not fit together.
    #[error("{0}")]
    Messages(String),
}
