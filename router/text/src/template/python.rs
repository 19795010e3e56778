//! Values as Python writes them: `json.dumps` and `repr`.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::fmt::Write;

/// Deepest nesting that is written.
const DEPTH_LIMIT: usize = 100;

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

/// `str(value)`.
pub(super) fn text(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.to_owned(),
        None => repr(value, 0),
    }
}

fn repr(value: &Value, depth: usize) -> String {
    if depth > DEPTH_LIMIT {
        return "...".into();
    }
    match value.kind() {
        ValueKind::None => "None".into(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.into(),
        ValueKind::Number => number(value),
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => match value.try_iter() {
            Ok(items) => {
                let items: Vec<String> = items.map(|item| repr(&item, depth + 1)).collect();
                format!("[{}]", items.join(", "))
            }
            Err(_) => value.to_string(),
        },
        ValueKind::Map => match value.try_iter() {
            Ok(keys) => {
                let items: Vec<String> = keys
                    .map(|key| {
                        let item = value.get_item(&key).unwrap_or_default();
                        format!("{}: {}", repr(&key, depth + 1), repr(&item, depth + 1))
                    })
                    .collect();
                format!("{{{}}}", items.join(", "))
            }
            Err(_) => value.to_string(),
        },
        _ => value.to_string(),
    }
}

/// Python prefers single quotes.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(character);
            }
            '\0'..='\u{1f}' | '\u{7f}'..='\u{a0}' | '\u{ad}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
    out
}

fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
}

/// `repr(float)`: the shortest digits, in exponent form below 1e-4 and from 1e16.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') {
        plain
    } else {
        format!("{plain}.0")
    }
}

/// Jinja's `indent`: a last line feed stays, and so do empty lines unless `blank`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that minijinja calls filters with"
)]
pub(super) fn indent(
    text: String,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    options: Kwargs,
) -> Result<String, Error> {
    let width = match width {
        Some(width) => Some(width),
        None => options.get::<Option<Value>>("width")?,
    };
    let first = first.or(options.get("first")?).unwrap_or(false);
    let blank = blank.or(options.get("blank")?).unwrap_or(false);
    options.assert_all_used()?;
    let margin = match width {
        None => " ".repeat(4),
        Some(width) => match width.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(width)?.min(1024)),
        },
    };
    let mut out = String::new();
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        let has_margin = if index == 0 {
            first
        } else {
            blank || !line.is_empty()
        };
        if has_margin {
            out.push_str(&margin);
        }
        out.push_str(line);
    }
    Ok(out)
}

/// A message of several lines in one.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_look_like_python_s() {
        // Right-hand sides: `repr` of Python 3.11.
        for (value, expected) in [
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e16, "1e+16"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (1e15, "1000000000000000.0"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5e-7, "-2.5e-07"),
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(float(value), expected);
        }
    }
}
