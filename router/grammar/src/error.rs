//! What can be wrong with a grammar, in the client's words: what they hold of a client's text is escaped and cut.

use headrace_text::OneLine;

/// Why a grammar was refused. One line, for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// Longer than a source may be.
    #[error("the {what} is {bytes} bytes long, at most {limit} are allowed")]
    TooLong {
        /// `schema`, `regex` or `whitespace_pattern`.
        what: &'static str,
        /// Its length.
        bytes: usize,
        /// The bound.
        limit: usize,
    },
    /// Nested deeper, or with more parts, than a source may be.
    #[error("the {what} has {count} {of}, at most {limit} are allowed")]
    TooLarge {
        /// `schema` or `regex`.
        what: &'static str,
        /// What is counted.
        of: &'static str,
        /// How many there are, counting no further than was needed.
        count: usize,
        /// The bound.
        limit: usize,
    },
    /// A keyword that cannot be enforced.
    #[error(
        "the keyword `{:.100}` at {:.200} is not supported",
        OneLine(keyword),
        OneLine(pointer)
    )]
    Keyword {
        /// The keyword.
        keyword: String,
        /// JSON pointer of the schema that holds it, as a fragment.
        pointer: String,
    },
    /// A part of the schema that is no schema.
    #[error("{}, at {:.200}", OneLine(what), OneLine(pointer))]
    Schema {
        /// What is wrong.
        what: String,
        /// JSON pointer of the part, as a fragment.
        pointer: String,
    },
    /// A pattern that does not parse or holds what cannot be enforced.
    #[error("the {what} is not valid: {}", OneLine(reason))]
    Pattern {
        /// `regex` or `whitespace_pattern`.
        what: &'static str,
        /// Why, with the position.
        reason: String,
    },
    /// It cannot be compiled within the limits, or at all.
    #[error("it does not compile: {}", OneLine(_0))]
    Compile(String),
}

impl GrammarError {
    /// The client's `whitespace_pattern` is at fault, and not the grammar beside it.
    pub fn is_of_white_space(&self) -> bool {
        matches!(
            self,
            Self::TooLong { what, .. } | Self::TooLarge { what, .. } | Self::Pattern { what, .. }
                if *what == "whitespace_pattern"
        )
    }
}

/// A sequence cannot go on within its grammar.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", OneLine(_0))]
pub struct DeadEnd(pub(crate) String);

impl DeadEnd {
    /// For a reason of the caller's own.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// The first line of a library's message, without what it adds for its developers.
pub(crate) fn first_line(message: &str) -> String {
    if let Some((_, name)) = STOPS.iter().find(|(stop, _)| message.starts_with(stop)) {
        return (*name).to_owned();
    }
    let line = message
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("no reason given");
    let end = line
        .char_indices()
        .nth(MOST_CHARACTERS)
        .map_or(line.len(), |(place, _)| place);
    line[..end].to_owned()
}

/// Where the library gives its own names instead of a sentence.
const STOPS: [(&str, &str); 2] = [
    (
        "NoExtensionBias",
        "no token of the model's vocabulary goes on from here",
    ),
    ("panic:", "the library broke on it"),
];

/// Characters of a library's message that are passed on.
const MOST_CHARACTERS: usize = 300;
