//! Recursion without an end: a schema whose every value would have to hold itself. The library takes it, and the text
//! comes to a place from which nothing goes on.

use super::survey::{Part, push_key};
use crate::error::GrammarError;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

/// What has to have values for a schema to have one.
#[derive(Debug)]
struct Node {
    /// All of them, or one.
    needs_all: bool,
    needs: Vec<usize>,
}

/// Refuses the first schema that no finite value can satisfy, because it needs itself.
pub(super) fn check(schema: &Value, parts: &[Part]) -> Result<(), GrammarError> {
    let places: FxHashMap<&str, usize> = (0..)
        .zip(parts)
        .map(|(index, part)| (part.pointer.as_str(), index))
        .collect();
    let mut graph = Graph {
        places,
        nodes: parts
            .iter()
            .map(|_| Node {
                needs_all: true,
                needs: Vec::new(),
            })
            .collect(),
    };
    for (index, part) in parts.iter().enumerate() {
        if let Some(Value::Object(map)) = schema.pointer(&part.pointer[1..]) {
            graph.add(index, map, &part.pointer);
        }
    }
    let ends = graph.ends();
    let Some(mut place) = (0..parts.len()).find(|index| !ends[*index]) else {
        return Ok(());
    };
    // From there along what does not end, until a place comes again: that one is in the circle.
    let mut seen = vec![false; ends.len()];
    let mut last = place;
    while !seen[place] {
        seen[place] = true;
        if place < parts.len() {
            last = place;
        }
        let Some(next) = graph.nodes[place].needs.iter().find(|need| !ends[**need]) else {
            break;
        };
        place = *next;
    }
    let on_cycle = if place < parts.len() { place } else { last };
    Err(GrammarError::Schema {
        what: "recursion without an end: the `$ref` cycle through it has no way out".to_owned(),
        pointer: parts[on_cycle].pointer.clone(),
    })
}

struct Graph<'p> {
    /// The node of a pointer.
    places: FxHashMap<&'p str, usize>,
    /// Those of the parts, then those of alternatives.
    nodes: Vec<Node>,
}

impl Graph<'_> {
    /// Notes what the part needs.
    fn add(&mut self, index: usize, map: &Map<String, Value>, pointer: &str) {
        let below = |keys: &[&str]| {
            let mut place = pointer.to_owned();
            for key in keys {
                push_key(&mut place, key);
            }
            place
        };
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            self.need(index, reference.trim_end_matches('/'));
        }
        for (keyword, one) in [("allOf", false), ("anyOf", true), ("oneOf", true)] {
            let Some(Value::Array(items)) = map.get(keyword) else {
                continue;
            };
            let places = (0..items.len()).map(|item| below(&[keyword, &item.to_string()]));
            if !one {
                places.for_each(|place| self.need(index, &place));
                continue;
            }
            let known: Vec<usize> = places
                .filter_map(|place| self.places.get(place.as_str()).copied())
                .collect();
            // `true` and `false` are no parts; which of them it is matters elsewhere.
            if !items.is_empty() && known.len() == items.len() {
                self.nodes.push(Node {
                    needs_all: false,
                    needs: known,
                });
                let alternatives = self.nodes.len() - 1;
                self.nodes[index].needs.push(alternatives);
            }
        }
        let kind = map.get("type").and_then(Value::as_str);
        let is_object =
            kind == Some("object") || map.get("type").is_none() && map.contains_key("properties");
        if is_object && let Some(Value::Array(required)) = map.get("required") {
            for name in required.iter().filter_map(Value::as_str) {
                self.need(index, &below(&["properties", name]));
            }
        }
        let least = map.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        if kind == Some("array") && least > 0 {
            let first = map.get("prefixItems").and_then(Value::as_array);
            let first = first.map_or(0, Vec::len) as u64;
            for item in 0..first.min(least) {
                self.need(index, &below(&["prefixItems", &item.to_string()]));
            }
            if least > first {
                self.need(index, &below(&["items"]));
            }
        }
    }

    fn need(&mut self, index: usize, place: &str) {
        if let Some(found) = self.places.get(place) {
            self.nodes[index].needs.push(*found);
        }
    }

    /// Which nodes have a value.
    fn ends(&self) -> Vec<bool> {
        let mut users: Vec<Vec<usize>> = self.nodes.iter().map(|_| Vec::new()).collect();
        let mut missing: Vec<usize> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for need in &node.needs {
                users[*need].push(index);
            }
            missing.push(if node.needs_all { node.needs.len() } else { 1 });
        }
        let mut ends = vec![false; self.nodes.len()];
        let mut open: Vec<usize> = (0..missing.len())
            .filter(|index| missing[*index] == 0)
            .collect();
        while let Some(index) = open.pop() {
            if std::mem::replace(&mut ends[index], true) {
                continue;
            }
            for user in &users[index] {
                missing[*user] = missing[*user].saturating_sub(1);
                if missing[*user] == 0 {
                    open.push(*user);
                }
            }
        }
        ends
    }
}
