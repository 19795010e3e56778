//! A request body as a tree that keeps what serde's own tree loses: keys given twice.

use crate::refusal::Refusal;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Arrays and objects inside each other at most. Far above what any dialect needs, far below what could exhaust
/// a stack.
pub const MAX_DEPTH: usize = 64;

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
        let value = Seed { depth: 0 }
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

/// Reads one value that lies `depth` levels deep.
#[derive(Clone, Copy)]
struct Seed {
    depth: usize,
}

impl Seed {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format_args!(
                "nested deeper than {MAX_DEPTH} levels"
            )));
        }
        Ok(Self {
            depth: self.depth + 1,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Seed {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed {
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
        let inner = self.deeper::<A::Error>()?;
        let mut ids: Vec<u32> = Vec::new();
        let mut rest: Vec<Json> = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
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
        let inner = self.deeper::<A::Error>()?;
        let mut object = Vec::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = members.next_value_seed(inner)?;
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
