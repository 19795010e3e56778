//! `json.dumps`.

use super::budget::Growing;
use super::python::{DEPTH_LIMIT, number};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// Arguments of `json.dumps`.
#[derive(Debug, Default)]
pub(super) struct JsonSettings {
    pub(super) ensure_ascii: bool,
    pub(super) sort_keys: bool,
    /// One level of it.
    pub(super) indent: Option<String>,
    /// Between items, and between key and value.
    pub(super) separators: Option<(String, String)>,
}

pub(super) fn json(value: &Value, settings: &JsonSettings) -> Result<String, Error> {
    let default_item = if settings.indent.is_some() { "," } else { ", " };
    let (item, key) = match &settings.separators {
        Some((item, key)) => (item.as_str(), key.as_str()),
        None => (default_item, ": "),
    };
    let mut writer = JsonWriter {
        out: Growing::default(),
        settings,
        item,
        key,
    };
    writer.value(value, 0)?;
    Ok(writer.out.finish())
}

struct JsonWriter<'a> {
    out: Growing,
    settings: &'a JsonSettings,
    item: &'a str,
    key: &'a str,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_LIMIT {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "tojson: nested too deep",
            ));
        }
        match value.kind() {
            ValueKind::None => self.out.push("null")?,
            ValueKind::Bool => self
                .out
                .push(if value.is_true() { "true" } else { "false" })?,
            ValueKind::Number => self.out.push(&number(value))?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.group("[", "]", items.len(), depth, |writer, index| {
                    writer.value(&items[index], depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    let item = value.get_item(&key)?;
                    entries.push((key_text(&key)?, item));
                }
                if self.settings.sort_keys {
                    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
                }
                self.group("{", "}", entries.len(), depth, |writer, index| {
                    let (key, item) = &entries[index];
                    writer.string(key)?;
                    writer.out.push(writer.key)?;
                    writer.value(item, depth + 1)
                })?;
            }
            ValueKind::Undefined => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "tojson: Object of type Undefined is not JSON serializable",
                ));
            }
            kind => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("tojson: a value of type {kind} is not JSON serializable"),
                ));
            }
        }
        Ok(())
    }

    fn group(
        &mut self,
        open: &str,
        close: &str,
        length: usize,
        depth: usize,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open)?;
        for index in 0..length {
            if index > 0 {
                self.out.push(self.item)?;
            }
            self.line(depth + 1)?;
            item(self, index)?;
        }
        if length > 0 {
            self.line(depth)?;
        }
        self.out.push(close)
    }

    fn line(&mut self, depth: usize) -> Result<(), Error> {
        match &self.settings.indent {
            Some(indent) => {
                self.out.push("\n")?;
                self.out.repeat(indent, depth)
            }
            None => Ok(()),
        }
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.out.push("\"")?;
        let is_plain = |c: char| match c {
            '"' | '\\' => false,
            ' '..='~' => true,
            '\u{7f}'.. => !self.settings.ensure_ascii,
            _ => false,
        };
        let mut rest = text;
        while let Some(place) = rest.find(|c| !is_plain(c)) {
            self.out.push(&rest[..place])?;
            let mut characters = rest[place..].chars();
            if let Some(character) = characters.next() {
                match character {
                    '"' => self.out.push("\\\"")?,
                    '\\' => self.out.push("\\\\")?,
                    '\n' => self.out.push("\\n")?,
                    '\r' => self.out.push("\\r")?,
                    '\t' => self.out.push("\\t")?,
                    '\u{8}' => self.out.push("\\b")?,
                    '\u{c}' => self.out.push("\\f")?,
                    _ => {
                        for unit in character.encode_utf16(&mut [0; 2]) {
                            self.out.push(&format!("\\u{unit:04x}"))?;
                        }
                    }
                }
            }
            rest = characters.as_str();
        }
        self.out.push(rest)?;
        self.out.push("\"")
    }
}

/// Python has the same keys in JSON: texts, numbers, booleans and None.
fn key_text(key: &Value) -> Result<String, Error> {
    Ok(match key.kind() {
        ValueKind::String => key.as_str().unwrap_or_default().to_owned(),
        ValueKind::None => "null".into(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number => number(key),
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("tojson: a key of type {kind} is not JSON"),
            ));
        }
    })
}
