//! A client's schema, checked and made ready for the library.
//!
//! The library accepts any text for a schema without `type`, and objects are open by JSON schema's own rules. TGI's
//! compiler made an object of whatever has `properties`, and a closed one; clients rely on that. So:
//! `properties` implies `"type": "object"`, and `"additionalProperties": false` unless the schema says otherwise.
//! A schema that is combined with another one (`allOf`, or `anyOf`, `oneOf`, `$ref` beside other keywords) is left
//! open, for two closed halves of an object would exclude each other.

use crate::error::GrammarError;
use crate::pattern;
use rustc_hash::FxHashSet;
use serde_json::{Map, Number, Value, json};

/// Bytes of a schema's JSON.
pub(crate) const MOST_BYTES: usize = 256 << 10;
/// Nested JSON values.
const MOST_NESTING: usize = 96;
/// JSON values of a schema.
const MOST_VALUES: usize = 20_000;
/// Properties of each object squared, all objects together: what the library takes for them.
const MOST_PROPERTIES_SQUARED: usize = 500_000;
/// Digits of `multipleOf` as a number without its point, and, where schemas are combined, of all of them multiplied:
/// the library keeps a state for every remainder.
const MOST_MULTIPLE: u64 = 10_000;
/// Digits after the point of `multipleOf`.
const MOST_DECIMALS: usize = 6;
/// Alternatives in one place times values that each of them is combined with.
const MOST_COMBINATIONS: usize = 200_000;

/// Keywords that constrain and cannot be enforced.
pub(crate) const REFUSED_KEYWORDS: [&str; 20] = [
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
    // Anchors move what a reference means.
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "additionalItems",
];

