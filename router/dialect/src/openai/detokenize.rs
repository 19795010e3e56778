//! Reads `/detokenize`.

use crate::bounds::ContextLimits;
use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::Refusal;

/// Ids that may always be given: what `/tokenize` answers may be longer than a context, and each id may be a hundred
/// bytes of text.
const IDS: usize = 131_072;

/// Ids that are to become text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetokenizeCall {
    /// All below the vocabulary size.
    pub tokens: Vec<u32>,
    /// Special tokens leave no text.
    pub skip_special_tokens: bool,
    /// Keys that nothing knows.
    pub ignored: Ignored,
}

/// Reads and bounds the body.
pub fn read_detokenize(json: &Json, limits: &ContextLimits) -> Result<DetokenizeCall, Refusal> {
    let mut body = Fields::of(json, "")?;
    body.advisory(&["model"])?;
    let skip_special_tokens = body.boolean("skip_special_tokens")?.unwrap_or(false);
    body.required("tokens")?;
    let tokens = body.ids("tokens")?;
    let mut ignored = Ignored::default();
    body.finish(&mut ignored);
    let most = IDS.max(usize::try_from(limits.max_total_tokens).unwrap_or(IDS));
    let refuse = |message: String| Err(Refusal::validation("tokens", message));
    if tokens.len() > most {
        return refuse(format!(
            "`tokens` supports up to {most} ids. Given: {}",
            tokens.len()
        ));
    }
    let vocab_size = limits.vocab_size;
    if let Some(id) = tokens.iter().find(|id| **id >= vocab_size) {
        return refuse(format!(
            "`tokens`: token id {id} is not below the vocabulary size {vocab_size}"
        ));
    }
    Ok(DetokenizeCall {
        tokens,
        skip_special_tokens,
        ignored,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &serde_json::Value) -> Result<DetokenizeCall, String> {
        let limits = ContextLimits {
            max_input_tokens: 9,
            max_total_tokens: 10,
            vocab_size: 100,
        };
        let json = Json::parse(body.to_string().as_bytes()).unwrap();
        read_detokenize(&json, &limits).map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn ids_are_bounded_in_number_and_value() {
        let call = read(&serde_json::json!({"model": "x", "tokens": [0, 99], "other": 1})).unwrap();
        assert_eq!(call.tokens, [0, 99]);
        assert!(!call.skip_special_tokens);
        assert_eq!(call.ignored.keys(), ["other"]);
        assert!(
            read(&serde_json::json!({"tokens": []}))
                .unwrap()
                .tokens
                .is_empty()
        );
        assert!(read(&serde_json::json!({"tokens": vec![1; IDS]})).is_ok());
        for (body, words) in [
            (serde_json::json!({}), "missing field `tokens`"),
            (
                serde_json::json!({"tokens": null}),
                "missing field `tokens`",
            ),
            (
                serde_json::json!({"tokens": "a"}),
                "tokens: invalid type: string",
            ),
            (
                serde_json::json!({"tokens": [100]}),
                "token id 100 is not below the vocabulary size 100",
            ),
            (
                serde_json::json!({"tokens": [-1]}),
                "tokens[0]: invalid value: integer `-1`",
            ),
            (
                serde_json::json!({"tokens": [0, 1.5]}),
                "tokens[1]: invalid type: floating point",
            ),
            (
                serde_json::json!({"tokens": [[1]]}),
                "tokens[0]: invalid type: sequence",
            ),
            (
                serde_json::json!({"tokens": vec![1; IDS + 1]}),
                "supports up to 131072 ids. Given: 131073",
            ),
            (
                serde_json::json!({"tokens": [1], "skip_special_tokens": 1}),
                "skip_special_tokens: invalid type",
            ),
        ] {
            let message = read(&body).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }
}
