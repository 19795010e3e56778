//! Values as Python writes them (`str` and `repr`), and Python's ways with texts.

use super::budget::{Growing, TEXT_LIMIT, TooMuch};
use minijinja::Error;
use minijinja::value::{Kwargs, Value, ValueKind};
use std::fmt::Write;

/// Deepest nesting that is written.
pub(super) const DEPTH_LIMIT: usize = 100;

/// Python's white space is Unicode's and four control characters.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// `str(value)`.
pub(super) fn text(value: &Value) -> Result<String, Error> {
    if let Some(text) = value.as_str() {
        return Ok(text.to_owned());
    }
    repr(value)
}

/// `repr(value)`.
pub(super) fn repr(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write_repr(value, 0, &mut out)?;
    Ok(out)
}

fn write_repr(value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    if out.len() > TEXT_LIMIT {
        return Err(TooMuch::error(TEXT_LIMIT));
    }
    if depth > DEPTH_LIMIT {
        out.push_str("...");
        return Ok(());
    }
    match value.kind() {
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => out.push_str(&number(value)),
        ValueKind::String => out.push_str(&quoted(value.as_str().unwrap_or_default())),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (index, item) in value.try_iter()?.enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(&item, depth + 1, out)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write_repr(&key, depth + 1, out)?;
                out.push_str(": ");
                write_repr(&value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

/// `str.title`: a letter after what is no letter is large, others are small.
pub(super) fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_inside = false;
    for character in text.chars() {
        if is_inside {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
        }
        is_inside = character.is_lowercase() || character.is_uppercase();
    }
    out
}

/// Jinja's filter of the same name, which knows fewer ends of words.
pub(super) fn title_filter(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_inside = false;
    for character in text.chars() {
        if is_space(character) || matches!(character, '-' | '(' | '{' | '[' | '<') {
            out.push(character);
            is_inside = false;
        } else if is_inside {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
            is_inside = true;
        }
    }
    out
}

/// `str.capitalize`.
pub(super) fn capitalize(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + &characters.as_str().to_lowercase()
    })
}

/// Text as markup.
pub(super) fn escape(text: &str) -> Result<String, Error> {
    let mut out = Growing::default();
    let mut rest = text;
    while let Some(place) = rest.find(['&', '<', '>', '\'', '"']) {
        out.push(&rest[..place])?;
        out.push(match rest.as_bytes()[place] {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'\'' => "&#39;",
            _ => "&#34;",
        })?;
        rest = &rest[place + 1..];
    }
    out.push(rest)?;
    Ok(out.finish())
}

/// Spaces other than the plain one, marks of direction and the like. (Private-use characters stay as they are: masks are
/// such, and must stay one character.)
fn is_unprintable(character: char) -> bool {
    matches!(
        character,
        '\u{1680}' | '\u{180e}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{205f}'..='\u{206f}'
            | '\u{3000}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
    )
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
            _ if is_unprintable(character) => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
    out
}

pub(super) fn number(value: &Value) -> String {
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
pub(super) fn indent(
    text: &str,
    width: Option<Value>,
    first: Option<bool>,
    blank: Option<bool>,
    options: &Kwargs,
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
    let mut out = Growing::default();
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            out.push("\n")?;
        }
        let has_margin = if index == 0 {
            first
        } else {
            blank || !line.is_empty()
        };
        if has_margin {
            out.push(&margin)?;
        }
        out.push(line)?;
    }
    Ok(out.finish())
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
