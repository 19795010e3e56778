//! The one error of this crate.

use std::fmt::{self, Display, Formatter, Write};
use std::path::{Path, PathBuf};

/// Characters that an error shows of a text at most, where the format names no precision.
const SHOWN: usize = 300;

/// A text that a file or a client may have had a hand in, as a part of one line: control characters are escaped, and
/// what is too long is cut: after 300 characters, or after 32 with `{:.32}`.
#[derive(Clone, Copy, Debug)]
pub struct OneLine<'a>(pub &'a str);

impl Display for OneLine<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let shown = formatter.precision().unwrap_or(SHOWN);
        for (index, character) in self.0.chars().enumerate() {
            if index == shown {
                return formatter.write_char('…');
            }
            if character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') {
                write!(formatter, "{}", character.escape_default())?;
            } else {
                formatter.write_char(character)?;
            }
        }
        Ok(())
    }
}

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
        "{}: file is truncated: {} needs bytes up to {end}, the file has {file_bytes}",
        path.display(), OneLine(what)
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
    #[error("{}: {}", path.display(), OneLine(problem))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the key or tensor.
        problem: String,
    },
    /// A metadata or config key is missing.
    #[error("{}: key `{}` is missing", path.display(), OneLine(key))]
    MissingKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A metadata or config key holds something unusable.
    #[error("{}: key `{}` {}", path.display(), OneLine(key), OneLine(problem))]
    BadKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// "must be …" or "is …".
        problem: String,
    },
    /// A tensor that the config promises is not there.
    #[error("{}: tensor `{}` is missing", path.display(), OneLine(tensor))]
    MissingTensor {
        /// The file, or the folder of shards.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A sound file that asks for what headrace cannot do.
    #[error("{}: {} is not supported", path.display(), OneLine(what))]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by fuzzing: names of tensors and keys are the file's own text.
    #[test]
    fn what_a_file_says_stays_one_short_line() {
        let path = Path::new("model.gguf");
        let hostile = format!("a\nERROR b\u{1b}[2J{}", "x".repeat(10_000));
        let errors = [
            CheckpointError::malformed(path, format!("tensor `{hostile}` is listed twice")),
            CheckpointError::bad_key(path, &hostile, format!("is {hostile}")),
            CheckpointError::missing_key(path, &hostile),
            CheckpointError::unsupported(path, hostile.as_str()),
            CheckpointError::MissingTensor {
                path: path.to_owned(),
                tensor: hostile.clone(),
            },
            CheckpointError::Truncated {
                path: path.to_owned(),
                what: hostile.clone(),
                end: 2,
                file_bytes: 1,
            },
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.starts_with("model.gguf: "), "{text}");
            assert!(text.contains("a\\nERROR b\\u{1b}[2J"), "{text}");
            assert!(
                !text.contains(char::is_control) && text.len() < 1000,
                "{text}"
            );
        }
    }
}
