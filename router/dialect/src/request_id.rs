//! What a client may call its request: the header `x-request-id`, and in a body `request_id` (vLLM), `rid` (`SGLang`) or
//! `id` (`KServe`).

use crate::fields::Fields;
use crate::json::Json;
use crate::refusal::Refusal;

/// Bytes of an id at most.
pub const MOST_BYTES: usize = 128;

/// Both keys of a body.
pub(crate) const KEYS: [&str; 2] = ["request_id", "rid"];

/// Whether an id may stand in a header and a log.
pub fn is_acceptable(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MOST_BYTES
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=~@".contains(&byte))
}

/// The id that the body gives, on its top level.
pub fn in_body(json: &Json) -> Result<Option<String>, Refusal> {
    match json {
        Json::Object(_) => of(&mut Fields::of(json, "")?),
        // Whoever reads the rest says what is wrong.
        _ => Ok(None),
    }
}

/// The id that the body or its `parameters` give, for native routes.
pub fn in_native_body(json: &Json) -> Result<Option<String>, Refusal> {
    if let Some(id) = in_body(json)? {
        return Ok(Some(id));
    }
    let Json::Object(members) = json else {
        return Ok(None);
    };
    match members.iter().find(|(key, _)| key == "parameters") {
        Some((_, parameters @ Json::Object(_))) => of(&mut Fields::of(parameters, "parameters")?),
        _ => Ok(None),
    }
}

/// The id that a `KServe` body gives: as on native routes, else its own `id`, unless that cannot stand in a header (the
/// protocol allows any string).
pub fn in_infer_body(json: &Json) -> Result<Option<String>, Refusal> {
    if let Some(id) = in_native_body(json)? {
        return Ok(Some(id));
    }
    let Json::Object(_) = json else {
        return Ok(None);
    };
    // Of another type: whoever reads the rest says what is wrong.
    let id = match Fields::of(json, "")?.get("id")? {
        Some(Json::String(id)) if is_acceptable(id) => Some(id.clone()),
        _ => None,
    };
    Ok(id)
}

fn of(fields: &mut Fields<'_>) -> Result<Option<String>, Refusal> {
    let mut found: Option<&str> = None;
    for key in KEYS {
        let Some(id) = fields.string(key)? else {
            continue;
        };
        check(key, id)?;
        if found.is_some_and(|other| other != id) {
            let message = "`request_id` and `rid` are two names of one field, and differ";
            return Err(Refusal::validation(key, message));
        }
        found = Some(id);
    }
    Ok(found.map(str::to_owned))
}

/// Refuses what is no id.
pub(crate) fn check(key: &str, id: &str) -> Result<(), Refusal> {
    if is_acceptable(id) {
        return Ok(());
    }
    Err(Refusal::validation(
        key,
        format!(
            "`{key}` must have 1 to {MOST_BYTES} characters, each a letter, a digit or one of `-_.:/+=~@`"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &serde_json::Value) -> Result<Option<String>, String> {
        let json = Json::parse(body.to_string().as_bytes()).unwrap();
        in_native_body(&json).map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn both_names_in_both_places() {
        let id = Ok(Some("a-1".to_owned()));
        for body in [
            serde_json::json!({"request_id": "a-1"}),
            serde_json::json!({"rid": "a-1"}),
            serde_json::json!({"rid": "a-1", "request_id": "a-1"}),
            serde_json::json!({"parameters": {"request_id": "a-1"}}),
            serde_json::json!({"rid": null, "parameters": {"rid": "a-1"}}),
        ] {
            assert_eq!(read(&body), id, "{body}");
        }
        for body in [
            serde_json::json!({}),
            serde_json::json!([1]),
            serde_json::json!({"parameters": 7}),
            serde_json::json!({"request_id": null, "rid": null}),
        ] {
            assert_eq!(read(&body), Ok(None), "{body}");
        }
    }

    #[test]
    fn kserves_id_is_one_if_it_can_be() {
        let read = |body: serde_json::Value| {
            let json = Json::parse(body.to_string().as_bytes()).unwrap();
            in_infer_body(&json).unwrap()
        };
        let id = |id: &str| Some(id.to_owned());
        assert_eq!(read(serde_json::json!({"id": "a-1"})), id("a-1"));
        assert_eq!(read(serde_json::json!({"id": "a", "rid": "b"})), id("b"));
        let inner = serde_json::json!({"id": "a", "parameters": {"request_id": "b"}});
        assert_eq!(read(inner), id("b"));
        for odd in [
            serde_json::json!({"id": "two words"}),
            serde_json::json!({"id": ""}),
            serde_json::json!({"id": 7}),
            serde_json::json!({"id": null}),
            serde_json::json!([]),
        ] {
            assert_eq!(read(odd), None);
        }
    }

    #[test]
    fn what_cannot_stand_in_a_header_is_refused_by_name() {
        for (body, words) in [
            (
                serde_json::json!({"request_id": ""}),
                "`request_id` must have 1 to 128",
            ),
            (
                serde_json::json!({"rid": "a b"}),
                "`rid` must have 1 to 128",
            ),
            (
                serde_json::json!({"rid": "x".repeat(129)}),
                "`rid` must have",
            ),
            (serde_json::json!({"rid": "a\r\nb"}), "`rid` must have"),
            (serde_json::json!({"rid": "ä"}), "`rid` must have"),
            (
                serde_json::json!({"rid": ["a"]}),
                "rid: invalid type: sequence",
            ),
            (
                serde_json::json!({"parameters": {"request_id": 7}}),
                "parameters.request_id: invalid type: integer `7`",
            ),
            (
                serde_json::json!({"rid": "a", "request_id": "b"}),
                "and differ",
            ),
        ] {
            let message = read(&body).unwrap_err();
            assert!(message.contains(words), "{body}: {message}");
        }
    }
}
