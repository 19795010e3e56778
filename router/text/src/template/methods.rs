//! Methods of texts, lists and objects, as Python has them: those that leave their value as it is. (In `transformers`'
//! sandbox the others fail, too.)

use super::budget::{self, Growing, TEXT_LIMIT, TooMuch};
use super::filters::failure;
use super::python::{self, is_space};
use super::text_parts::{CutSet, expand_tabs, lines, padded, replace, search, split, window};
use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, FormatStyle, State, format_filter};

/// Called for every method that the engine does not have.
pub(super) fn call(
    _state: &State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    budget::read(value)?;
    budget::read_all(args)?;
    let result = match value.kind() {
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            match of_case_and_kind(text, method) {
                Some(result) => {
                    let () = from_args(args)?;
                    result
                }
                None => of_text(text, method, args)?,
            }
        }
        ValueKind::Map => of_object(value, method, args)?,
        ValueKind::Seq => of_list(value, method, args)?,
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    };
    budget::weigh(&result)?;
    let keeps_markup = value.is_safe() && result.kind() == ValueKind::String;
    Ok(match result.as_str() {
        Some(text) if keeps_markup => Value::from_safe_string(text.to_owned()),
        _ => result,
    })
}

/// Methods without arguments.
fn of_case_and_kind(text: &str, method: &str) -> Option<Value> {
    let all = |is: fn(char) -> bool| !text.is_empty() && text.chars().all(is);
    let cased = || {
        text.chars()
            .filter(|c| c.is_lowercase() || c.is_uppercase())
    };
    Some(match method {
        "upper" => text.to_uppercase().into(),
        "lower" | "casefold" if method == "lower" || text.is_ascii() => text.to_lowercase().into(),
        "casefold" => text.replace('ß', "ss").to_lowercase().into(),
        "title" => python::title(text).into(),
        "capitalize" => python::capitalize(text).into(),
        "swapcase" => text
            .chars()
            .flat_map(|c| {
                if c.is_uppercase() {
                    c.to_lowercase().collect::<Vec<_>>()
                } else {
                    c.to_uppercase().collect()
                }
            })
            .collect::<String>()
            .into(),
        "islower" => (cased().next().is_some() && cased().all(char::is_lowercase)).into(),
        "isupper" => (cased().next().is_some() && cased().all(char::is_uppercase)).into(),
        "istitle" => (cased().next().is_some() && python::title(text) == text).into(),
        "isspace" => all(is_space).into(),
        "isdecimal" => all(|c| c.is_ascii_digit() || is_other_decimal(c)).into(),
        "isdigit" => {
            all(|c| c.is_ascii_digit() || is_other_decimal(c) || is_raised_digit(c)).into()
        }
        "isnumeric" => all(char::is_numeric).into(),
        "isalnum" => all(char::is_alphanumeric).into(),
        "isalpha" => all(char::is_alphabetic).into(),
        "isascii" => text.is_ascii().into(),
        "isprintable" => text.chars().all(|c| !c.is_control()).into(),
        "isidentifier" => {
            (all(|c| c == '_' || c.is_alphanumeric()) && !text.starts_with(char::is_numeric)).into()
        }
        _ => return None,
    })
}

/// Decimal digits of other scripts come in runs of ten.
fn is_other_decimal(c: char) -> bool {
    const RUNS: [u32; 12] = [
        0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0BE6, 0x0E50, 0x0ED0, 0x0F20,
        0xFF10,
    ];
    RUNS.iter()
        .any(|run| (*run..run + 10).contains(&u32::from(c)))
}

fn is_raised_digit(c: char) -> bool {
    matches!(c, '²' | '³' | '¹' | '⁰' | '⁴'..='⁹' | '₀'..='₉' | '①'..='⑨')
}

fn of_text(text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    Ok(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (set,): (Option<&str>,) = from_args(args)?;
            let cut = CutSet::new(set);
            let is_cut = |c: char| cut.holds(c);
            match method {
                "strip" => text.trim_matches(is_cut),
                "lstrip" => text.trim_start_matches(is_cut),
                _ => text.trim_end_matches(is_cut),
            }
            .into()
        }
        "removeprefix" => {
            let (part,): (&str,) = from_args(args)?;
            text.strip_prefix(part).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            text.strip_suffix(part).unwrap_or(text).into()
        }
        "replace" => {
            let (old, new, count): (&str, &str, Option<i64>) = from_args(args)?;
            replace(text, old, new, count)?.into()
        }
        "split" | "rsplit" => split(text, method == "rsplit", args)?,
        "splitlines" => {
            let (keep, options): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(options.get("keepends")?).unwrap_or(false);
            options.assert_all_used()?;
            lines(text, keep)?.into_iter().collect()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            if separator.is_empty() {
                return Err(failure("empty separator"));
            }
            let is_first = method == "partition";
            let parts = if is_first {
                text.split_once(separator)
            } else {
                text.rsplit_once(separator)
            };
            match (parts, is_first) {
                (Some((before, after)), _) => [before, separator, after],
                (None, true) => [text, "", ""],
                (None, false) => ["", "", text],
            }
            .into_iter()
            .collect()
        }
        "count" | "find" | "rfind" | "index" | "rindex" => search(text, method, args)?,
        "startswith" | "endswith" => is_end(text, method == "startswith", args)?.into(),
        "join" => joined(text, args)?.into(),
        "ljust" | "rjust" | "center" | "zfill" => padded(text, method, args)?.into(),
        "expandtabs" => {
            let (width,): (Option<usize>,) = from_args(args)?;
            expand_tabs(text, width.unwrap_or(8))?.into()
        }
        "format" => format(FormatStyle::StrFormat, text, args)?.into(),
        _ => return Err(Error::from(ErrorKind::UnknownMethod)),
    })
}

