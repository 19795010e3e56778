//! Reads the members of a JSON object one by one, naming the field in every error.

use crate::ignored::Ignored;
use crate::json::Json;
use crate::nearest::nearest;
use crate::refusal::Refusal;

/// One object of a request, and which of its keys were asked for.
#[derive(Debug)]
pub struct Fields<'a> {
    path: String,
    members: &'a [(String, Json)],
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The members of the object at `path` (empty for the body itself).
    pub fn of(json: &'a Json, path: &str) -> Result<Self, Refusal> {
        match json {
            Json::Object(members) => Ok(Self {
                path: path.to_owned(),
                members,
                known: Vec::new(),
            }),
            other => {
                let name = if path.is_empty() { "body" } else { path };
                Err(Refusal::wrong_type(name, &other.describe(), "a map"))
            }
        }
    }

    /// `parameters.stop` for the key `stop`.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// The value of a key; `None` when absent or `null`. A key given twice is refused.
    pub fn get(&mut self, key: &'static str) -> Result<Option<&'a Json>, Refusal> {
        self.known.push(key);
        let mut found = self.members.iter().filter(|(name, _)| name == key);
        let first = found.next();
        if found.next().is_some() {
            let path = self.path_of(key);
            return Err(Refusal::shape(&path, &format!("duplicate field `{path}`")));
        }
        Ok(first
            .map(|(_, value)| value)
            .filter(|value| !matches!(value, Json::Null)))
    }

    /// A key that must be there.
    pub fn required(&mut self, key: &'static str) -> Result<&'a Json, Refusal> {
        let path = self.path_of(key);
        self.get(key)?
            .ok_or_else(|| Refusal::shape(&path, &format!("missing field `{path}`")))
    }

    /// A string.
    pub fn string(&mut self, key: &'static str) -> Result<Option<&'a str>, Refusal> {
        match self.get(key)? {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(key, other, "a string")),
        }
    }

    /// A boolean.
    pub fn boolean(&mut self, key: &'static str) -> Result<Option<bool>, Refusal> {
        match self.get(key)? {
            None => Ok(None),
            Some(Json::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(self.wrong(key, other, "a boolean")),
        }
    }

    /// A number that is finite as f32.
    pub fn float(&mut self, key: &'static str) -> Result<Option<f32>, Refusal> {
        match self.get(key)? {
            None => Ok(None),
            Some(json @ Json::Number(number)) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the wire's floats are f32, as in TGI; the next line refuses what does not fit"
                )]
                let value = number.as_f64().map(|value| value as f32);
                match value {
                    Some(value) if value.is_finite() => Ok(Some(value)),
                    _ => Err(self.wrong(key, json, "a 32-bit float")),
                }
            }
            Some(other) => Err(self.wrong(key, other, "a 32-bit float")),
        }
    }

    /// An integer from 0 to 2³² - 1.
    pub fn u32(&mut self, key: &'static str) -> Result<Option<u32>, Refusal> {
        let value = self.get(key)?;
        match value {
            None => Ok(None),
            Some(Json::Number(number)) if !number.is_f64() => match number.as_u64() {
                Some(value) => match u32::try_from(value) {
                    Ok(value) => Ok(Some(value)),
                    Err(_) => Err(self.invalid(key, &value.to_string(), "u32")),
                },
                None => Err(self.invalid(key, &number.to_string(), "u32")),
            },
            Some(other) => Err(self.wrong(key, other, "u32")),
        }
    }

    /// An integer from 0 to 2⁶⁴ - 1.
    pub fn u64(&mut self, key: &'static str) -> Result<Option<u64>, Refusal> {
        match self.get(key)? {
            None => Ok(None),
            Some(Json::Number(number)) if !number.is_f64() => match number.as_u64() {
                Some(value) => Ok(Some(value)),
                None => Err(self.invalid(key, &number.to_string(), "u64")),
            },
            Some(other) => Err(self.wrong(key, other, "u64")),
        }
    }

    /// An integer from -2⁶³ to 2⁶⁴ - 1.
    pub fn integer(&mut self, key: &'static str) -> Result<Option<i128>, Refusal> {
        match self.get(key)? {
            None => Ok(None),
            Some(Json::Number(number)) if !number.is_f64() => Ok(number.as_i128()),
            Some(other) => Err(self.wrong(key, other, "an integer")),
        }
    }

    /// A list of strings; with `bare`, one string counts as a list of one.
    pub fn strings(&mut self, key: &'static str, bare: bool) -> Result<Vec<String>, Refusal> {
        match self.get(key)? {
            None => Ok(Vec::new()),
            Some(Json::String(text)) if bare => Ok(vec![text.clone()]),
            Some(Json::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| match item {
                    Json::String(text) => Ok(text.clone()),
                    other => Err(Refusal::wrong_type(
                        &format!("{}[{index}]", self.path_of(key)),
                        &other.describe(),
                        "a string",
                    )),
                })
                .collect(),
            Some(Json::Ids(ids)) => Err(Refusal::wrong_type(
                &format!("{}[0]", self.path_of(key)),
                &format!("integer `{}`", ids.first().copied().unwrap_or_default()),
                "a string",
            )),
            Some(other) => Err(self.wrong(
                key,
                other,
                if bare {
                    "a string or a sequence of strings"
                } else {
                    "a sequence"
                },
            )),
        }
    }

    /// A list of token ids.
    pub fn ids(&mut self, key: &'static str) -> Result<Vec<u32>, Refusal> {
        match self.get(key)? {
            None => Ok(Vec::new()),
            Some(Json::Ids(ids)) => Ok(ids.clone()),
            Some(Json::Array(items)) => items
                .iter()
                .enumerate()
                .map(|(index, item)| token_id(item, &format!("{}[{index}]", self.path_of(key))))
                .collect(),
            Some(other) => Err(self.wrong(key, other, "a sequence of token ids")),
        }
    }

    /// Keys that are known, do nothing to the answer and need no value checks.
    pub fn advisory(&mut self, keys: &[&'static str]) -> Result<(), Refusal> {
        for key in keys {
            self.get(key)?;
        }
        Ok(())
    }

    /// A key that is refused unless its value changes nothing.
    pub fn refused_unless(
        &mut self,
        key: &'static str,
        neutral: impl Fn(&Json) -> bool,
    ) -> Result<(), Refusal> {
        match self.get(key)? {
            Some(value) if !neutral(value) => {
                Err(Refusal::unsupported(&self.path_of(key), "this field"))
            }
            _ => Ok(()),
        }
    }

    /// The keys that were asked for.
    pub fn known(&self) -> &[&'static str] {
        &self.known
    }

    /// Adds the keys that nobody asked for to `ignored`.
    pub fn finish(self, ignored: &mut Ignored) {
        self.finish_around("", &[], ignored);
    }

    /// The same, for an object whose member `inner` is an object that has the keys `inner_known`: whoever puts one of
    /// them too far out is told where it belongs.
    pub fn finish_around(self, inner: &str, inner_known: &[&str], ignored: &mut Ignored) {
        for (key, _) in self.members {
            if self.known.iter().any(|known| known == key) {
                continue;
            }
            let meant = || {
                let here = nearest(key, &self.known).map(|name| self.path_of(name));
                here.or_else(|| {
                    let name = nearest(key, inner_known)?;
                    Some(self.path_of(&format!("{inner}.{name}")))
                })
            };
            ignored.push(&self.path, key, meant);
        }
    }

    fn wrong(&self, key: &str, found: &Json, expected: &str) -> Refusal {
        Refusal::wrong_type(&self.path_of(key), &found.describe(), expected)
    }

    fn invalid(&self, key: &str, value: &str, expected: &str) -> Refusal {
        Refusal::invalid_integer(&self.path_of(key), value, expected)
    }
}

