//! Lists and parts of them, made at once: the engine makes them item by item, anew whenever somebody looks.

use super::budget::{self, ITEM_LIMIT, TEXT_LIMIT, TooMuch};
use super::filters::failure;
use super::operators::{real, whole};
use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, functions};

/// Numbers of `range` beyond these overflow where it counts its items.
const RANGE_LIMIT: i64 = 1 << 53;

pub(super) fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// `value[key]`.
pub(super) fn item(value: &Value, key: &Value) -> Result<Value, Error> {
    // The place in a text is counted from its start; a key is hashed; only a list knows its places.
    match value.kind() {
        ValueKind::String | ValueKind::Bytes | ValueKind::Iterable => budget::read(value)?,
        _ => {}
    }
    budget::read_nested(key)?;
    value.get_item(key)
}

/// `value[start:stop:step]`, as Python has it; `none` and what is not defined have no items.
pub(super) fn slice(
    value: &Value,
    start: &Value,
    end: &Value,
    step: &Value,
) -> Result<Value, Error> {
    let bound = |value: &Value| match value.kind() {
        ValueKind::None | ValueKind::Undefined => Ok(None),
        _ => match whole(value) {
            Some(number) => Ok(Some(number)),
            None => Err(failure(format!(
                "slice: a place is a whole number, not {}",
                value.kind()
            ))),
        },
    };
    let (start, end, step) = (bound(start)?, bound(end)?, bound(step)?.unwrap_or(1));
    if step == 0 {
        return Err(failure("slice: the step cannot be 0"));
    }
    budget::read(value)?;
    if let Some(text) = value.as_str() {
        let part = slice_text(text, start, end, step)?;
        budget::weigh(&part)?;
        return Ok(part);
    }
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => Ok(Value::from(Vec::<Value>::new())),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.take(ITEM_LIMIT).collect();
            let part: Vec<Value> = Places::of(items.len(), start, end, step)
                .filter_map(|place| items.get(place).cloned())
                .collect();
            let part = Value::from(part);
            budget::weigh(&part)?;
            Ok(part)
        }
        kind => Err(failure(format!("a value of type {kind} cannot be sliced"))),
    }
}

fn slice_text(
    text: &str,
    start: Option<i128>,
    end: Option<i128>,
    step: i128,
) -> Result<Value, Error> {
    if text.len() > TEXT_LIMIT {
        return Err(TooMuch::error(TEXT_LIMIT));
    }
    if text.is_ascii() {
        let bytes = text.as_bytes();
        let part: Vec<u8> = Places::of(bytes.len(), start, end, step)
            .filter_map(|place| bytes.get(place).copied())
            .collect();
        return Ok(Value::from(String::from_utf8_lossy(&part).into_owned()));
    }
    if step == 1 {
        let count = text.chars().count();
        let places = Places::of(count, start, end, step);
        let part: String = text.chars().skip(places.next).take(places.left).collect();
        return Ok(Value::from(part));
    }
    let characters: Vec<char> = text.chars().collect();
    let part: String = Places::of(characters.len(), start, end, step)
        .filter_map(|place| characters.get(place))
        .collect();
    Ok(Value::from(part))
}

/// The places of a slice.
struct Places {
    next: usize,
    left: usize,
    /// At most the length, whichever way.
    step: isize,
}

impl Places {
    /// By the rules of Python's `slice.indices`.
    fn of(length: usize, start: Option<i128>, end: Option<i128>, step: i128) -> Self {
        let length = i128::try_from(length).unwrap_or(0);
        let (lowest, highest) = if step > 0 {
            (0, length)
        } else {
            (-1, length - 1)
        };
        let place = |given: Option<i128>, otherwise: i128| match given {
            None => otherwise,
            Some(place) if place < 0 => place.saturating_add(length).clamp(lowest, highest),
            Some(place) => place.clamp(lowest, highest),
        };
        // Longer steps end behind the first item as well.
        let step = step.clamp(-(length + 1), length + 1);
        let (start, end) = if step > 0 {
            (place(start, 0), place(end, length))
        } else {
            (place(start, length - 1), place(end, -1))
        };
        let left = if step > 0 {
            (end - start + step - 1).max(0) / step
        } else {
            (start - end - step - 1).max(0) / -step
        };
        Self {
            next: usize::try_from(start).unwrap_or(0),
            left: usize::try_from(left).unwrap_or(0),
            step: isize::try_from(step).unwrap_or(1),
        }
    }
}

impl Iterator for Places {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let place = self.next;
        self.next = self.next.saturating_add_signed(self.step);
        Some(place)
    }
}

