//! What a client asks for.

use serde_json::Value;

/// A grammar as it came.
#[derive(Clone, Debug, PartialEq)]
pub enum GrammarSource {
    /// JSON that is valid by a JSON schema.
    Json {
        /// The schema.
        schema: Value,
        /// Regex of the white space allowed between two tokens of JSON; absent: at most one space.
        whitespace_pattern: Option<String>,
    },
    /// Text that a regex matches whole.
    Regex(String),
}

impl GrammarSource {
    /// JSON with the usual white space.
    pub fn json(schema: Value) -> Self {
        Self::Json {
            schema,
            whitespace_pattern: None,
        }
    }

    /// The same text for the same grammar, another for another one.
    pub(crate) fn content(&self) -> String {
        match self {
            Self::Regex(regex) => format!("regex {regex}"),
            Self::Json {
                schema,
                whitespace_pattern: None,
            } => format!("json {schema}"),
            Self::Json {
                schema,
                whitespace_pattern: Some(pattern),
            } => {
                // The length keeps the two parts apart.
                format!("json+ {} {pattern}{schema}", pattern.len())
            }
        }
    }
}