/// One id of a list.
fn token_id(item: &Json, path: &str) -> Result<u32, Refusal> {
    match item {
        Json::Number(number) if !number.is_f64() => number
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| Refusal::invalid_integer(path, &number.to_string(), "a token id")),
        other => Err(Refusal::wrong_type(path, &other.describe(), "a token id")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(
        body: &str,
        read: impl Fn(&mut Fields<'_>) -> Result<T, Refusal>,
    ) -> Result<T, String> {
        let json = Json::parse(body.as_bytes()).unwrap();
        let mut fields = Fields::of(&json, "parameters").unwrap();
        read(&mut fields).map_err(|refusal| refusal.message().to_owned())
    }

    #[test]
    fn names_the_field_and_what_was_found() {
        let prefix = "Failed to deserialize the JSON body into the target type: ";
        let cases = [
            (
                read(r#"{"a":"hot"}"#, |f| f.float("a").map(drop)),
                r#"parameters.a: invalid type: string "hot", expected a 32-bit float"#,
            ),
            (
                read(r#"{"a":1e39}"#, |f| f.float("a").map(drop)),
                "parameters.a: invalid type: floating point `1e+39`, expected a 32-bit float",
            ),
            (
                read(r#"{"a":-1}"#, |f| f.u32("a").map(drop)),
                "parameters.a: invalid value: integer `-1`, expected u32",
            ),
            (
                read(r#"{"a":4294967296}"#, |f| f.u32("a").map(drop)),
                "parameters.a: invalid value: integer `4294967296`, expected u32",
            ),
            (
                read(r#"{"a":1.5}"#, |f| f.u32("a").map(drop)),
                "parameters.a: invalid type: floating point `1.5`, expected u32",
            ),
            (
                read(r#"{"a":["x",1]}"#, |f| f.strings("a", false).map(drop)),
                "parameters.a[1]: invalid type: integer `1`, expected a string",
            ),
            (
                read(r#"{"a":[-1]}"#, |f| f.ids("a").map(drop)),
                "parameters.a[0]: invalid value: integer `-1`, expected a token id",
            ),
            (
                read(r#"{"a":[1,4294967296]}"#, |f| f.ids("a").map(drop)),
                "parameters.a[1]: invalid value: integer `4294967296`, expected a token id",
            ),
            (
                read(r#"{"a":["a"]}"#, |f| f.ids("a").map(drop)),
                r#"parameters.a[0]: invalid type: string "a", expected a token id"#,
            ),
            (
                read(r#"{"a":1,"a":2}"#, |f| f.u32("a").map(drop)),
                "duplicate field `parameters.a`",
            ),
            (
                read(r#"{"a":null}"#, |f| f.required("a").map(drop)),
                "missing field `parameters.a`",
            ),
        ];
        for (result, message) in cases {
            assert_eq!(result, Err(format!("{prefix}{message}")));
        }
    }

    #[test]
    fn null_is_absent_and_unknown_keys_are_named_once() {
        let json = Json::parse(br#"{"a":null,"b":1,"b":2,"c":3}"#).unwrap();
        let mut fields = Fields::of(&json, "").unwrap();
        assert_eq!(fields.float("a").unwrap(), None);
        assert_eq!(fields.u32("c").unwrap(), Some(3));
        let mut ignored = Ignored::default();
        fields.finish(&mut ignored);
        assert_eq!(ignored.keys(), ["b"]);
    }
}
