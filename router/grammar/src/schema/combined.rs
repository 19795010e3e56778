//! What schemas that hold together come to: the library merges them, place by place, and what it takes grows with the
//! product of their alternatives, the square of their names and the product of their patterns.

use super::costs::{
    MOST_PATTERN_NAMES_SQUARED, MOST_PROPERTIES_CUBED, MOST_PROPERTIES_SQUARED, own_names,
};
use super::overlap::overlap;
use crate::error::GrammarError;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value};

/// Schemas looked at in one document.
const MOST_LOOKS: usize = 300_000;
/// Ways in which the patterns of one text may overlap: for each byte the library tries them all.
const MOST_OVERLAPS: f64 = 10_000.0;
/// Ways in which a format overlaps with itself.
const FORMAT_OVERLAP: f64 = 4.0;

/// Schemas of one place.
#[derive(Clone, Debug)]
enum Held<'s> {
    One(&'s Value),
    /// They hold together.
    All(Vec<Held<'s>>),
    /// One of them holds.
    Any(Vec<Held<'s>>),
}

impl Held<'_> {
    /// Schemas that hold together at most.
    fn parts(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::All(inner) => inner.iter().map(Held::parts).sum(),
            Self::Any(inner) => inner.iter().map(Held::parts).max().unwrap_or(0),
        }
    }
}

/// From a value to one within it.
#[derive(Clone, Copy, Debug)]
enum Step<'n> {
    Name(&'n str),
    /// A property that is not listed.
    Other,
    Item,
}

/// What one place costs.
#[derive(Clone, Copy, Debug)]
struct Cost {
    alternatives: usize,
    names: usize,
    pattern_names: usize,
    overlaps: f64,
    counts_properties: bool,
}

impl Cost {
    fn and(self, other: Self) -> Self {
        Self {
            alternatives: self.alternatives.saturating_mul(other.alternatives),
            names: self.names + other.names,
            pattern_names: self.pattern_names + other.pattern_names,
            overlaps: self.overlaps * other.overlaps,
            counts_properties: self.counts_properties || other.counts_properties,
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            alternatives: self.alternatives.saturating_add(other.alternatives),
            names: self.names.max(other.names),
            pattern_names: self.pattern_names.max(other.pattern_names),
            overlaps: self.overlaps.max(other.overlaps),
            counts_properties: self.counts_properties || other.counts_properties,
        }
    }

    const NOTHING: Self = Self {
        alternatives: 1,
        names: 0,
        pattern_names: 0,
        overlaps: 1.0,
        counts_properties: false,
    };
}

/// Looks at what holds together below each of `starts`, the places where something does.
pub(super) fn check(schema: &Value, starts: &[String]) -> Result<(), GrammarError> {
    let mut look = Look {
        root: schema,
        left: MOST_LOOKS,
        overlaps: FxHashMap::default(),
    };
    for start in starts {
        let Some(found) = schema.pointer(&start[1..]) else {
            continue;
        };
        look.visit(&Held::One(found))
            .map_err(|what| GrammarError::Schema {
                what,
                pointer: start.clone(),
            })?;
    }
    Ok(())
}

struct Look<'s> {
    root: &'s Value,
    left: usize,
    overlaps: FxHashMap<&'s str, f64>,
}

