//! A request body as a tree that keeps what serde's own tree loses: keys given twice.

use crate::refusal::Refusal;
use headrace_text::OneLine;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Arrays and objects inside each other at most. Far above what any dialect needs, far below what could exhaust
/// a stack.
pub const MAX_DEPTH: usize = 64;

/// Members of one object at most: far above what any dialect needs. A known key is looked for among all members, so
/// this bounds the time that one object takes.
pub const MAX_KEYS: usize = 4096;

/// Characters of a key that errors show.
const SHOWN_KEY: usize = 64;

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
        let value = Seed { place: None }
            .deserialize(&mut deserializer)
            .and_then(|value| deserializer.end().map(|()| value));
        value.map_err(|error| Refusal::malformed_json(&error.to_string()))
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

    fn too_many_keys<E: serde::de::Error>(self) -> E {
        match self.place {
            None => E::custom(format_args!("the body has more than {MAX_KEYS} keys")),
            Some(place) => E::custom(format_args!(
                "`{}` has more than {MAX_KEYS} keys",
                OneLine(&place.to_string())
            )),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
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
                return Err(self.too_many_keys());
            }
            let place = self.inner(Step::Key(&key), depth);
            let value = members.next_value_seed(Seed {
                place: Some(&place),
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
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_duplicates() {
        let json = Json::parse(br#"{"b":1,"a":[1,2],"b":[1,"x",2]}"#).unwrap();
        let Json::Object(members) = json else {
            panic!("not an object")
        };
        assert_eq!(members[0].0, "b");
        assert_eq!(members[1].1, Json::Ids(vec![1, 2]));
        assert_eq!(
            members[2].1.to_value(),
            serde_json::json!([1, "x", 2]),
            "a mixed list keeps its order"
        );
    }

    #[test]
    fn an_object_of_too_many_keys_is_named() {
        let object = |keys: usize| {
            let members: Vec<String> = (0..keys).map(|key| format!("\"k{key}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        let most = object(MAX_KEYS);
        let over = object(MAX_KEYS + 1);
        for (body, place) in [
            (over.clone(), "the body"),
            (format!(r#"{{"parameters":{over}}}"#), "`parameters`"),
            (format!(r#"{{"messages":[1,{over}]}}"#), "`messages[1]`"),
            (
                format!(r#"{{"messages":[{{"content":["x",{over}]}}]}}"#),
                "`messages[0].content[1]`",
            ),
        ] {
            let refusal = Json::parse(body.as_bytes()).unwrap_err();
            let expected = format!(
                "Failed to parse the request body as JSON: {place} has more than 4096 keys"
            );
            assert!(
                refusal.message().starts_with(&expected),
                "{}",
                refusal.message()
            );
        }
        assert!(Json::parse(format!("[{most},{most}]").as_bytes()).is_ok());
    }

    #[test]
    fn refuses_deep_nesting_and_trailing_text() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(Json::parse(deep(MAX_DEPTH).as_bytes()).is_ok());
        let error = Json::parse(deep(MAX_DEPTH + 1).as_bytes()).unwrap_err();
        assert!(error.message().contains("nested deeper than 64 levels"));
        assert!(Json::parse(b"{} x").is_err());
        assert!(Json::parse(b"{").is_err());
        assert!(Json::parse(b"1e999").is_err());
        assert!(Json::parse(&[b'"', 0xff, b'"']).is_err());
    }
}
