//! `json.dumps`.

use super::budget::{TEXT_LIMIT, TooMuch};
use super::python::{DEPTH_LIMIT, number};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

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
        out: String::new(),
        settings,
        item,
        key,
    };
    writer.value(value, 0)?;
    Ok(writer.out)
}

struct JsonWriter<'a> {
    out: String,
    settings: &'a JsonSettings,
    item: &'a str,
    key: &'a str,
}

impl JsonWriter<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if self.out.len() > TEXT_LIMIT {
            return Err(TooMuch::error(TEXT_LIMIT));
        }
        if depth > DEPTH_LIMIT {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "tojson: nested too deep",
            ));
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self
                .out
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                let items: Vec<Value> = value.try_iter()?.collect();
                self.group('[', ']', items.len(), depth, |writer, index| {
                    writer.value(&items[index], depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    let item = value.get_item(&key)?;
                    entries.push((key_text(&key), item));
                }
                if self.settings.sort_keys {
                    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
                }
                self.group('{', '}', entries.len(), depth, |writer, index| {
                    let (key, item) = &entries[index];
                    writer.string(key);
                    writer.out.push_str(writer.key);
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
        open: char,
        close: char,
        length: usize,
        depth: usize,
        mut item: impl FnMut(&mut Self, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        for index in 0..length {
            if index > 0 {
                self.out.push_str(self.item);
            }
            self.line(depth + 1);
            item(self, index)?;
        }
        if length > 0 {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.settings.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                ' '..='~' => self.out.push(character),
                '\u{7f}'.. if !self.settings.ensure_ascii => self.out.push(character),
                _ => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
            }
        }
        self.out.push('"');
    }
}

fn key_text(key: &Value) -> String {
    match key.kind() {
        ValueKind::None => "null".into(),
        ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number => number(key),
        _ => key.to_string(),
    }
}
