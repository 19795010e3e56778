//! Where in a schema a complaint of the library belongs. It tells properties on the way to it, and no place.

use super::survey::push_key;
use crate::error::{GrammarError, first_line};
use headrace_text::OneLine;
use serde_json::{Map, Value};

/// What the library says before its reason when no text could be valid.
const UNSATISFIABLE: &str = "Unsatisfiable schema: ";
/// Before a line with the address of a part that others refer to.
const PROCESSING: &str = "\n  while processing ";
const UNKNOWN_FORMAT: &str = "Unknown format: ";
/// Before the address of a reference.
const CIRCULAR: &str = "circular references with sibling keys are not supported: ";
/// Where a reference leads through a name that has to be escaped.
const SEGMENT: &str = "Reference segment ";
/// Before what it could not decide within its bounds.
const UNDECIDED: &str = "Unable to determine if regex is empty";
/// Of `patternProperties`.
const DISJOINT: &str = "patternProperty regexes /";
/// Of `minProperties` and `maxProperties`.
const COUNTED: &str = "min/maxProperties only supported";

/// The library's error as ours. `messages`: the outermost first. The library names its own options, which clients do not
/// have, and they are left out.
pub(crate) fn explain(messages: &[String], schema: Option<&Value>) -> GrammarError {
    let Some(schema) = schema else {
        return GrammarError::Compile(outermost(messages));
    };
    if messages.iter().any(|one| one.contains("coerce_one_of")) {
        let what = "`oneOf` whose alternatives may overlap is not supported; `anyOf` is";
        let mut found = Vec::new();
        find(schema, &mut "#".to_owned(), &mut found, &|map| {
            map.contains_key("oneOf")
        });
        return placed(what.to_owned(), only(found));
    }
    let format = messages
        .iter()
        .find_map(|one| one.strip_prefix(UNKNOWN_FORMAT));
    if let Some(format) = format {
        let mut found = Vec::new();
        find(schema, &mut "#".to_owned(), &mut found, &|map| {
            map.get("format").and_then(Value::as_str) == Some(format)
        });
        let what = format!("the format `{:.100}` is not supported", OneLine(format));
        return placed(what, found.into_iter().next());
    }
    if let Some(error) = messages.iter().find_map(|one| explain_one(one, schema)) {
        return error;
    }
    let is_unsatisfiable = messages.iter().any(|one| one.starts_with(UNSATISFIABLE));
    if !is_unsatisfiable {
        return GrammarError::Compile(outermost(messages));
    }
    let (reason, pointer) = follow(messages, schema);
    placed(format!("no value can be valid: {reason}"), Some(pointer))
}

/// Messages that name the place in the library's own way, or none.
fn explain_one(message: &str, schema: &Value) -> Option<GrammarError> {
    let places = |is_it: &dyn Fn(&Map<String, Value>) -> bool| {
        let mut found = Vec::new();
        find(schema, &mut "#".to_owned(), &mut found, &is_it);
        found
    };
    if let Some(address) = message.strip_prefix(CIRCULAR) {
        let what = "a `$ref` cycle whose every `$ref` has keywords beside it is not supported";
        let pointer = address
            .split_once('#')
            .map(|(_, place)| format!("#{place}"));
        return Some(placed(what.to_owned(), pointer));
    }
    if message.starts_with(SEGMENT) {
        let address = message.rsplit_once("in '").map(|(_, address)| address);
        let address = address.map(|it| it.trim_end_matches(['.', '\'']).to_owned());
        let what = "a `$ref` through a name with `/` or `~` is not supported";
        return Some(placed(what.to_owned(), address));
    }
    if message.starts_with(UNDECIDED) {
        let has_text = |map: &Map<String, Value>, keyword: &str| {
            let text = map.get(keyword).and_then(Value::as_str);
            text.is_some_and(|text| keyword == "format" || message.contains(text))
        };
        let found = places(&|map| has_text(map, "pattern") || has_text(map, "format"));
        let what = "it takes too long to find out whether any text fits what is asked of it";
        return Some(placed(what.to_owned(), found.into_iter().next()));
    }
    if message.contains(DISJOINT) {
        let found = places(&|map| {
            let named = map.get("patternProperties").and_then(Value::as_object);
            named.is_some_and(|named| named.len() > 1)
        });
        return Some(placed(first_line(message), only(found)));
    }
    if message.starts_with(COUNTED) {
        let found =
            places(&|map| map.contains_key("minProperties") || map.contains_key("maxProperties"));
        let what = "`minProperties` and `maxProperties` are supported only where every name in `properties` is required, \
                    or for one property";
        return Some(placed(what.to_owned(), only(found)));
    }
    None
}

fn placed(what: String, pointer: Option<String>) -> GrammarError {
    match pointer {
        Some(pointer) => GrammarError::Schema { what, pointer },
        None => GrammarError::Compile(what),
    }
}

fn outermost(messages: &[String]) -> String {
    messages
        .first()
        .map_or_else(|| first_line(""), |one| first_line(one))
}

fn only(found: Vec<String>) -> Option<String> {
    let [place] = <[String; 1]>::try_from(found).ok()?;
    Some(place)
}

/// Goes along the properties and items that the library names; the reason is what is left of its words.
fn follow(messages: &[String], schema: &Value) -> (String, String) {
    let mut pointer = "#".to_owned();
    let mut left = messages;
    while let [message, rest @ ..] = left {
        let next = match message.split_once(PROCESSING) {
            Some((_, address)) => address
                .split_once('#')
                .map(|(_, fragment)| format!("#{}", fragment.trim_end())),
            None => step(message).map(|keys| {
                let mut next = pointer.clone();
                for key in keys {
                    push_key(&mut next, &key);
                }
                next
            }),
        };
        match next.filter(|next| schema.pointer(&next[1..]).is_some()) {
            Some(next) if !rest.is_empty() => pointer = next,
            _ => break,
        }
        left = rest;
    }
    let reasons: Vec<String> = left
        .iter()
        .map(|one| first_line(one.strip_prefix(UNSATISFIABLE).unwrap_or(one)))
        .collect();
    (reasons.join(": "), pointer)
}

/// The keys from a schema to the part that a message is about.
fn step(message: &str) -> Option<[String; 2]> {
    let message = message.strip_prefix(UNSATISFIABLE)?;
    if let Some(rest) = message.strip_prefix("required property '") {
        let name = rest.strip_suffix("' is unsatisfiable")?;
        return Some(["properties".to_owned(), name.to_owned()]);
    }
    let index = message.strip_prefix("prefixItems[")?.split(']').next()?;
    Some(["prefixItems".to_owned(), index.to_owned()])
}

/// Every object within `value` that `is_it` takes.
fn find(
    value: &Value,
    pointer: &mut String,
    found: &mut Vec<String>,
    is_it: &impl Fn(&Map<String, Value>) -> bool,
) {
    let length = pointer.len();
    match value {
        Value::Object(map) => {
            if is_it(map) {
                found.push(pointer.clone());
            }
            for (key, item) in map {
                push_key(pointer, key);
                find(item, pointer, found, is_it);
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                push_key(pointer, &index.to_string());
                find(item, pointer, found, is_it);
                pointer.truncate(length);
            }
        }
        _ => {}
    }
}
