//! Operators by Python's rules, each charged for what it builds.

use super::budget::{self, Growing};
use super::filters::{built, failure, markup};
use super::{methods, python};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, FormatStyle};

/// Both one after the other; with markup on either side the other is escaped.
fn joined(left: &Value, right: &Value, escapes: bool) -> Result<Value, Error> {
    let mut out = Growing::default();
    for value in [left, right] {
        if escapes {
            out.push(&markup(value)?)?;
        } else if let Some(text) = value.as_str() {
            out.push(text)?;
        } else {
            out.push(&python::text(value)?)?;
        }
    }
    built(out.finish(), escapes)
}

/// `~`.
pub(super) fn concat(left: &Value, right: &Value) -> Result<Value, Error> {
    joined(left, right, false)
}

/// `+`.
pub(super) fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if left.kind() == ValueKind::String && right.kind() == ValueKind::String {
        return joined(left, right, left.is_safe() || right.is_safe());
    }
    if is_list(left) && is_list(right) {
        budget::weigh(left)?;
        budget::weigh(right)?;
        let items: Vec<Value> = left.try_iter()?.chain(right.try_iter()?).collect();
        let sum = Value::from(items);
        budget::weigh(&sum)?;
        return Ok(sum);
    }
    if let (Some(left), Some(right)) = (whole(left), whole(right)) {
        let sum = left.checked_add(right);
        return sum
            .map(Value::from)
            .ok_or_else(|| failure("+: the sum is too large"));
    }
    if let (Some(left), Some(right)) = (real(left), real(right)) {
        return Ok(Value::from(left + right));
    }
    Err(unsupported("+", left, right))
}

/// `%`: Python's remainder has the sign of the divisor; of a text it is a format.
pub(super) fn remainder(left: &Value, right: &Value) -> Result<Value, Error> {
    if let Some(text) = left.as_str() {
        budget::read(left)?;
        budget::read(right)?;
        let args: Vec<Value> = match right.kind() {
            ValueKind::Seq => right.try_iter()?.collect(),
            _ => vec![right.clone()],
        };
        return built(methods::format(FormatStyle::Printf, text, &args)?, false);
    }
    if let (Some(left), Some(right)) = (whole(left), whole(right)) {
        let remainder = left
            .checked_rem(right)
            .ok_or_else(|| failure("%: by zero"))?;
        let has_other_sign = remainder != 0 && (remainder < 0) != (right < 0);
        return Ok(Value::from(if has_other_sign {
            remainder + right
        } else {
            remainder
        }));
    }
    if let (Some(left), Some(right)) = (real(left), real(right)) {
        if right == 0.0 {
            return Err(failure("%: by zero"));
        }
        let remainder = left % right;
        let has_other_sign = remainder != 0.0 && (remainder < 0.0) != (right < 0.0);
        return Ok(Value::from(if has_other_sign {
            remainder + right
        } else {
            remainder
        }));
    }
    Err(unsupported("%", left, right))
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Error {
    failure(format!(
        "{operator}: not for {} and {}",
        left.kind(),
        right.kind()
    ))
}

/// An integer; Python counts booleans as such.
pub(super) fn whole(value: &Value) -> Option<i128> {
    match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        ValueKind::Number if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    }
}

pub(super) fn real(value: &Value) -> Option<f64> {
    match value.kind() {
        ValueKind::Bool => Some(if value.is_true() { 1.0 } else { 0.0 }),
        ValueKind::Number => f64::try_from(value.clone()).ok(),
        _ => None,
    }
}
