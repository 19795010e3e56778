//! Finds every schema in a schema.

use super::costs::has_enum_beside;
use super::keywords::{
    NAMED_SCHEMAS, ONE_SCHEMA, REFUSED_KEYWORDS, SCHEMA_LISTS, is_neutral, num_parts,
};
use super::numbers;
use super::shapes;
use crate::error::GrammarError;
use headrace_text::OneLine;
use rustc_hash::FxHashSet;
use serde_json::{Map, Value};

/// A schema that was found.
#[derive(Debug)]
pub(super) struct Part {
    /// As a fragment.
    pub(super) pointer: String,
    /// It holds together with another schema.
    pub(super) is_combined: bool,
}

/// Finds every schema in the schema, and refuses what cannot be enforced.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub(super) lenient: bool,
    pub(super) visited: Vec<Part>,
    pub(super) known: FxHashSet<String>,
    pub(super) references: Vec<String>,
    /// Targets of references that hold together with something else.
    pub(super) combined_references: FxHashSet<String>,
    /// Where schemas hold together.
    pub(super) combinations_at: Vec<String>,
    pub(super) combinations: usize,
    pub(super) properties_squared: usize,
    pub(super) properties_cubed: usize,
    pub(super) pattern_names_squared: usize,
    /// Every `multipleOf`, without its point.
    pub(super) multiples: FxHashSet<u64>,
    pub(super) has_combinations: bool,
}

impl Survey {
    pub(super) fn visit(
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
        shapes::check(map, pointer)?;
        numbers::check(map, pointer)?;
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
        if parts > 1 {
            self.combinations_at.push(pointer.clone());
        }
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
    pub(super) fn follow_references(&mut self, schema: &Value) -> Result<(), GrammarError> {
        while let Some(mut target) = self.references.pop() {
            if !target.starts_with('#') || target[1..].starts_with(|first| first != '/') {
                return Err(GrammarError::Schema {
                    what: format!(
                        "the reference `{:.100}` is not supported: only those that start with `#/` are",
                        OneLine(&target)
                    ),
                    pointer: "`$ref`".to_owned(),
                });
            }
            let Some(found) = schema.pointer(&target[1..]) else {
                return Err(GrammarError::Schema {
                    what: "nothing is".to_owned(),
                    pointer: format!("`{:.100}`, which a `$ref` names", OneLine(&target)),
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
}

/// One step further down.
pub(super) fn push_key(pointer: &mut String, key: &str) {
    pointer.push('/');
    for character in key.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            _ => pointer.push(character),
        }
    }
}
