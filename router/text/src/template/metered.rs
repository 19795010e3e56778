//! The engine's own filters and tests, each charged for what it reads before it runs and for what it makes.
//!
//! Filters that only look at their value (`default`, `abs`, `bool`) and tests of its kind are left as they are.

use super::budget::{self, ITEM_BYTES, ITEM_LIMIT, TooMuch};
use super::filters::{failure, metered};
use super::python;
use super::sequences::{self, is_list};
use minijinja::value::{Rest, Value, ValueKind};
use minijinja::{Environment, Error, State, filters, tests};

/// Iterating a longer text makes a list of its characters.
const ITERATED_TEXT_LIMIT: usize = 4 << 20;

/// Filters whose items are new lists: what they make nests deeper than what they were given.
const NESTING: [&str; 6] = ["batch", "slice", "groupby", "items", "dictsort", "zip"];

/// How a filter goes over its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Once over the items.
    Items,
    /// Once, following a path of attributes from each; the path is the argument of this number.
    Path(usize),
    /// Comparing items with each other.
    Ordered,
    /// Once, into lists of so many: the first argument.
    Counted,
}

/// Registers the filters.
pub(super) fn add_filters(environment: &mut Environment<'static>) {
    use Pass::{Counted, Items, Ordered, Path};
    let own = [
        ("list", Items, Value::from_function(filters::list)),
        ("batch", Counted, Value::from_function(filters::batch)),
        ("slice", Counted, Value::from_function(filters::slice)),
        ("sort", Ordered, Value::from_function(filters::sort)),
        ("unique", Ordered, Value::from_function(filters::unique)),
        ("dictsort", Ordered, Value::from_function(filters::dictsort)),
        ("groupby", Ordered, Value::from_function(filters::groupby)),
        ("min", Ordered, Value::from_function(filters::min)),
        ("max", Ordered, Value::from_function(filters::max)),
        ("items", Items, Value::from_function(filters::items)),
        ("reverse", Items, Value::from_function(filters::reverse)),
        ("map", Items, Value::from_function(filters::map)),
        ("select", Items, Value::from_function(filters::select)),
        ("reject", Items, Value::from_function(filters::reject)),
        (
            "selectattr",
            Path(1),
            Value::from_function(filters::selectattr),
        ),
        (
            "rejectattr",
            Path(1),
            Value::from_function(filters::rejectattr),
        ),
        ("chain", Items, Value::from_function(filters::chain)),
        ("zip", Items, Value::from_function(filters::zip)),
        ("split", Items, Value::from_function(filters::split)),
        ("lines", Items, Value::from_function(filters::lines)),
    ];
    for (name, pass, filter) in own {
        environment.add_filter(name, move |state: &State<'_, '_>, args: Rest<Value>| {
            before(pass, &args)?;
            let result = made(filter.call(state, &args)?)?;
            if NESTING.contains(&name) {
                budget::weigh_nested(&result)?;
            } else {
                budget::weigh(&result)?;
            }
            Ok(result)
        });
    }
    metered(environment, "first", |value: &Value| filters::first(value));
    metered(environment, "last", |value: Value| match value.kind() {
        ValueKind::Seq => match value.len() {
            Some(length @ 1..) => value.get_item(&Value::from(length - 1)),
            _ => Ok(Value::UNDEFINED),
        },
        _ => filters::last(value),
    });
    metered(environment, "safe", |value: String| {
        let value = filters::safe(value);
        budget::weigh(&value).map(|()| value)
    });
    environment.add_filter("attr", sequences::item);
}

/// Refuses what would be too much, and charges.
fn before(pass: Pass, args: &[Value]) -> Result<(), Error> {
    for value in args {
        if value
            .as_str()
            .is_some_and(|text| text.len() > ITERATED_TEXT_LIMIT)
        {
            return Err(TooMuch::error(ITERATED_TEXT_LIMIT));
        }
        budget::read(value)?;
    }
    let Some(value) = args.first() else {
        return Ok(());
    };
    let named = args.last().filter(|value| value.is_kwargs());
    let attribute = named
        .and_then(|named| named.get_attr("attribute").ok())
        .filter(|value| !value.is_undefined());
    match pass {
        Pass::Items => match attribute {
            Some(path) => read_paths(value, &path),
            None => Ok(()),
        },
        Pass::Path(place) => match args.get(place) {
            Some(path) => read_paths(value, path),
            None => Ok(()),
        },
        Pass::Ordered => {
            let by_place = args.get(1).filter(|value| value.as_str().is_some());
            read_ordered(value, attribute.as_ref().or(by_place))
        }
        Pass::Counted => {
            let count = args.get(1).and_then(Value::as_usize).unwrap_or(0);
            if count > ITEM_LIMIT {
                return Err(failure(format!("a count of more than {ITEM_LIMIT}")));
            }
            budget::charge(count * ITEM_BYTES)?;
            budget::read_bytes(count * ITEM_BYTES)
        }
    }
}

