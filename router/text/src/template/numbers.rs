//! Filters that make numbers, by Python's rules.
#![expect(
    clippy::needless_pass_by_value,
    reason = "the shape that the engine calls filters with"
)]

use super::filters::{attribute_of, failure};
use super::operators::{add, real, whole};
use super::python;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, State, filters};

/// To the nearest, ties to even; `ceil` and `floor` on demand.
pub(super) fn round(
    value: Value,
    precision: Option<i32>,
    method: Option<&str>,
    options: Kwargs,
) -> Result<Value, Error> {
    let precision = precision.or(options.get("precision")?).unwrap_or(0);
    let method = method.or(options.get("method")?).unwrap_or("common");
    options.assert_all_used()?;
    let Some(number) = real(&value) else {
        return Err(failure(format!("round: not for {}", value.kind())));
    };
    if precision.abs() > 30 {
        return Err(failure("round: a precision of more than 30"));
    }
    let factor = 10_f64.powi(precision);
    Ok(match method {
        "ceil" => Value::from((number * factor).ceil() / factor),
        "floor" => Value::from((number * factor).floor() / factor),
        "common" if whole(&value).is_some() && precision >= 0 => value,
        "common" if precision >= 0 => {
            let digits = usize::try_from(precision).unwrap_or(0);
            Value::from(format!("{number:.digits$}").parse().unwrap_or(number))
        }
        "common" => Value::from((number * factor).round_ties_even() / factor),
        _ => return Err(failure("round: a method is common, ceil or floor")),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the whole part is what is asked for; a float beyond 128 bits is no count"
)]
fn truncated(number: f64) -> Value {
    Value::from(number.trunc() as i128)
}

pub(super) fn float(
    value: &Value,
    default: Option<Value>,
    options: Kwargs,
) -> Result<Value, Error> {
    let default = default
        .or(options.get("default")?)
        .unwrap_or_else(|| 0.0.into());
    options.assert_all_used()?;
    let number = match value.as_str() {
        Some(text) => text.trim_matches(python::is_space).parse().ok(),
        None => real(value),
    };
    Ok(number.map_or(default, Value::from))
}

pub(super) fn sum(items: &Value, attribute: Option<&str>, options: Kwargs) -> Result<Value, Error> {
    let attribute = attribute.or(options.get("attribute")?);
    let start: Option<Value> = options.get("start")?;
    options.assert_all_used()?;
    let mut total = start.unwrap_or_else(|| 0.into());
    for item in items.try_iter()? {
        let item = match attribute {
            Some(name) => attribute_of(&item, name)?,
            None => item,
        };
        total = add(&total, &item)?;
    }
    Ok(total)
}

/// A text's number too, in any base; what is none is `default`.
pub(super) fn int(
    state: &State<'_, '_>,
    value: &Value,
    default: Option<Value>,
    base: Option<u32>,
    options: Kwargs,
) -> Result<Value, Error> {
    let default = default
        .or(options.get("default")?)
        .unwrap_or_else(|| 0.into());
    let base = base.or(options.get("base")?).unwrap_or(10);
    options.assert_all_used()?;
    if let Some(text) = value.as_str() {
        let text = text.trim_matches(python::is_space).replace('_', "");
        let lower = text.to_ascii_lowercase();
        let prefix = match base {
            16 => "0x",
            8 => "0o",
            2 => "0b",
            _ => "",
        };
        let digits = lower.strip_prefix(prefix).unwrap_or(&lower);
        if (2..=36).contains(&base)
            && let Ok(number) = i128::from_str_radix(digits, base)
        {
            return Ok(number.into());
        }
        return Ok(match text.parse::<f64>() {
            Ok(number) if number.is_finite() => truncated(number),
            _ => default,
        });
    }
    match value.kind() {
        ValueKind::Bool | ValueKind::Number => filters::int(state, value),
        _ => Ok(default),
    }
}
