//! A request body as a tree that keeps what serde's own tree loses: keys given twice.

use crate::refusal::Refusal;
use headrace_text::OneLine;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::cell::RefCell;
use std::fmt;

/// Arrays and objects inside each other at most. Far above what any dialect needs, far below what could exhaust
/// a stack.
pub const MAX_DEPTH: usize = 64;

/// Members of one object at most: far above what any dialect needs. A known key is looked for among all members, so
/// this bounds the time that one object takes.
pub const MAX_KEYS: usize = 4096;

/// Characters of a key that errors show.
const SHOWN_KEY: usize = 64;

/// Characters of the path to a field that errors show.
const SHOWN_PATH: usize = 200;

/// A JSON value. Objects keep order and duplicates.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A number as it was written.
    Number(serde_json::Number),
    /// A string.
    String(String),
    /// A list, unless it is [`Json::Ids`].
    Array(Vec<Json>),
    /// A non-empty list of integers that all fit 32 bits: token-id prompts are long, and this is 8 times smaller.
    Ids(Vec<u32>),
    /// Members in order.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a whole body.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut deserializer = serde_json::Deserializer::from_slice(bytes);
        let broken = RefCell::new(None);
        let seed = Seed {
            place: None,
            broken: &broken,
        };
        seed.deserialize(&mut deserializer)
            .and_then(|value| deserializer.end().map(|()| value))
            .map_err(|error| {
                let path = broken.take().unwrap_or_default();
                Refusal::malformed_json(&path, &error.to_string())
            })
    }

    /// What it is, for error messages. Never shows a whole long text.
    pub fn describe(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Bool(value) => format!("boolean `{value}`"),
            Self::Number(value) if value.is_f64() => format!("floating point `{value}`"),
            Self::Number(value) => format!("integer `{value}`"),
            Self::String(value) => {
                let head: String = value.chars().take(32).collect();
                if head.len() == value.len() {
                    format!("string {head:?}")
                } else {
                    format!("string {head:?}…")
                }
            }
            Self::Array(_) | Self::Ids(_) => "sequence".to_owned(),
            Self::Object(_) => "map".to_owned(),
        }
    }

    /// serde's tree, for what templates get. The last of equal keys wins.
    pub fn to_value(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Number(value) => value.clone().into(),
            Self::String(value) => value.clone().into(),
            Self::Array(items) => items.iter().map(Self::to_value).collect(),
            Self::Ids(ids) => ids.iter().copied().collect(),
            Self::Object(members) => serde_json::Value::Object(
                members
                    .iter()
                    .map(|(key, value)| (key.clone(), value.to_value()))
                    .collect(),
            ),
        }
    }

    /// `null`, `[]` or `{}`.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Array(items) => items.is_empty(),
            Self::Object(members) => members.is_empty(),
            _ => false,
        }
    }
}

/// Where a value lies: a step from its parent's place. Lives on the stack of the parse, so it costs nothing to keep.
#[derive(Clone, Copy)]
struct Place<'p> {
    parent: Option<&'p Place<'p>>,
    step: Step<'p>,
    /// Arrays and objects around it.
    depth: usize,
}

#[derive(Clone, Copy)]
enum Step<'p> {
    Key(&'p str),
    Index(usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(formatter)?;
        }
        match self.step {
            Step::Index(index) => write!(formatter, "[{index}]"),
            Step::Key(key) => {
                if self.parent.is_some() {
                    formatter.write_str(".")?;
                }
                write!(formatter, "{:.*}", SHOWN_KEY, OneLine(key))
            }
        }
    }
}

/// Reads one value; the body itself has no place.
#[derive(Clone, Copy)]
struct Seed<'p> {
    place: Option<&'p Place<'p>>,
    /// The path to the innermost value that could not be read.
    broken: &'p RefCell<Option<String>>,
}

impl<'p> Seed<'p> {
    /// The depth of what lies inside this value.
    fn deeper<E: serde::de::Error>(self) -> Result<usize, E> {
        let depth = self.place.map_or(0, |place| place.depth);
        if depth >= MAX_DEPTH {
            return Err(E::custom(format_args!(
                "nested deeper than {MAX_DEPTH} levels"
            )));
        }
        Ok(depth + 1)
    }

    fn inner(self, step: Step<'p>, depth: usize) -> Place<'p> {
        Place {
            parent: self.place,
            step,
            depth,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        let read = deserializer.deserialize_any(self);
        if read.is_err() {
            // The innermost value comes first.
            self.broken.borrow_mut().get_or_insert_with(|| {
                let path = self.place.map(ToString::to_string).unwrap_or_default();
                format!("{:.*}", SHOWN_PATH, OneLine(&path))
            });
        }
        read
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json, E> {
        serde_json::Number::from_f64(value)
            .map(Json::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let depth = self.deeper::<A::Error>()?;
        let mut ids: Vec<u32> = Vec::new();
        let mut rest: Vec<Json> = Vec::new();
        loop {
            let place = self.inner(Step::Index(ids.len() + rest.len()), depth);
            let Some(item) = items.next_element_seed(Seed {
                place: Some(&place),
                broken: self.broken,
            })?
            else {
                break;
            };
            if rest.is_empty() {
                if let Some(id) = small_integer(&item) {
                    ids.push(id);
                    continue;
                }
                rest.extend(ids.drain(..).map(|id| Json::Number(id.into())));
            }
            rest.push(item);
        }
        Ok(if ids.is_empty() {
            Json::Array(rest)
        } else {
            Json::Ids(ids)
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let depth = self.deeper::<A::Error>()?;
        let mut object = Vec::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.len() == MAX_KEYS {
                return Err(serde::de::Error::custom(format_args!(
                    "more than {MAX_KEYS} keys in one object"
                )));
            }
            let place = self.inner(Step::Key(&key), depth);
            let value = members.next_value_seed(Seed {
                place: Some(&place),
                broken: self.broken,
            })?;
            object.push((key, value));
        }
        Ok(Json::Object(object))
    }
}

fn small_integer(value: &Json) -> Option<u32> {
    match value {
        Json::Number(number) => number.as_u64().and_then(|id| u32::try_from(id).ok()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
