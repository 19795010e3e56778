//! What the value of each keyword may be, by JSON schema's own rules. The library refuses most of what is not, but names
//! no place.

use crate::error::GrammarError;
use serde_json::{Map, Value};

/// JSON schema's types.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];

/// Lengths and counts at most: what regexes can repeat.
const MOST_COUNT: u64 = u32::MAX as u64;

/// Characters of a wrong value that are shown.
const SHOWN: usize = 40;

/// What a value has to be.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Types,
    Schema,
    SchemaOrList,
    List,
    Named,
    Text,
    Texts,
    Number,
    /// Draft 4 has a boolean beside the bound.
    NumberOrBoolean,
    Count,
}

const SHAPES: [(&str, Shape); 28] = [
    ("type", Shape::Types),
    ("additionalItems", Shape::Schema),
    ("additionalProperties", Shape::Schema),
    ("items", Shape::SchemaOrList),
    ("allOf", Shape::List),
    ("anyOf", Shape::List),
    ("oneOf", Shape::List),
    ("prefixItems", Shape::List),
    ("enum", Shape::List),
    ("properties", Shape::Named),
    ("patternProperties", Shape::Named),
    ("$defs", Shape::Named),
    ("definitions", Shape::Named),
    ("$ref", Shape::Text),
    ("pattern", Shape::Text),
    ("format", Shape::Text),
    ("required", Shape::Texts),
    ("minimum", Shape::Number),
    ("maximum", Shape::Number),
    ("multipleOf", Shape::Number),
    ("exclusiveMinimum", Shape::NumberOrBoolean),
    ("exclusiveMaximum", Shape::NumberOrBoolean),
    ("minLength", Shape::Count),
    ("maxLength", Shape::Count),
    ("minItems", Shape::Count),
    ("maxItems", Shape::Count),
    ("minProperties", Shape::Count),
    ("maxProperties", Shape::Count),
];

impl Shape {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Types => match value {
                Value::Array(items) => !items.is_empty() && items.iter().all(is_type),
                other => is_type(other),
            },
            Self::Schema => value.is_object() || value.is_boolean(),
            Self::SchemaOrList => value.is_object() || value.is_boolean() || value.is_array(),
            Self::List => value.is_array(),
            Self::Named => value.is_object(),
            Self::Text => value.is_string(),
            Self::Texts => value
                .as_array()
                .is_some_and(|items| items.iter().all(Value::is_string)),
            Self::Number => value.is_number(),
            Self::NumberOrBoolean => value.is_number() || value.is_boolean(),
            Self::Count => value.as_u64().is_some_and(|count| count <= MOST_COUNT),
        }
    }

    fn words(self) -> String {
        match self {
            Self::Types => format!("one of {}, or a list of them", TYPES.join(", ")),
            Self::Schema => "a schema".to_owned(),
            Self::SchemaOrList => "a schema, or a list of schemas".to_owned(),
            Self::List => "a list".to_owned(),
            Self::Named => "an object of schemas".to_owned(),
            Self::Text => "a string".to_owned(),
            Self::Texts => "a list of strings".to_owned(),
            Self::Number => "a number".to_owned(),
            Self::NumberOrBoolean => "a number, or true or false".to_owned(),
            Self::Count => format!("a whole number from 0 to {MOST_COUNT}"),
        }
    }
}

fn is_type(value: &Value) -> bool {
    value.as_str().is_some_and(|name| TYPES.contains(&name))
}

/// Refuses the first keyword whose value is none of its kind.
pub(super) fn check(map: &Map<String, Value>, pointer: &str) -> Result<(), GrammarError> {
    for (keyword, shape) in SHAPES {
        let Some(value) = map.get(keyword) else {
            continue;
        };
        if !shape.fits(value) {
            let shown: String = value.to_string().chars().take(SHOWN).collect();
            return Err(GrammarError::Schema {
                what: format!("`{keyword}` is {shown}, and must be {}", shape.words()),
                pointer: pointer.to_owned(),
            });
        }
    }
    Ok(())
}
