//! Cutting, searching and filling up texts as Python does: places count characters.

use super::budget::{Growing, ITEM_LIMIT, too_many_items};
use super::filters::failure;
use super::python::is_space;
use minijinja::Error;
use minijinja::value::{Kwargs, Value, from_args};
use std::collections::HashSet;

/// Characters that are cut off the ends of a text: white space unless said.
pub(super) enum CutSet<'a> {
    Spaces,
    Few(&'a str),
    Many(HashSet<char>),
}

impl<'a> CutSet<'a> {
    pub(super) fn new(set: Option<&'a str>) -> Self {
        match set {
            None => Self::Spaces,
            Some(few) if few.len() <= 32 => Self::Few(few),
            Some(many) => Self::Many(many.chars().collect()),
        }
    }

    pub(super) fn holds(&self, character: char) -> bool {
        match self {
            Self::Spaces => is_space(character),
            Self::Few(few) => few.contains(character),
            Self::Many(many) => many.contains(&character),
        }
    }
}

pub(super) fn replace(
    text: &str,
    old: &str,
    new: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    let most = count
        .and_then(|count| usize::try_from(count).ok())
        .unwrap_or(usize::MAX);
    let mut out = Growing::default();
    let mut last = 0;
    for (start, part) in text.match_indices(old).take(most) {
        out.push(&text[last..start])?;
        out.push(new)?;
        last = start + part.len();
    }
    out.push(&text[last..])?;
    Ok(out.finish())
}

pub(super) fn split(text: &str, from_right: bool, args: &[Value]) -> Result<Value, Error> {
    let (separator, most, options): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = separator.or(options.get("sep")?);
    let most = most.or(options.get("maxsplit")?);
    options.assert_all_used()?;
    let pieces = most
        .and_then(|most| usize::try_from(most).ok())
        .map_or(usize::MAX, |most| most.saturating_add(1));
    let (pieces, is_bounded) = (pieces.min(ITEM_LIMIT + 1), pieces > ITEM_LIMIT);
    let mut parts: Vec<&str> = match separator {
        Some("") => return Err(failure("empty separator")),
        Some(separator) if from_right => text.rsplitn(pieces, separator).collect(),
        Some(separator) => text.splitn(pieces, separator).collect(),
        None => at_spaces(text, from_right, pieces),
    };
    if is_bounded && parts.len() > ITEM_LIMIT {
        return Err(too_many_items());
    }
    if from_right {
        parts.reverse();
    }
    Ok(parts.into_iter().collect())
}

/// Words; the last of `pieces` is the rest as it is.
fn at_spaces(text: &str, from_right: bool, pieces: usize) -> Vec<&str> {
    let trim = |text| {
        if from_right {
            str::trim_end_matches(text, is_space)
        } else {
            str::trim_start_matches(text, is_space)
        }
    };
    let mut parts = Vec::new();
    let mut rest = trim(text);
    while !rest.is_empty() {
        if parts.len() + 1 == pieces {
            parts.push(rest);
            break;
        }
        let (word, after) = if from_right {
            rest.rfind(is_space).map_or((rest, ""), |space| {
                let end = space + rest[space..].chars().next().map_or(1, char::len_utf8);
                (&rest[end..], &rest[..space])
            })
        } else {
            rest.find(is_space)
                .map_or((rest, ""), |space| (&rest[..space], &rest[space..]))
        };
        parts.push(word);
        rest = trim(after);
    }
    parts
}

/// Python's line ends, a carriage return with its line feed as one.
pub(super) fn lines(text: &str, keep_ends: bool) -> Result<Vec<&str>, Error> {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_end) {
        if out.len() == ITEM_LIMIT {
            return Err(too_many_items());
        }
        let length = if rest[start..].starts_with("\r\n") {
            2
        } else {
            rest[start..].chars().next().map_or(1, char::len_utf8)
        };
        out.push(if keep_ends {
            &rest[..start + length]
        } else {
            &rest[..start]
        });
        rest = &rest[start + length..];
    }
    if !rest.is_empty() {
        out.push(rest);
    }
    Ok(out)
}

/// Byte range of Python's `[start:end]`, which counts characters.
pub(super) fn window(text: &str, start: Option<i64>, end: Option<i64>) -> std::ops::Range<usize> {
    if start.is_none() && end.is_none() {
        return 0..text.len();
    }
    let count = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let place = |index: i64| {
        let index = if index < 0 {
            (index + count).max(0)
        } else {
            index
        };
        usize::try_from(index).map_or(text.len(), |index| {
            text.char_indices()
                .nth(index)
                .map_or(text.len(), |(place, _)| place)
        })
    };
    let from = start.map_or(0, place);
    let to = end.map_or(text.len(), place);
    from.min(to)..to
}

pub(super) fn search(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    let (part, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
    let range = window(text, start, end);
    let within = &text[range.clone()];
    if method == "count" {
        return Ok(match part {
            "" => within.chars().count() + 1,
            part => within.matches(part).count(),
        }
        .into());
    }
    let found = if method.starts_with('r') {
        within.rfind(part)
    } else {
        within.find(part)
    };
    match found {
        Some(place) => Ok(text[..range.start + place].chars().count().into()),
        None if method.ends_with("find") => Ok((-1).into()),
        None => Err(failure("substring not found")),
    }
}

pub(super) fn padded(text: &str, method: &str, args: &[Value]) -> Result<String, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let fill = fill.unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(failure("the fill must be one character"));
    }
    let length = text.chars().count();
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(length);
    let mut out = Growing::default();
    if method == "zfill" {
        let (sign, digits) = match text.strip_prefix(['-', '+']) {
            Some(digits) => text.split_at(text.len() - digits.len()),
            None => ("", text),
        };
        out.push(sign)?;
        out.repeat("0", missing)?;
        out.push(digits)?;
        return Ok(out.finish());
    }
    let before = match method {
        "ljust" => 0,
        "rjust" => missing,
        // Where it does not come out even, Python looks at the width.
        _ => missing / 2 + (missing & usize::try_from(width).unwrap_or(0) & 1),
    };
    out.repeat(fill, before)?;
    out.push(text)?;
    out.repeat(fill, missing - before)?;
    Ok(out.finish())
}

pub(super) fn expand_tabs(text: &str, width: usize) -> Result<String, Error> {
    let mut out = Growing::default();
    let mut column = 0;
    let mut buffer = [0; 4];
    for c in text.chars() {
        if c == '\t' && width > 0 {
            let spaces = width - column % width;
            out.repeat(" ", spaces)?;
            column += spaces;
        } else if c != '\t' {
            out.push(c.encode_utf8(&mut buffer))?;
            column = if matches!(c, '\n' | '\r') {
                0
            } else {
                column + 1
            };
        }
    }
    Ok(out.finish())
}
