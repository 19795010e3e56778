//! A validator of the part of JSON schema that the tests use, written from the specification alone. Objects with
//! listed properties are closed, as for TGI, unless they are part of a combination.

use serde_json::{Map, Value};

/// Says why the value is not valid.
pub(crate) fn validate(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    check(root, schema, value, false)
}

fn check(root: &Value, schema: &Value, value: &Value, combined: bool) -> Result<(), String> {
    let map = match schema {
        Value::Bool(true) => return Ok(()),
        Value::Bool(false) => return Err("false".to_owned()),
        Value::Object(map) => map,
        other => return Err(format!("{other} is no schema")),
    };
    let fail = |keyword: &str| Err(format!("{value} breaks `{keyword}` of {schema}"));
    if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(&reference[1..]).ok_or("no target")?;
        check(root, target, value, combined)?;
    }
    if let Some(Value::Array(parts)) = map.get("allOf") {
        for part in parts {
            check(root, part, value, true)?;
        }
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(Value::Array(parts)) = map.get(keyword) {
            let valid = parts
                .iter()
                .filter(|part| check(root, part, value, combined).is_ok())
                .count();
            if valid == 0 || (keyword == "oneOf" && valid != 1) {
                return fail(keyword);
            }
        }
    }
    if map.get("const").is_some_and(|wanted| wanted != value) {
        return fail("const");
    }
    if let Some(Value::Array(values)) = map.get("enum")
        && !values.contains(value)
    {
        return fail("enum");
    }
    let types: Vec<&str> = match map.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ if map.contains_key("properties") => vec!["object"],
        _ => vec![],
    };
    if !types.is_empty() && !types.iter().any(|name| is_of_type(value, name)) {
        return fail("type");
    }
    match value {
        Value::Object(object) => check_object(root, map, object, combined),
        Value::Array(items) => check_array(root, map, items),
        Value::String(text) => {
            let length = text.chars().count() as u64;
            let pattern = map.get("pattern").and_then(Value::as_str);
            let matches =
                pattern.is_none_or(|pattern| regex::Regex::new(pattern).unwrap().is_match(text));
            if !matches || !within(map, "minLength", "maxLength", length) {
                return fail("a bound of strings");
            }
            Ok(())
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            let bound = |keyword: &str| map.get(keyword).and_then(Value::as_f64);
            let good = bound("minimum").is_none_or(|low| number >= low)
                && bound("maximum").is_none_or(|high| number <= high)
                && bound("exclusiveMinimum").is_none_or(|low| number > low)
                && bound("exclusiveMaximum").is_none_or(|high| number < high)
                && bound("multipleOf").is_none_or(|step| (number / step).fract() == 0.0);
            if good {
                Ok(())
            } else {
                fail("a bound of numbers")
            }
        }
        _ => Ok(()),
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        _ => false,
    }
}

fn within(map: &Map<String, Value>, low: &str, high: &str, count: u64) -> bool {
    map.get(low)
        .and_then(Value::as_u64)
        .is_none_or(|low| count >= low)
        && map
            .get(high)
            .and_then(Value::as_u64)
            .is_none_or(|high| count <= high)
}

fn check_object(
    root: &Value,
    map: &Map<String, Value>,
    object: &Map<String, Value>,
    combined: bool,
) -> Result<(), String> {
    if !within(map, "minProperties", "maxProperties", object.len() as u64) {
        return Err(format!("{} properties", object.len()));
    }
    let listed = map.get("properties").and_then(Value::as_object);
    let required: Vec<&str> = map
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if let Some(missing) = required.iter().find(|name| !object.contains_key(**name)) {
        return Err(format!("{missing} is missing"));
    }
    let patterns = map.get("patternProperties").and_then(Value::as_object);
    for (name, value) in object {
        let own = listed.and_then(|listed| listed.get(name));
        let by_pattern = patterns.and_then(|patterns| {
            patterns
                .iter()
                .find(|(pattern, _)| regex::Regex::new(pattern).unwrap().is_match(name))
                .map(|(_, schema)| schema)
        });
        let closed = Value::Bool(combined || listed.is_none() || required.contains(&name.as_str()));
        let schema = own
            .or(by_pattern)
            .or_else(|| map.get("additionalProperties"))
            .unwrap_or(&closed);
        check(root, schema, value, false).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

fn check_array(root: &Value, map: &Map<String, Value>, items: &[Value]) -> Result<(), String> {
    if !within(map, "minItems", "maxItems", items.len() as u64) {
        return Err(format!("{} items", items.len()));
    }
    let first: &[Value] = map
        .get("prefixItems")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice);
    for (place, item) in items.iter().enumerate() {
        if let Some(schema) = first.get(place).or_else(|| map.get("items")) {
            check(root, schema, item, false)?;
        }
    }
    Ok(())
}
