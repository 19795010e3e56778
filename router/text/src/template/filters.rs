//! Filters that build texts and lists, by Python's rules, each charged for what it builds.
#![expect(
    clippy::needless_pass_by_value,
    reason = "the shape that the engine calls filters with"
)]

use super::budget::{self, Growing, TooMuch};
use super::{methods, numbers, operators, program, python, text_parts};
use minijinja::value::{Kwargs, Rest, Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, FormatStyle, State, filters};

/// Iterating a longer text makes a list of its characters.
const ITERATED_TEXT_LIMIT: usize = 4 << 20;

/// Registers them.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter(program::ADD, operators::add);
    environment.add_filter(program::CONCAT, operators::concat);
    environment.add_filter(program::REMAINDER, operators::remainder);
    environment.add_filter(program::WEIGH, |value: Value| {
        budget::weigh(&value).map(|()| value)
    });
    environment.add_filter(program::WEIGH_NESTED, |value: Value| {
        budget::weigh_nested(&value).map(|()| value)
    });
    environment.add_filter(program::HELD, |value: Value| {
        if value.kind() == ValueKind::Map {
            budget::weigh_nested(&value)?;
        }
        Ok::<Value, Error>(value)
    });
    environment.add_filter("upper", |value: &Value| {
        mapped(value, |text| Ok(text.to_uppercase()))
    });
    environment.add_filter("lower", |value: &Value| {
        mapped(value, |text| Ok(text.to_lowercase()))
    });
    environment.add_filter("title", |value: &Value| {
        mapped(value, |text| Ok(python::title_filter(text)))
    });
    environment.add_filter("capitalize", |value: &Value| {
        mapped(value, |text| Ok(python::capitalize(text)))
    });
    environment.add_filter("trim", trim);
    environment.add_filter("replace", replace);
    environment.add_filter("indent", indent);
    environment.add_filter("join", join);
    environment.add_filter("center", |value: &Value, width: Option<i64>| {
        let width = [Value::from(width.unwrap_or(80))];
        mapped(value, |text| text_parts::padded(text, "center", &width))
    });
    environment.add_filter("string", |value: Value| {
        if value.kind() == ValueKind::String {
            return Ok(value);
        }
        python::text(&value).and_then(|text| built(text, false))
    });
    environment.add_filter("format", |text: &Value, args: Rest<Value>| {
        let text = python::text(text)?;
        built(methods::format(FormatStyle::Printf, &text, &args)?, false)
    });
    for name in ["escape", "e"] {
        environment.add_filter(name, |value: &Value| built(markup(value)?, true));
    }
    environment.add_filter("forceescape", |value: &Value| {
        built(python::escape(&python::text(value)?)?, true)
    });
    environment.add_filter("wordcount", |value: &Value| {
        let text = python::text(value)?;
        let is_part = |c: char| c == '_' || c.is_alphanumeric();
        let words = text.split(|c| !is_part(c)).filter(|word| !word.is_empty());
        Ok::<usize, Error>(words.count())
    });
    for name in ["length", "count"] {
        environment.add_filter(name, |value: &Value| match value.kind() {
            ValueKind::Undefined => Ok(0),
            _ => filters::length(value),
        });
    }
    environment.add_filter("pprint", |value: &Value| python::repr(value));
    environment.add_filter("round", numbers::round);
    environment.add_filter("int", numbers::int);
    environment.add_filter("float", numbers::float);
    environment.add_filter("sum", numbers::sum);
    add_charged(environment);
}