/// Keywords that constrain nothing by themselves.
const ANNOTATIONS: [&str; 17] = [
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
const ONE_SCHEMA: [&str; 2] = ["additionalProperties", "items"];
/// Keywords whose value is a list of schemas that hold together or in turn.
const SCHEMA_LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords whose value holds schemas by name.
const NAMED_SCHEMAS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

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
        visited,
        ..
    } = survey;
    for pointer in visited {
        let combined = pointer.is_combined || combined_references.contains(&pointer.pointer);
        let Some(Value::Object(part)) = schema.pointer_mut(&pointer.pointer[1..]) else {
            continue;
        };
        close(part, combined);
    }
    match schema {
        Value::Object(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}

fn check_size(schema: &Value) -> Result<(), GrammarError> {
    let too_large = |of, count, limit| {
        Err(GrammarError::TooLarge {
            what: "schema",
            of,
            count,
            limit,
        })
    };
    let mut count = 0;
    let mut deepest = 0;
    let mut open = vec![(schema, 1)];
    while let Some((value, depth)) = open.pop() {
        count += 1;
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => open.extend(map.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    if deepest > MOST_NESTING {
        return too_large("levels of nesting", deepest, MOST_NESTING);
    }
    if count > MOST_VALUES {
        return too_large("values", count, MOST_VALUES);
    }
    Ok(())
}

/// A schema that was found.
#[derive(Debug)]
struct Part {
    /// As a fragment.
    pointer: String,
    /// It holds together with another schema.
    is_combined: bool,
}

/// Finds every schema in the schema, and refuses what cannot be enforced.
#[derive(Debug, Default)]
struct Survey {
    lenient: bool,
    visited: Vec<Part>,
    known: FxHashSet<String>,
    references: Vec<String>,
    /// Targets of references that hold together with something else.
    combined_references: FxHashSet<String>,
    combinations: usize,
    properties_squared: usize,
    /// Every `multipleOf`, without its point.
    multiples: FxHashSet<u64>,
    has_combinations: bool,
}

impl Survey {
    fn visit(
        &mut self,
        schema: &Value,
        pointer: &mut String,
        is_combined: bool,
    ) -> Result<(), GrammarError> {
        let map = match schema {
            Value::Object(map) => map,
            Value::Bool(_) => return Ok(()),
            _ => {
                return Err(GrammarError::Schema {
                    what: "a schema is an object, `true` or `false`".to_owned(),
                    pointer: pointer.clone(),
                });
            }
        };
        if !self.known.insert(pointer.clone()) {
            return Ok(());
        }
        self.check_keywords(map, pointer)?;
        self.check_costs(map, pointer)?;
        self.visited.push(Part {
            pointer: pointer.clone(),
            is_combined,
        });
        let parts = num_parts(map);
        let combines = is_combined || parts > 1;
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            let target = reference.trim_end_matches('/').to_owned();
            if combines {
                self.combined_references.insert(target.clone());
            }
            self.references.push(target);
        }
        self.has_combinations |= combines;
        if parts > 1 || has_enum_beside(map) {
            self.count_combinations(map)?;
        }
        for (keyword, value) in map {
            let length = pointer.len();
            push_key(pointer, keyword);
            let in_place = ["allOf", "anyOf", "oneOf"].contains(&keyword.as_str());
            match value {
                Value::Array(items) if SCHEMA_LISTS.contains(&keyword.as_str()) => {
                    for (index, item) in items.iter().enumerate() {
                        let length = pointer.len();
                        push_key(pointer, &index.to_string());
                        self.visit(item, pointer, in_place && combines)?;
                        pointer.truncate(length);
                    }
                }
                Value::Object(named) if NAMED_SCHEMAS.contains(&keyword.as_str()) => {
                    for (name, item) in named {
                        let length = pointer.len();
                        push_key(pointer, name);
                        self.visit(item, pointer, false)?;
                        pointer.truncate(length);
                    }
                }
                Value::Object(_) if ONE_SCHEMA.contains(&keyword.as_str()) => {
                    self.visit(value, pointer, false)?;
                }
                _ => {}
            }
            pointer.truncate(length);
        }
        Ok(())
    }

    /// Visits what references point to outside of the usual places.
    fn follow_references(&mut self, schema: &Value) -> Result<(), GrammarError> {
        while let Some(mut target) = self.references.pop() {
            if !target.starts_with('#') || target[1..].starts_with(|first| first != '/') {
                return Err(GrammarError::Schema {
                    what: format!(
                        "the reference `{target}` is not supported: only those that start with `#/` are"
                    ),
                    pointer: "`$ref`".to_owned(),
                });
            }
            let Some(found) = schema.pointer(&target[1..]) else {
                return Err(GrammarError::Schema {
                    what: "nothing is".to_owned(),
                    pointer: format!("`{target}`, which a `$ref` names"),
                });
            };
            self.visit(found, &mut target, false)?;
        }
        Ok(())
    }

    fn check_keywords(&self, map: &Map<String, Value>, pointer: &str) -> Result<(), GrammarError> {
        if self.lenient {
            return Ok(());
        }
        let refused = map.iter().find(|(keyword, value)| {
            REFUSED_KEYWORDS.contains(&keyword.as_str()) && !is_neutral(keyword, value)
        });
        match refused {
            Some((keyword, _)) => Err(GrammarError::Keyword {
                keyword: keyword.clone(),
                pointer: pointer.to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// What the library pays much for, or does not bound.
    fn check_costs(&mut self, map: &Map<String, Value>, pointer: &str) -> Result<(), GrammarError> {
        if let Some(Value::Object(properties)) = map.get("properties") {
            let count = properties.len();
            self.properties_squared += count * count;
            if self.properties_squared > MOST_PROPERTIES_SQUARED {
                return Err(GrammarError::TooLarge {
                    what: "schema",
                    of: "properties of each object squared",
                    count: self.properties_squared,
                    limit: MOST_PROPERTIES_SQUARED,
                });
            }
        }
        let named = match map.get("patternProperties") {
            Some(Value::Object(named)) => named.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        };
        let own = map.get("pattern").and_then(Value::as_str);
        for pattern in named.into_iter().chain(own) {
            pattern::parse("pattern", pattern).map_err(|error| GrammarError::Schema {
                what: error.to_string(),
                pointer: pointer.to_owned(),
            })?;
        }
        if let Some(Value::Number(multiple)) = map.get("multipleOf") {
            let digits = digits_of(multiple).ok_or_else(|| GrammarError::Schema {
                what: format!(
                    "`multipleOf` is {multiple}: it must be above 0, with at most {MOST_DECIMALS} decimals and, \
                     without its point, at most {MOST_MULTIPLE}"
                ),
                pointer: pointer.to_owned(),
            })?;
            self.multiples.insert(digits);
        }
        Ok(())
    }

    /// Combined, two multiples become their common one.
    fn check_multiples(&self) -> Result<(), GrammarError> {
        let all = self
            .multiples
            .iter()
            .fold(1, |all: u64, one| all.saturating_mul(*one));
        if self.has_combinations && all > MOST_MULTIPLE {
            return Err(GrammarError::TooLarge {
                what: "schema",
                of: "states for `multipleOf` in schemas that are combined",
                count: usize::try_from(all).unwrap_or(usize::MAX),
                limit: 10_000,
            });
        }
        Ok(())
    }

    /// The library combines each alternative with all that stands beside it.
    fn count_combinations(&mut self, map: &Map<String, Value>) -> Result<(), GrammarError> {
        let mut alternatives = 1usize;
        let mut values = 0usize;
        for (keyword, value) in map {
            if ANNOTATIONS.contains(&keyword.as_str()) {
                continue;
            }
            values = values.saturating_add(size(value));
            let lists = match (keyword.as_str(), value) {
                ("enum" | "anyOf" | "oneOf", Value::Array(items)) => items.len(),
                ("allOf", Value::Array(items)) => items.iter().map(widest).product(),
                _ => 1,
            };
            alternatives = alternatives.saturating_mul(lists.max(1));
        }
        self.combinations = self
            .combinations
            .saturating_add(alternatives.saturating_mul(values));
        if alternatives > 1 && self.combinations > MOST_COMBINATIONS {
            return Err(GrammarError::TooLarge {
                what: "schema",
                of: "combinations of alternatives",
                count: self.combinations,
                limit: MOST_COMBINATIONS,
            });
        }
        Ok(())
    }
}

/// A number without its point and trailing zeros, if it is within the bounds of `multipleOf`.
fn digits_of(number: &Number) -> Option<u64> {
    let value = number.as_f64()?;
    if !(value > 0.0 && value <= MOST_MULTIPLE as f64) {
        return None;
    }
    let text = format!("{value}");
    let (whole, decimals) = text.split_once('.').unwrap_or((&text, ""));
    if decimals.len() > MOST_DECIMALS {
        return None;
    }
    let digits: u64 = format!("{whole}{decimals}").parse().ok()?;
    (digits <= MOST_MULTIPLE).then_some(digits)
}

/// Whether a list of values stands beside keywords that each of them is combined with.
fn has_enum_beside(map: &Map<String, Value>) -> bool {
    map.contains_key("enum")
        && map.keys().any(|keyword| {
            !["enum", "type"].contains(&keyword.as_str())
                && !ANNOTATIONS.contains(&keyword.as_str())
        })
}

/// The longest list of alternatives anywhere in the value.
fn widest(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(widest).max().unwrap_or(1),
        Value::Object(map) => map
            .iter()
            .map(|(keyword, value)| match (keyword.as_str(), value) {
                ("enum" | "anyOf" | "oneOf", Value::Array(items)) => items.len().max(widest(value)),
                _ => widest(value),
            })
            .max()
            .unwrap_or(1),
        _ => 1,
    }
}

/// How many values a value is made of.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// Parts of a schema that hold together: its own keywords are one, and so is each schema in place.
fn num_parts(map: &Map<String, Value>) -> usize {
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
fn is_neutral(keyword: &str, value: &Value) -> bool {
    match keyword {
        "uniqueItems" => value == &Value::Bool(false),
        "unevaluatedItems" | "unevaluatedProperties" | "propertyNames" | "additionalItems" => {
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

fn push_key(pointer: &mut String, key: &str) {
    pointer.push('/');
    for character in key.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            _ => pointer.push(character),
        }
    }
}
