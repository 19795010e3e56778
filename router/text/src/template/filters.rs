//! Filters that build texts and lists, by Python's rules, each charged for what it builds.
#![expect(
    clippy::needless_pass_by_value,
    reason = "the shape that the engine calls filters with"
)]

use super::budget::{self, Growing};
use super::{metered, methods, numbers, operators, python, rewrite, sequences, text_parts};
use minijinja::functions::Function;
use minijinja::value::{FunctionArgs, FunctionResult, Kwargs, Rest, Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, FormatStyle, State, filters};

/// Those that stand for operators.
fn add_operators(environment: &mut Environment<'static>) {
    environment.add_filter(rewrite::ADD, operators::add);
    environment.add_filter(rewrite::CONCAT, operators::concat);
    environment.add_filter(rewrite::REMAINDER, operators::remainder);
    environment.add_filter(rewrite::MULTIPLY, sequences::multiply);
    environment.add_filter(rewrite::SLICE, sequences::slice);
    environment.add_filter(rewrite::ITEM, sequences::item);
    environment.add_filter(rewrite::LISTS, |lists: Rest<Value>| {
        sequences::joined_lists(&lists)
    });
    environment.add_filter(rewrite::OBJECTS, |objects: Rest<Value>| {
        sequences::joined_objects(&objects)
    });
    environment.add_filter(rewrite::BOTH, metered::both);
    environment.add_filter(rewrite::IN, metered::contains);
    let comparisons: [(&'static str, metered::Compare); 6] = [
        (rewrite::EQ, |a, b| a == b),
        (rewrite::NE, |a, b| a != b),
        (rewrite::LT, |a, b| a < b),
        (rewrite::LTE, |a, b| a <= b),
        (rewrite::GT, |a, b| a > b),
        (rewrite::GTE, |a, b| a >= b),
    ];
    for (name, compare) in comparisons {
        environment.add_filter(name, move |left: &Value, right: &Value| {
            metered::compared(left, right, compare)
        });
    }
    environment.add_filter(rewrite::READ, |value: Value| {
        budget::read(&value).map(|()| value)
    });
    environment.add_filter(rewrite::WEIGH_NESTED, |value: Value| {
        budget::weigh_nested(&value).map(|()| value)
    });
    environment.add_filter(rewrite::HELD, |value: Value| {
        budget::refuse_changeable(&value)?;
        if value.kind() == ValueKind::Map {
            budget::weigh_nested(&value)?;
        }
        Ok::<Value, Error>(value)
    });
    environment.add_filter(rewrite::CHANGED, |value: Value| {
        budget::refuse_changeable(&value)?;
        // It is compared with the one before.
        budget::read_nested(&value)?;
        budget::read_nested(&value)?;
        Ok::<Value, Error>(value)
    });
    environment.add_filter(rewrite::MACRO, |value: Value| {
        budget::define_macro().map(|()| value)
    });
    environment.add_filter(rewrite::NO_TEMPLATES, |_: Value| {
        Err::<Value, Error>(failure("there are no other templates to take in"))
    });
    environment.add_filter(rewrite::NO_CHANGES, |_: Value| {
        Err::<Value, Error>(failure("loop.changed takes one value"))
    });
}

/// Registers them.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    add_operators(environment);
    metered(environment, "upper", |value: &Value| {
        mapped(value, |text| Ok(text.to_uppercase()))
    });
    metered(environment, "lower", |value: &Value| {
        mapped(value, |text| Ok(text.to_lowercase()))
    });
    metered(environment, "title", |value: &Value| {
        mapped(value, |text| Ok(python::title_filter(text)))
    });
    metered(environment, "capitalize", |value: &Value| {
        mapped(value, |text| Ok(python::capitalize(text)))
    });
    metered(environment, "trim", trim);
    metered(environment, "replace", replace);
    metered(environment, "indent", indent);
    metered(environment, "join", join);
    metered(
        environment,
        "center",
        |value: &Value, width: Option<i64>| {
            let width = [Value::from(width.unwrap_or(80))];
            mapped(value, |text| text_parts::padded(text, "center", &width))
        },
    );
    metered(environment, "string", |value: Value| {
        if value.kind() == ValueKind::String {
            return Ok(value);
        }
        python::text(&value).and_then(|text| built(text, false))
    });
    metered(environment, "format", |text: &Value, args: Rest<Value>| {
        let text = python::text(text)?;
        built(methods::format(FormatStyle::Printf, &text, &args)?, false)
    });
    for name in ["escape", "e"] {
        metered(environment, name, |value: &Value| {
            built(markup(value)?, true)
        });
    }
    metered(environment, "forceescape", |value: &Value| {
        built(python::escape(&python::text(value)?)?, true)
    });
    metered(environment, "wordcount", |value: &Value| {
        let text = python::text(value)?;
        let is_part = |c: char| c == '_' || c.is_alphanumeric();
        let words = text.split(|c| !is_part(c)).filter(|word| !word.is_empty());
        Ok::<usize, Error>(words.count())
    });
    for name in ["length", "count"] {
        metered(environment, name, |value: &Value| match value.kind() {
            ValueKind::Undefined => Ok(0),
            _ => filters::length(value),
        });
    }
    metered(environment, "pprint", |value: &Value| {
        built(python::repr(value)?, false)
    });
    metered(environment, "round", numbers::round);
    metered(environment, "int", numbers::int);
    metered(environment, "float", numbers::float);
    metered(environment, "sum", numbers::sum);
    metered::add_filters(environment);
}

/// Registers a filter that is charged for going once over its arguments.
pub(super) fn metered<F, Rv, Args>(
    environment: &mut Environment<'static>,
    name: &'static str,
    filter: F,
) where
    F: Function<Rv, Args>,
    Rv: FunctionResult,
    Args: for<'a> FunctionArgs<'a>,
{
    let filter = Value::from_function(filter);
    environment.add_filter(name, move |state: &State<'_, '_>, args: Rest<Value>| {
        budget::read_all(&args)?;
        filter.call(state, &args)
    });
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
    let cut = text_parts::CutSet::new(set);
    mapped(value, |text| {
        Ok(text.trim_matches(|c| cut.holds(c)).to_owned())
    })
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