/// `*`: a number, or a text or list as often as a number says.
pub(super) fn multiply(left: &Value, right: &Value) -> Result<Value, Error> {
    let is_repeated = |value: &Value| value.as_str().is_some() || is_list(value);
    let repeated = match (is_repeated(left), is_repeated(right)) {
        (true, false) => Some((left, right)),
        (false, true) => Some((right, left)),
        _ => None,
    };
    if let Some((value, times)) = repeated
        && let Some(times) = whole(times)
    {
        let product = repeat(value, usize::try_from(times.max(0)).unwrap_or(usize::MAX))?;
        budget::weigh(&product)?;
        return Ok(product);
    }
    if let (Some(left), Some(right)) = (whole(left), whole(right)) {
        return left
            .checked_mul(right)
            .map(Value::from)
            .ok_or_else(|| failure("*: the product is too large"));
    }
    if let (Some(left), Some(right)) = (real(left), real(right)) {
        return Ok(Value::from(left * right));
    }
    Err(failure(format!(
        "*: not for {} and {}",
        left.kind(),
        right.kind()
    )))
}

fn repeat(value: &Value, times: usize) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if text.len().saturating_mul(times) > TEXT_LIMIT {
            return Err(TooMuch::error(TEXT_LIMIT));
        }
        // Nothing as often as that is nothing.
        let times = if text.is_empty() { 0 } else { times };
        return Ok(Value::from(text.repeat(times)));
    }
    budget::read(value)?;
    let items: Vec<Value> = value.try_iter()?.take(ITEM_LIMIT).collect();
    if items.len().saturating_mul(times) > ITEM_LIMIT {
        return Err(budget::too_many_items());
    }
    let times = if items.is_empty() { 0 } else { times };
    budget::read_bytes(items.len().saturating_mul(times))?;
    let repeated = std::iter::repeat_n(items, times).flatten();
    Ok(Value::from(repeated.collect::<Vec<_>>()))
}

/// The engine's, for numbers that it can count with.
pub(super) fn range(lower: i64, upper: Option<i64>, step: Option<i64>) -> Result<Value, Error> {
    let number = |value: i64| {
        if value.unsigned_abs() > RANGE_LIMIT.unsigned_abs() {
            return Err(failure("range: a number is too large"));
        }
        isize::try_from(value).map_err(|_| failure("range: a number is too large"))
    };
    functions::range(
        number(lower)?,
        upper.map(number).transpose()?,
        step.map(number).transpose()?,
    )
}

/// Several lists as one: the arguments of `f(*a, *b)`.
pub(super) fn joined_lists(lists: &[Value]) -> Result<Value, Error> {
    budget::read_all(lists)?;
    let mut items = Vec::new();
    for list in lists {
        for item in list.try_iter()? {
            // A call takes its arguments over: texts, to be iterated.
            budget::read(&item)?;
            items.push(item);
        }
    }
    let items = Value::from(items);
    budget::weigh(&items)?;
    Ok(items)
}

/// Several objects as one: the arguments of `f(**a, **b)`.
pub(super) fn joined_objects(objects: &[Value]) -> Result<Value, Error> {
    budget::read_all(objects)?;
    let mut members: Vec<(Value, Value)> = Vec::new();
    for object in objects {
        if object.kind() != ValueKind::Map {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("**: an object is expected, not {}", object.kind()),
            ));
        }
        for key in object.try_iter()? {
            let value = object.get_item(&key)?;
            members.push((key, value));
        }
    }
    let object: Value = members.into_iter().collect();
    budget::weigh(&object)?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Right-hand sides: `list(range(5))[…]` of Python 3.11.
    #[test]
    fn slices_are_python_s() {
        type Case = (Option<i128>, Option<i128>, i128, &'static [usize]);
        const N: Option<i128> = None;
        let far = i128::from(i64::MAX) * 4;
        let cases: [Case; 16] = [
            (N, N, 1, &[0, 1, 2, 3, 4]),
            (N, N, -1, &[4, 3, 2, 1, 0]),
            (N, N, -2, &[4, 2, 0]),
            (Some(1), N, 2, &[1, 3]),
            (Some(-2), N, 1, &[3, 4]),
            (N, Some(-2), 1, &[0, 1, 2]),
            (Some(3), Some(1), -1, &[3, 2]),
            (Some(1), Some(3), -1, &[]),
            (Some(3), Some(1), 1, &[]),
            (N, Some(-6), -1, &[4, 3, 2, 1, 0]),
            (Some(-9), Some(9), 1, &[0, 1, 2, 3, 4]),
            (Some(2), Some(-5), -1, &[2, 1]),
            (Some(far), N, -1, &[4, 3, 2, 1, 0]),
            (Some(-far), Some(far), far, &[0]),
            (N, N, -far, &[4]),
            (Some(5), N, 1, &[]),
        ];
        for (start, end, step, expected) in cases {
            let places: Vec<usize> = Places::of(5, start, end, step).collect();
            assert_eq!(places, expected, "[{start:?}:{end:?}:{step}]");
        }
        for step in [1, -1, 3, -far] {
            assert_eq!(Places::of(0, N, N, step).count(), 0);
        }
    }
}
