//! A client's schema, checked and made ready for the library.
//!
//! The library accepts any text for a schema without `type`, and objects are open by JSON schema's own rules. TGI's
//! compiler made an object of whatever has `properties`, and a closed one; clients rely on that. So:
//! `properties` implies `"type": "object"`, and `"additionalProperties": false` unless the schema says otherwise.
//! A schema that is combined with another one (`allOf`, or `anyOf`, `oneOf`, `$ref` beside other keywords) is left
//! open, for two closed halves of an object would exclude each other.

mod combined;
mod costs;
mod cycles;
mod keywords;
mod numbers;
mod overlap;
mod place;
mod shapes;
mod survey;

use crate::error::GrammarError;
use costs::check_size;
use keywords::{REFUSED_KEYWORDS, is_neutral};
pub(crate) use place::explain;
use serde_json::{Map, Value, json};
use survey::Survey;

/// Bytes of a schema's JSON.
pub(crate) const MOST_BYTES: usize = 256 << 10;

/// The schema for the library.
pub(crate) fn prepare(
    mut schema: Value,
    lenient: bool,
) -> Result<Map<String, Value>, GrammarError> {
    check_size(&schema)?;
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    if !schema.is_object() {
        return Err(GrammarError::Schema {
            what: "a schema must be a JSON object".to_owned(),
            pointer: "#".to_owned(),
        });
    }
    let mut survey = Survey {
        lenient,
        ..Survey::default()
    };
    survey.visit(&schema, &mut "#".to_owned(), false)?;
    survey.follow_references(&schema)?;
    survey.check_multiples()?;
    let Survey {
        combined_references,
        combinations_at,
        visited,
        ..
    } = survey;
    cycles::check(&schema, &visited)?;
    combined::check(&schema, &combinations_at)?;
    for pointer in visited {
        let combined = pointer.is_combined || combined_references.contains(&pointer.pointer);
        let Some(Value::Object(part)) = schema.pointer_mut(&pointer.pointer[1..]) else {
            continue;
        };
        close(part, combined);
        numbers::fit(part);
    }
    match schema {
        Value::Object(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}

/// Makes an object of what has `properties`, and a closed one unless it says otherwise or is `combined`.
fn close(map: &mut Map<String, Value>, combined: bool) {
    map.remove("x-guidance");
    map.retain(|keyword, value| {
        !(REFUSED_KEYWORDS.contains(&keyword.as_str()) && is_neutral(keyword, value))
    });
    let Some(properties) = map.get("properties").and_then(Value::as_object) else {
        return;
    };
    let unlisted: Vec<String> = map
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|name| !properties.contains_key(*name))
        .map(str::to_owned)
        .collect();
    if !map.contains_key("type") {
        map.insert("type".to_owned(), json!("object"));
    }
    let is_open = combined
        || map.contains_key("additionalProperties")
        || map.contains_key("patternProperties")
        || brings_properties(map);
    if is_open {
        return;
    }
    map.insert("additionalProperties".to_owned(), Value::Bool(false));
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        for name in unlisted {
            properties.insert(name, Value::Bool(true));
        }
    }
}

/// Whether a schema in place may know properties that the schema itself does not list.
fn brings_properties(map: &Map<String, Value>) -> bool {
    let knows = |schema: &Value| {
        schema.as_object().is_some_and(|map| {
            [
                "properties",
                "$ref",
                "allOf",
                "anyOf",
                "oneOf",
                "patternProperties",
            ]
            .iter()
            .any(|keyword| map.contains_key(*keyword))
        })
    };
    map.contains_key("$ref")
        || ["allOf", "anyOf", "oneOf"]
            .iter()
            .filter_map(|keyword| map.get(*keyword)?.as_array())
            .flatten()
            .any(knows)
}