/// Following a path costs its length, and within a text the place that it names.
fn read_paths(items: &Value, path: &Value) -> Result<(), Error> {
    let length = path.as_str().map_or(0, str::len);
    for item in items.try_iter()? {
        budget::read_bytes(length)?;
        if !is_list(&item) && item.kind() != ValueKind::Map {
            budget::read(&item)?;
        }
    }
    Ok(())
}

/// Each item is compared with a few others, to the end of the longer at worst; and at worst it is the longest that is
/// compared with all.
fn read_ordered(items: &Value, attribute: Option<&Value>) -> Result<(), Error> {
    let path = attribute.and_then(Value::as_str);
    let num_paths = path.map_or(1, |path| path.split(',').count());
    let mut longest = path.map_or(0, str::len);
    let mut count: usize = 0;
    let is_map = items.kind() == ValueKind::Map;
    for item in items.try_iter()? {
        count += 1;
        let size = match (is_map, attribute) {
            (true, _) => budget::nested_size(&item)?
                .saturating_add(budget::nested_size(&items.get_item(&item)?)?),
            (false, Some(_)) if num_paths == 1 && item.kind() == ValueKind::Map => {
                let found =
                    path.unwrap_or_default()
                        .split('.')
                        .try_fold(item.clone(), |value, name| match name.parse::<usize>() {
                            Ok(_) => Err(value),
                            Err(_) => value.get_attr(name).map_err(|_| value),
                        });
                budget::nested_size(&found.unwrap_or_else(|value| value))?
            }
            (false, _) => budget::nested_size(&item)?.saturating_mul(num_paths),
        };
        longest = longest.max(size);
    }
    let rounds = usize::try_from(count.max(1).ilog2()).unwrap_or(0) + 2;
    budget::read_bytes(
        count
            .saturating_mul(rounds)
            .saturating_mul(longest.saturating_mul(2)),
    )
}

/// A result in the shape that everything else counts on: made, not still to be made.
fn made(result: Value) -> Result<Value, Error> {
    match result.kind() {
        ValueKind::Iterable => budget::collected(result.try_iter()?),
        ValueKind::Map => {
            let mut members = Vec::new();
            for key in result.try_iter()? {
                let value = result.get_item(&key)?;
                members.push((key, value));
            }
            Ok(members.into_iter().collect())
        }
        _ => Ok(result),
    }
}

/// `==` and its like.
pub(super) type Compare = fn(&Value, &Value) -> bool;

/// Registers the tests that read.
pub(super) fn add_tests(environment: &mut Environment<'static>) {
    let comparisons: [(&[&'static str], Compare); 6] = [
        (&["eq", "equalto", "=="], |a, b| a == b),
        (&["ne", "!="], |a, b| a != b),
        (&["lt", "lessthan", "<"], |a, b| a < b),
        (&["le", "<="], |a, b| a <= b),
        (&["gt", "greaterthan", ">"], |a, b| a > b),
        (&["ge", ">="], |a, b| a >= b),
    ];
    for (names, compare) in comparisons {
        for name in names {
            environment.add_test(*name, move |value: &Value, other: &Value| {
                compared(value, other, compare)
            });
        }
    }
    environment.add_test("in", contains);
    environment.add_test("sameas", |value: &Value, other: &Value| {
        compared(value, other, tests::is_sameas)
    });
    let of_texts = [
        ("lower", Value::from_function(tests::is_lower)),
        ("upper", Value::from_function(tests::is_upper)),
        ("startingwith", Value::from_function(tests::is_startingwith)),
        ("endingwith", Value::from_function(tests::is_endingwith)),
    ];
    for (name, test) in of_texts {
        environment.add_test(name, move |state: &State<'_, '_>, args: Rest<Value>| {
            budget::read_all(&args)?;
            test.call(state, &args).map(|result| result.is_true())
        });
    }
}

/// A comparison, charged.
pub(super) fn compared(left: &Value, right: &Value, compare: Compare) -> Result<bool, Error> {
    budget::read_pair(left, right)?;
    Ok(compare(left, right))
}

/// `value in container`, charged. What holds nothing fails, as in Python; what is not defined is empty.
pub(super) fn contains(value: &Value, container: &Value) -> Result<bool, Error> {
    budget::read_nested(value)?;
    match container.kind() {
        ValueKind::Undefined | ValueKind::Plain => Ok(false),
        ValueKind::String => {
            budget::read(container)?;
            let text = container.as_str().unwrap_or_default();
            match value.as_str() {
                Some(part) => Ok(text.contains(part)),
                None => Ok(text.contains(&python::text(value)?)),
            }
        }
        ValueKind::Seq | ValueKind::Iterable => {
            budget::read_nested(container)?;
            Ok(container.try_iter()?.any(|item| item == *value))
        }
        ValueKind::Map => {
            let object = container.as_object();
            Ok(object.is_some_and(|object| object.get_value(value).is_some()))
        }
        kind => Err(failure(format!("in: not for a value of type {kind}"))),
    }
}

/// Both values of a comparison of three or more, charged; they go back in the order in which they come off the list.
pub(super) fn both(left: Value, right: Value) -> Result<Value, Error> {
    budget::read_nested(&left)?;
    budget::read_nested(&right)?;
    Ok(Value::from(vec![right, left]))
}