impl<'s> Look<'s> {
    fn visit(&mut self, held: &Held<'s>) -> Result<(), String> {
        let held = self.expand(held, &mut Vec::new())?;
        let cost = self.cost(&held);
        over(
            "names of properties, squared, times the alternatives",
            cost.names
                .saturating_mul(cost.names)
                .saturating_mul(cost.alternatives),
            MOST_PROPERTIES_SQUARED,
        )?;
        over(
            "`patternProperties`, squared, times the alternatives",
            cost.pattern_names
                .saturating_mul(cost.pattern_names)
                .saturating_mul(cost.alternatives),
            MOST_PATTERN_NAMES_SQUARED,
        )?;
        if cost.counts_properties {
            over(
                "names of properties beside `minProperties` or `maxProperties`, cubed",
                cost.names.saturating_pow(3),
                MOST_PROPERTIES_CUBED,
            )?;
        }
        if cost.overlaps > MOST_OVERLAPS {
            return Err(format!(
                "too many patterns hold for one text together: they overlap in more than {MOST_OVERLAPS} ways"
            ));
        }
        let mut names = FxHashSet::default();
        names_of(&held, &mut names);
        let mut names: Vec<&str> = names.into_iter().collect();
        names.sort_unstable();
        let steps = names.into_iter().map(Step::Name);
        for step in steps.chain([Step::Other, Step::Item]) {
            let Some(inner) = self.step(&held, step)? else {
                continue;
            };
            // What a single schema says is looked at by itself.
            if inner.parts() > 1 {
                self.visit(&inner)?;
            }
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), String> {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            "too many schemas hold together, or they refer to each other without end".to_owned()
        })?;
        Ok(())
    }

    /// With what stands in place: references, `allOf`, `anyOf`, `oneOf`. `on_way`: the references that led here.
    fn expand(&mut self, held: &Held<'s>, on_way: &mut Vec<&'s str>) -> Result<Held<'s>, String> {
        self.look()?;
        let map = match held {
            Held::All(inner) => {
                let inner = inner.iter().map(|one| self.expand(one, on_way));
                return Ok(Held::All(inner.collect::<Result<_, _>>()?));
            }
            Held::Any(inner) => {
                let inner = inner.iter().map(|one| self.expand(one, on_way));
                return Ok(Held::Any(inner.collect::<Result<_, _>>()?));
            }
            Held::One(Value::Object(map)) => map,
            Held::One(_) => return Ok(held.clone()),
        };
        let mut all = vec![held.clone()];
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            let target = reference.trim_end_matches('/');
            let found = target.get(1..).and_then(|place| self.root.pointer(place));
            if let Some(found) = found.filter(|_| !on_way.contains(&target)) {
                on_way.push(target);
                all.push(self.expand(&Held::One(found), on_way)?);
                on_way.pop();
            }
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let Some(Value::Array(items)) = map.get(keyword) else {
                continue;
            };
            let inner = items
                .iter()
                .map(|item| self.expand(&Held::One(item), on_way));
            let inner = inner.collect::<Result<Vec<_>, _>>()?;
            if keyword == "allOf" {
                all.extend(inner);
            } else {
                all.push(Held::Any(inner));
            }
        }
        Ok(Held::All(all))
    }

    fn step(&mut self, held: &Held<'s>, step: Step<'_>) -> Result<Option<Held<'s>>, String> {
        self.look()?;
        let (inner, all) = match held {
            Held::One(Value::Object(map)) => return Ok(step_of(map, step)),
            Held::One(_) => return Ok(None),
            Held::All(inner) => (inner, true),
            Held::Any(inner) => (inner, false),
        };
        let mut found = Vec::new();
        for one in inner {
            found.extend(self.step(one, step)?);
        }
        Ok(match found.len() {
            0 => None,
            1 => found.pop(),
            _ if all => Some(Held::All(found)),
            _ => Some(Held::Any(found)),
        })
    }

    fn cost(&mut self, held: &Held<'s>) -> Cost {
        match held {
            Held::One(Value::Object(map)) => self.own_cost(map),
            Held::One(_) => Cost::NOTHING,
            Held::All(inner) => {
                let costs = inner.iter().map(|one| self.cost(one));
                costs.fold(Cost::NOTHING, Cost::and)
            }
            Held::Any(inner) => {
                let costs = inner.iter().map(|one| self.cost(one));
                costs.reduce(Cost::or).unwrap_or(Cost::NOTHING)
            }
        }
    }

    fn own_cost(&mut self, map: &'s Map<String, Value>) -> Cost {
        let mut overlaps = 1.0;
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            overlaps *= *self
                .overlaps
                .entry(pattern)
                .or_insert_with(|| overlap(pattern));
        }
        if map.contains_key("format") {
            overlaps *= FORMAT_OVERLAP;
        }
        let pattern_names = map.get("patternProperties").and_then(Value::as_object);
        Cost {
            alternatives: 1,
            names: own_names(map),
            pattern_names: pattern_names.map_or(0, Map::len),
            overlaps,
            counts_properties: map.contains_key("minProperties")
                || map.contains_key("maxProperties"),
        }
    }
}

fn over(of: &str, count: usize, limit: usize) -> Result<(), String> {
    if count > limit {
        return Err(format!(
            "the schemas that hold together have {count} {of}, at most {limit} are allowed"
        ));
    }
    Ok(())
}

fn names_of<'s>(held: &Held<'s>, names: &mut FxHashSet<&'s str>) {
    match held {
        Held::One(Value::Object(map)) => {
            if let Some(Value::Object(properties)) = map.get("properties") {
                names.extend(properties.keys().map(String::as_str));
            }
        }
        Held::One(_) => {}
        Held::All(inner) | Held::Any(inner) => {
            for one in inner {
                names_of(one, names);
            }
        }
    }
}

/// What one schema says of a value within its own.
fn step_of<'s>(map: &'s Map<String, Value>, step: Step<'_>) -> Option<Held<'s>> {
    let one = |keyword: &str| map.get(keyword).filter(|it| it.is_object()).map(Held::One);
    let mut found = Vec::new();
    match step {
        Step::Name(name) => {
            let properties = map.get("properties").and_then(Value::as_object);
            if let Some(schema) = properties.and_then(|it| it.get(name)) {
                return Some(Held::One(schema));
            }
            return step_of(map, Step::Other);
        }
        Step::Other => {
            let named = map.get("patternProperties").and_then(Value::as_object);
            found.extend(named.into_iter().flat_map(Map::values).map(Held::One));
            found.extend(one("additionalProperties"));
        }
        Step::Item => {
            for keyword in ["prefixItems", "items"] {
                let listed = map.get(keyword).and_then(Value::as_array);
                found.extend(listed.into_iter().flatten().map(Held::One));
            }
            found.extend(one("items"));
            found.extend(one("additionalItems"));
        }
    }
    match found.len() {
        0 => None,
        1 => found.pop(),
        _ => Some(Held::Any(found)),
    }
}
