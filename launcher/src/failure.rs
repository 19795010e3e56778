//! Why the launcher ends badly: one line and an exit code.

use headrace_checkpoint::CheckpointError;
use std::fmt::{Display, Formatter};

/// What is printed last and returned to the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    line: String,
    code: u8,
}

impl Failure {
    /// Something could not start or went away: exit code 1.
    pub(crate) fn new(line: impl AsRef<str>) -> Self {
        Self {
            line: one_line(line.as_ref()),
            code: 1,
        }
    }

    /// A flag or variable is wrong: exit code 2, as clap's own.
    pub(crate) fn usage(line: impl AsRef<str>) -> Self {
        Self {
            line: one_line(line.as_ref()),
            code: 2,
        }
    }

    /// The same end in other words.
    pub(crate) fn in_words(&self, line: impl AsRef<str>) -> Self {
        Self {
            line: one_line(line.as_ref()),
            code: self.code,
        }
    }

    /// For the shell.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl Display for Failure {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.line)
    }
}

impl From<CheckpointError> for Failure {
    fn from(error: CheckpointError) -> Self {
        Self::new(error.to_string())
    }
}

/// Whoever wrote the message, it stays on one line.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    words.join(" ")
}
