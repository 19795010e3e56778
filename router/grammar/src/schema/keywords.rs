//! Keywords by what is done with them.

use serde_json::{Map, Value, json};

/// Keywords that constrain and cannot be enforced.
pub(super) const REFUSED_KEYWORDS: [&str; 19] = [
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    // Never refused, but taken away: a reference to one is refused for itself.
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
];

/// Keywords that constrain nothing by themselves.
pub(super) const ANNOTATIONS: [&str; 17] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "definitions",
    "deprecated",
    "description",
    "example",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
    "x-guidance",
];

/// Keywords whose value is a schema.
pub(super) const ONE_SCHEMA: [&str; 3] = ["additionalItems", "additionalProperties", "items"];

/// Keywords whose value is a list of schemas that hold together or in turn.
pub(super) const SCHEMA_LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];

/// Keywords whose value holds schemas by name.
pub(super) const NAMED_SCHEMAS: [&str; 4] =
    ["properties", "patternProperties", "$defs", "definitions"];

/// Parts of a schema that hold together: its own keywords are one, and so is each schema in place.
pub(super) fn num_parts(map: &Map<String, Value>) -> usize {
    let mut own = false;
    let mut others = 0;
    for (keyword, value) in map {
        match (keyword.as_str(), value) {
            ("allOf", Value::Array(items)) => others += items.len(),
            ("anyOf" | "oneOf" | "$ref", _) => others += 1,
            _ => own |= !ANNOTATIONS.contains(&keyword.as_str()),
        }
    }
    others + usize::from(own)
}

/// Whether a keyword that is refused says nothing with this value.
pub(super) fn is_neutral(keyword: &str, value: &Value) -> bool {
    match keyword {
        "uniqueItems" => value == &Value::Bool(false),
        "unevaluatedItems" | "unevaluatedProperties" | "propertyNames" => {
            value == &Value::Bool(true)
        }
        "minContains" => value == &json!(0),
        "$anchor" | "$dynamicAnchor" | "$recursiveAnchor" => true,
        "dependencies" | "dependentRequired" | "dependentSchemas" => {
            value.as_object().is_some_and(Map::is_empty)
        }
        _ => false,
    }
}