/// The engine's own filters that make lists.
fn add_charged(environment: &mut Environment<'static>) {
    let own = [
        ("list", Value::from_function(filters::list)),
        ("batch", Value::from_function(filters::batch)),
        ("slice", Value::from_function(filters::slice)),
        ("sort", Value::from_function(filters::sort)),
        ("unique", Value::from_function(filters::unique)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("items", Value::from_function(filters::items)),
        ("groupby", Value::from_function(filters::groupby)),
        ("reverse", Value::from_function(filters::reverse)),
        ("map", Value::from_function(filters::map)),
        ("select", Value::from_function(filters::select)),
        ("reject", Value::from_function(filters::reject)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("chain", Value::from_function(filters::chain)),
        ("zip", Value::from_function(filters::zip)),
        ("split", Value::from_function(filters::split)),
        ("lines", Value::from_function(filters::lines)),
    ];
    for (name, filter) in own {
        environment.add_filter(name, move |state: &State<'_, '_>, args: Rest<Value>| {
            for value in args.iter() {
                if value
                    .as_str()
                    .is_some_and(|text| text.len() > ITERATED_TEXT_LIMIT)
                {
                    return Err(TooMuch::error(ITERATED_TEXT_LIMIT));
                }
                budget::weigh(value)?;
            }
            let result = filter.call(state, &args)?;
            budget::weigh(&result)?;
            Ok(result)
        });
    }
}

/// Arguments by place, and by name.
pub(super) fn by_place_and_name(args: &[Value]) -> Result<(&[Value], Kwargs), Error> {
    match args.split_last() {
        Some((last, args)) if last.is_kwargs() => Ok((args, Kwargs::try_from(last.clone())?)),
        _ => Ok((args, Kwargs::from_iter(Vec::<(&str, Value)>::new()))),
    }
}

/// Jinja's `indent`, whose arguments may be named.
fn indent(value: &Value, args: Rest<Value>) -> Result<Value, Error> {
    let (args, options) = by_place_and_name(&args)?;
    let (width, first, blank) = from_args(args)?;
    mapped(value, |text| {
        python::indent(text, width, first, blank, &options)
    })
}

/// An operation that does not work with these values.
pub(super) fn failure(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// A built text, charged.
pub(super) fn built(text: String, is_safe: bool) -> Result<Value, Error> {
    let value = if is_safe {
        Value::from_safe_string(text)
    } else {
        Value::from(text)
    };
    budget::weigh(&value)?;
    Ok(value)
}

/// A text made of one value's text; markup stays markup.
fn mapped(value: &Value, map: impl FnOnce(&str) -> Result<String, Error>) -> Result<Value, Error> {
    let result = match value.as_str() {
        Some(text) => map(text)?,
        None => map(&python::text(value)?)?,
    };
    built(result, value.is_safe())
}

/// The value as markup: text that is not is escaped.
pub(super) fn markup(value: &Value) -> Result<String, Error> {
    let text = python::text(value)?;
    if value.is_safe() {
        Ok(text)
    } else {
        python::escape(&text)
    }
}

fn trim(value: &Value, set: Option<&str>, options: Kwargs) -> Result<Value, Error> {
    let set = set.or(options.get("chars")?);
    options.assert_all_used()?;
    let is_cut = |c: char| set.map_or_else(|| python::is_space(c), |set| set.contains(c));
    mapped(value, |text| Ok(text.trim_matches(is_cut).to_owned()))
}

fn replace(value: &Value, old: &Value, new: &Value, count: Option<i64>) -> Result<Value, Error> {
    let (old, new) = (python::text(old)?, python::text(new)?);
    mapped(value, |text| text_parts::replace(text, &old, &new, count))
}

fn join(items: &Value, between: Option<Value>, options: Kwargs) -> Result<Value, Error> {
    let between = between.or(options.get("d")?).unwrap_or_else(|| "".into());
    let attribute: Option<&str> = options.get("attribute")?;
    options.assert_all_used()?;
    if items.is_undefined() {
        return Ok("".into());
    }
    let between = python::text(&between)?;
    let mut out = Growing::default();
    for (index, item) in items.try_iter()?.enumerate() {
        if index > 0 {
            out.push(&between)?;
        }
        let item = match attribute {
            Some(name) => attribute_of(&item, name)?,
            None => item,
        };
        match item.as_str() {
            Some(text) => out.push(text)?,
            None => out.push(&python::text(&item)?)?,
        }
    }
    built(out.finish(), false)
}

/// `a.b.0` of a value.
pub(super) fn attribute_of(value: &Value, path: &str) -> Result<Value, Error> {
    path.split('.')
        .try_fold(value.clone(), |value, part| match part.parse::<usize>() {
            Ok(index) => value.get_item_by_index(index),
            Err(_) => value.get_attr(part),
        })
}
