//! What a schema may cost: bounds on what the library would take long or much memory for.

use super::keywords::ANNOTATIONS;
use super::survey::Survey;
use crate::error::GrammarError;
use crate::pattern;
use rustc_hash::FxHashSet;
use serde_json::{Map, Number, Value};

/// Nested JSON values.
const MOST_NESTING: usize = 96;
/// JSON values of a schema.
const MOST_VALUES: usize = 20_000;
/// Names in `properties` and `required` of each object squared, all objects together: what the library takes for them.
pub(super) const MOST_PROPERTIES_SQUARED: usize = 500_000;
/// Optional properties of each object that must have one of them, or may have one only, cubed, all objects together.
pub(super) const MOST_PROPERTIES_CUBED: usize = 125_000;
/// `patternProperties` of each object squared, all objects together: each is held against each other one.
pub(super) const MOST_PATTERN_NAMES_SQUARED: usize = 4_096;
/// Digits of `multipleOf` as a number without its point, and, where schemas are combined, of all of them multiplied:
/// the library keeps a state for every remainder.
const MOST_MULTIPLE: u64 = 10_000;
/// Digits after the point of `multipleOf`.
const MOST_DECIMALS: usize = 6;
/// Alternatives in one place times values that each of them is combined with.
const MOST_COMBINATIONS: usize = 200_000;

/// Levels and values.
pub(super) fn check_size(schema: &Value) -> Result<(), GrammarError> {
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

impl Survey {
    /// What the library pays much for, or does not bound.
    pub(super) fn check_costs(
        &mut self,
        map: &Map<String, Value>,
        pointer: &str,
    ) -> Result<(), GrammarError> {
        self.check_names(map, pointer)?;
        let named = match map.get("patternProperties") {
            Some(Value::Object(named)) => named.keys().map(String::as_str).collect(),
            _ => Vec::new(),
        };
        let own = map.get("pattern").and_then(Value::as_str);
        for pattern in named.into_iter().chain(own) {
            pattern::check_search(pattern).map_err(|error| GrammarError::Schema {
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

    /// The names of an object.
    fn check_names(&mut self, map: &Map<String, Value>, pointer: &str) -> Result<(), GrammarError> {
        let over = |of: &str, count: usize, limit: usize| {
            if count <= limit {
                return Ok(());
            }
            Err(GrammarError::Schema {
                what: format!(
                    "the schema has too many {of}: squared or cubed and added up over all objects they are {count}, at \
                     most {limit} are allowed"
                ),
                pointer: pointer.to_owned(),
            })
        };
        let names = own_names(map);
        self.properties_squared += names.saturating_mul(names);
        over(
            "names in `properties` and `required`",
            self.properties_squared,
            MOST_PROPERTIES_SQUARED,
        )?;
        let patterns = map.get("patternProperties").and_then(Value::as_object);
        let patterns = patterns.map_or(0, Map::len);
        self.pattern_names_squared += patterns.saturating_mul(patterns);
        over(
            "`patternProperties`",
            self.pattern_names_squared,
            MOST_PATTERN_NAMES_SQUARED,
        )?;
        let bound = |keyword: &str| map.get(keyword).and_then(Value::as_u64);
        let required = map.get("required").and_then(Value::as_array);
        let required = required.map_or(0, Vec::len) as u64;
        let least = bound("minProperties").map(|least| least.saturating_sub(required));
        let most = bound("maxProperties").map(|most| most.saturating_sub(required));
        // At least one, at most one, or exactly one of those that are not required.
        if least.unwrap_or(0) <= 1 && most.unwrap_or(1) == 1 && (least == Some(1) || most.is_some())
        {
            self.properties_cubed += names.saturating_pow(3);
        }
        over(
            "names in `properties` beside `minProperties` or `maxProperties`",
            self.properties_cubed,
            MOST_PROPERTIES_CUBED,
        )
    }

    /// Combined, two multiples become their common one.
    pub(super) fn check_multiples(&self) -> Result<(), GrammarError> {
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
    pub(super) fn count_combinations(
        &mut self,
        map: &Map<String, Value>,
    ) -> Result<(), GrammarError> {
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

/// How many names `properties` and `required` have together.
pub(super) fn own_names(map: &Map<String, Value>) -> usize {
    let properties = map.get("properties").and_then(Value::as_object);
    let listed = |name: &str| properties.is_some_and(|it| it.contains_key(name));
    let required = map.get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let unlisted: FxHashSet<&str> = required.filter(|name| !listed(name)).collect();
    properties.map_or(0, Map::len) + unlisted.len()
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
pub(super) fn has_enum_beside(map: &Map<String, Value>) -> bool {
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
