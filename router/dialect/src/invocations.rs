//! `SageMaker`'s one route: the body says whose request it is.

use crate::json::Json;
use crate::refusal::Refusal;

/// Whose request a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invocation {
    /// `inputs`: TGI's `/`.
    Generate,
    /// `messages`: a chat.
    Chat,
    /// `prompt`: a text completion.
    Completion,
}

/// Each kind's own key.
const KINDS: [(&str, Invocation); 3] = [
    ("inputs", Invocation::Generate),
    ("messages", Invocation::Chat),
    ("prompt", Invocation::Completion),
];

/// Tells by the one key that must be there; `null` is absent, as everywhere.
pub fn invocation_of(json: &Json) -> Result<Invocation, Refusal> {
    let Json::Object(members) = json else {
        return Err(Refusal::wrong_type("body", &json.describe(), "a map"));
    };
    let is_given = |key: &str| {
        members
            .iter()
            .any(|(name, value)| name == key && !matches!(value, Json::Null))
    };
    let mut given = KINDS.iter().filter(|(key, _)| is_given(key));
    match (given.next(), given.next()) {
        (Some((_, kind)), None) => Ok(*kind),
        _ => Err(Refusal::shape(
            "inputs",
            "exactly one of `inputs`, `messages` and `prompt` must be given",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_decides_and_none_or_several_are_refused() {
        let kind = |body: &str| invocation_of(&Json::parse(body.as_bytes()).unwrap());
        assert_eq!(kind(r#"{"inputs":1}"#), Ok(Invocation::Generate));
        assert_eq!(kind(r#"{"messages":[],"x":1}"#), Ok(Invocation::Chat));
        assert_eq!(
            kind(r#"{"inputs":null,"prompt":"x"}"#),
            Ok(Invocation::Completion)
        );
        for body in [
            "{}",
            r#"{"inputs":null}"#,
            r#"{"inputs":"a","prompt":"b"}"#,
            r#"{"messages":[],"prompt":"b"}"#,
        ] {
            assert_eq!(
                kind(body).unwrap_err().message(),
                "Failed to deserialize the JSON body into the target type: exactly one of `inputs`, `messages` and \
                 `prompt` must be given"
            );
        }
        assert_eq!(
            kind("[1]").unwrap_err().message(),
            "Failed to deserialize the JSON body into the target type: body: invalid type: sequence, expected a map"
        );
    }
}