/// Whether the text, or a window of it, starts or ends with one of the parts.
fn is_end(text: &str, is_start: bool, args: &[Value]) -> Result<bool, Error> {
    let (parts, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
    let text = &text[window(text, start, end)];
    let holds = |part: &str| {
        if is_start {
            text.starts_with(part)
        } else {
            text.ends_with(part)
        }
    };
    Ok(match (parts.as_str(), parts.kind()) {
        (Some(part), _) => holds(part),
        (None, ValueKind::Seq) => {
            budget::read_nested(parts)?;
            let mut any = false;
            for part in parts.try_iter()? {
                let part = part.as_str();
                any |= holds(part.ok_or_else(|| failure("expected texts"))?);
            }
            any
        }
        _ => return Err(failure("expected a text or a tuple of texts")),
    })
}

/// The items with the text between them.
fn joined(text: &str, args: &[Value]) -> Result<String, Error> {
    let (items,): (&Value,) = from_args(args)?;
    let mut out = Growing::default();
    for (index, item) in items.try_iter()?.enumerate() {
        if index > 0 {
            out.push(text)?;
        }
        let Some(item) = item.as_str() else {
            return Err(failure("join: expected texts"));
        };
        out.push(item)?;
    }
    Ok(out.finish())
}

/// `str.format` and `%`; what is not a number looks as Python writes it.
pub(super) fn format(style: FormatStyle, text: &str, args: &[Value]) -> Result<String, Error> {
    // A width beyond this is a mistake or worse; the engine would allocate it.
    let mut widest: usize = 0;
    let mut number = String::new();
    for c in text.chars().chain(" ".chars()) {
        if c.is_ascii_digit() {
            number.push(c);
            if number.len() > 4 {
                return Err(failure("format: a width or precision of more than 9999"));
            }
        } else if !number.is_empty() {
            widest = widest.max(number.parse().unwrap_or(0));
            number.clear();
        }
    }
    let args: Vec<Value> = args
        .iter()
        .map(|value| {
            if !value.is_kwargs() {
                return shown(value);
            }
            let mut named = Vec::new();
            for key in value.try_iter()? {
                let item = shown(&value.get_item(&key)?)?;
                named.push((key.to_string(), item));
            }
            Ok(named.into_iter().collect::<Kwargs>().into())
        })
        .collect::<Result<_, Error>>()?;
    let longest = args
        .iter()
        .map(|value| {
            if value.is_kwargs() {
                let texts = value.try_iter().into_iter().flatten();
                texts
                    .filter_map(|key| value.get_item(&key).ok())
                    .filter_map(|item| item.as_str().map(str::len))
                    .max()
                    .unwrap_or(0)
            } else {
                value.as_str().map_or(0, str::len)
            }
        })
        .max()
        .unwrap_or(0);
    // At each place a text, quoted at worst, or a number's digits, filled up.
    let most_at_one = longest
        .saturating_mul(QUOTED)
        .max(DIGITS)
        .saturating_add(widest.saturating_mul(2 * 4));
    let places = text.matches(['{', '%']).count();
    if text
        .len()
        .saturating_add(places.saturating_mul(most_at_one))
        > TEXT_LIMIT.saturating_mul(QUOTED)
    {
        return Err(TooMuch::error(TEXT_LIMIT));
    }
    format_filter(style, text, &args)
}

/// A text quoted may have four times the bytes.
const QUOTED: usize = 4;
/// Digits of the largest number.
const DIGITS: usize = 400;

/// What is not a number as a text.
fn shown(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable | ValueKind::None | ValueKind::Map => {
            python::text(value).map(Value::from)
        }
        _ => Ok(value.clone()),
    }
}

fn of_object(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let pairs = || {
        value.try_iter().map(|keys| {
            keys.map(|key| {
                let item = value.get_item(&key).unwrap_or_default();
                (key, item)
            })
        })
    };
    match method {
        "copy" => Ok(value.clone()),
        "keys" => {
            let () = from_args(args)?;
            budget::collected(value.try_iter()?)
        }
        "values" => {
            let () = from_args(args)?;
            budget::collected(pairs()?.map(|(_, item)| item))
        }
        "items" => {
            let () = from_args(args)?;
            let items =
                budget::collected(pairs()?.map(|(key, item)| Value::from(vec![key, item])))?;
            budget::weigh_nested(&items)?;
            Ok(items)
        }
        "get" => {
            let (key, default): (&Value, Option<Value>) = from_args(args)?;
            budget::read_nested(key)?;
            let found = value.as_object().and_then(|object| object.get_value(key));
            Ok(found.unwrap_or_else(|| default.unwrap_or_else(|| Value::from(()))))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

fn of_list(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if matches!(method, "count" | "index") {
        budget::read_nested(value)?;
    }
    match method {
        "copy" => Ok(value.clone()),
        "count" => {
            let (wanted,): (&Value,) = from_args(args)?;
            Ok(value
                .try_iter()?
                .filter(|item| item == wanted)
                .count()
                .into())
        }
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            let place = value.try_iter()?.position(|item| item == *wanted);
            place
                .map(Value::from)
                .ok_or_else(|| failure("the value is not in the list"))
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}
