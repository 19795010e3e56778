//! Reads `/abort`: which running requests are to end.

use crate::fields::Fields;
use crate::ignored::Ignored;
use crate::json::Json;
use crate::refusal::Refusal;
use crate::request_id;
use std::collections::HashSet;

/// Ids in one request at most.
pub const MOST_IDS: usize = 1024;

/// A read abort.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AbortCall {
    /// Requests of these names.
    pub ids: HashSet<String>,
    /// All requests.
    pub all: bool,
    /// Keys that nothing knows.
    pub ignored: Ignored,
}

/// Reads and bounds the body: `request_id` or `rid` (a string or a list), `request_ids` (a list), `abort_all`.
pub fn read_abort(json: &Json) -> Result<AbortCall, Refusal> {
    let mut body = Fields::of(json, "")?;
    let mut call = AbortCall {
        all: body.boolean("abort_all")?.unwrap_or(false),
        ..AbortCall::default()
    };
    let mut is_named = call.all;
    for (key, bare) in [("request_id", true), ("rid", true), ("request_ids", false)] {
        is_named |= body.get(key)?.is_some();
        for id in body.strings(key, bare)? {
            // SGLang's clients send an empty one beside `abort_all`.
            if call.all && id.is_empty() {
                continue;
            }
            request_id::check(key, &id)?;
            call.ids.insert(id);
        }
        if call.ids.len() > MOST_IDS {
            let message = format!("`{key}` supports up to {MOST_IDS} ids");
            return Err(Refusal::validation(key, message));
        }
    }
    if !is_named {
        return Err(Refusal::validation(
            "request_id",
            "one of `request_id`, `request_ids`, `rid` and `abort_all` must be given",
        ));
    }
    body.finish(&mut call.ignored);
    Ok(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &serde_json::Value) -> Result<AbortCall, String> {
        let json = Json::parse(body.to_string().as_bytes()).unwrap();
        read_abort(&json).map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn every_peers_shape_is_taken() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        for (body, expected, all) in [
            (serde_json::json!({"request_id": "a"}), ids(&["a"]), false),
            (
                serde_json::json!({"rid": "a", "abort_all": false}),
                ids(&["a"]),
                false,
            ),
            (
                serde_json::json!({"rid": ["a", "b"]}),
                ids(&["a", "b"]),
                false,
            ),
            (
                serde_json::json!({"request_ids": ["a", "b", "a"]}),
                ids(&["a", "b"]),
                false,
            ),
            (serde_json::json!({"request_ids": []}), ids(&[]), false),
            (
                serde_json::json!({"rid": "", "abort_all": true}),
                ids(&[]),
                true,
            ),
        ] {
            let call = read(&body).unwrap();
            assert_eq!((call.ids, call.all), (expected, all), "{body}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused_by_name() {
        for (body, words) in [
            (
                serde_json::json!({}),
                "one of `request_id`, `request_ids`, `rid` and `abort_all`",
            ),
            (
                serde_json::json!({"abort_all": false}),
                "one of `request_id`",
            ),
            (serde_json::json!({"rid": null}), "one of `request_id`"),
            (serde_json::json!({"rid": ""}), "`rid` must have 1 to 128"),
            (
                serde_json::json!({"rid": 7}),
                "rid: invalid type: integer `7`",
            ),
            (
                serde_json::json!({"request_ids": "a"}),
                "request_ids: invalid type: string",
            ),
            (
                serde_json::json!({"request_ids": ["a", 1]}),
                "request_ids[1]: invalid type",
            ),
            (
                serde_json::json!({"request_ids": [1]}),
                "request_ids[0]: invalid type",
            ),
            (
                serde_json::json!({"abort_all": 1}),
                "abort_all: invalid type",
            ),
            (
                serde_json::json!({"request_ids": (0..1025).map(|id| id.to_string()).collect::<Vec<_>>()}),
                "`request_ids` supports up to 1024 ids",
            ),
        ] {
            let message = read(&body).unwrap_err();
            assert!(message.contains(words), "{body}: {message}");
        }
        assert!(
            read(&serde_json::json!([]))
                .unwrap_err()
                .contains("body: invalid type")
        );
    }
}
