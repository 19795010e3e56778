//! The one error of this crate.

use std::path::{Path, PathBuf};

/// Why a checkpoint is not usable. `Display` is one line: the file, then what is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file could not be opened or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The file ends before something that it announces.
    #[error(
        "{}: file is truncated: {what} needs bytes up to {end}, the file has {file_bytes}",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The key, tensor or header part that does not fit.
        what: String,
        /// Where it would end, in bytes from the start of the file.
        end: u128,
        /// The file's length in bytes.
        file_bytes: u64,
    },
    /// The contents break the format's rules.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the key or tensor.
        problem: String,
    },
    /// A metadata or config key is missing.
    #[error("{}: key `{key}` is missing", path.display())]
    MissingKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A metadata or config key holds something unusable.
    #[error("{}: key `{key}` {problem}", path.display())]
    BadKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// "must be …" or "is …".
        problem: String,
    },
    /// A tensor that the config promises is not there.
    #[error("{}: tensor `{tensor}` is missing", path.display())]
    MissingTensor {
        /// The file, or the folder of shards.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A sound file that asks for what headrace cannot do.
    #[error("{}: {what} is not supported", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What it asks for, by name.
        what: String,
    },
}

impl CheckpointError {
    pub(crate) fn malformed(path: &Path, problem: impl Into<String>) -> Self {
        Self::Malformed {
            path: path.to_owned(),
            problem: problem.into(),
        }
    }

    pub(crate) fn bad_key(path: &Path, key: &str, problem: impl Into<String>) -> Self {
        Self::BadKey {
            path: path.to_owned(),
            key: key.to_owned(),
            problem: problem.into(),
        }
    }

    pub(crate) fn missing_key(path: &Path, key: &str) -> Self {
        Self::MissingKey {
            path: path.to_owned(),
            key: key.to_owned(),
        }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsupported {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}
