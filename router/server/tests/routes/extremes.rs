//! Every field of every body, by the `OpenAPI` document: values out of all bounds get an answer that names the field, or
//! pass, and nothing else happens.

use crate::routes_support::{Server, config, greeting, says};
use headrace_control::RouterConfig;
use headrace_router::routes;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// A good body of each route that takes one, short to answer.
fn good_bodies(path: &str) -> Vec<Value> {
    let native = json!({"inputs": "Hello", "parameters": {"max_new_tokens": 1}});
    let chat = json!({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1});
    let completion = json!({"prompt": "Hello", "max_tokens": 1});
    match path {
        "/" | "/generate" | "/generate_stream" => vec![native],
        "/v1/chat/completions" | "/chat_tokenize" => vec![chat],
        // Its other bodies are those of the routes themselves.
        "/v1/completions" | "/invocations" => vec![completion],
        "/tokenize" => vec![
            json!({"inputs": "Hello"}),
            json!({"prompt": "Hello"}),
            json!({"messages": [{"role": "user", "content": "x"}]}),
        ],
        "/detokenize" => vec![json!({"tokens": [1]})],
        "/abort" => vec![json!({"request_id": "x"})],
        "/vertex" => vec![json!({"instances": [native]})],
        "/v2/models/{model}/infer" | "/v2/models/{model}/versions/{version}/infer" => vec![json!({
            "inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "data": ["Hello"]}],
            "parameters": {"max_new_tokens": 1}
        })],
        other => panic!("{other}: say here what a good body is"),
    }
}

fn extremes() -> Vec<Value> {
    let huge = "x".repeat(5_000);
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(-0.0),
        json!(1.5),
        json!(1e-320),
        json!(1e308),
        json!(-1e308),
        json!(1_u64 << 31),
        json!(1_u64 << 32),
        json!(i64::MIN),
        json!(u64::MAX),
        // 2 to the 64th: no integer of JSON's readers any more.
        json!(18_446_744_073_709_551_616.0),
        json!(""),
        json!(huge),
        json!("\u{0}\u{202e}\r\nx: y"),
        json!([]),
        json!({}),
        json!([null]),
        json!([[]]),
        json!([huge]),
        json!(vec![1; 3_000]),
        json!(vec!["x"; 3_000]),
        json!({"x": {"x": []}}),
    ]
}

/// A schema with references followed.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').unwrap();
            resolve(document, document.pointer(pointer).unwrap())
        }
        None => schema,
    }
}

/// Every field below a schema, as the keys and indices that lead to it.
fn fields(document: &Value, schema: &Value, at: &[String], found: &mut BTreeSet<Vec<String>>) {
    if at.len() > 5 {
        return;
    }
    let schema = resolve(document, schema);
    for combination in ["allOf", "oneOf", "anyOf"] {
        for part in schema[combination].as_array().into_iter().flatten() {
            fields(document, part, at, found);
        }
    }
    let properties: Option<&Map<String, Value>> = schema["properties"].as_object();
    for (key, property) in properties.into_iter().flatten() {
        let path = [at, std::slice::from_ref(key)].concat();
        fields(document, property, &path, found);
        found.insert(path);
    }
    if schema["items"].is_object() {
        fields(
            document,
            &schema["items"],
            &[at, &["0".to_owned()]].concat(),
            found,
        );
    }
}

/// Puts a value where a path leads; `false` if the body has no such place.
fn put(body: &mut Value, path: &[String], value: &Value) -> bool {
    let Some((last, before)) = path.split_last() else {
        return false;
    };
    let mut place = body;
    for step in before {
        let next = match place {
            Value::Array(items) => step
                .parse()
                .ok()
                .and_then(|index: usize| items.get_mut(index)),
            // What is not there yet is an object, unless it would have to be a list.
            Value::Object(members) => match members.entry(step.as_str()) {
                serde_json::map::Entry::Occupied(entry) => Some(entry.into_mut()),
                serde_json::map::Entry::Vacant(entry) => Some(entry.insert(json!({}))),
            },
            _ => None,
        };
        let Some(next) = next else {
            return false;
        };
        place = next;
    }
    match place {
        Value::Object(members) => {
            members.insert(last.clone(), value.clone());
            true
        }
        _ => false,
    }
}

/// Whether a refusal names the field, what it lies in, or what goes by its name too.
fn is_named(body: &str, field: &[String]) -> bool {
    let others: &[&str] = match field.last().map(String::as_str) {
        // One of several: the sentence lists them all.
        Some("inputs" | "prompt" | "messages") => &["inputs", "prompt", "messages"],
        Some("max_completion_tokens" | "max_tokens") => &["max_new_tokens"],
        Some("rid" | "request_ids" | "abort_all") => &["request_id"],
        // What is too long is told by its tokens.
        Some("content" | "text" | "role") => &["`inputs`"],
        // TGI's whole message about no instances.
        Some("instances") => &["Input validation error"],
        _ => &[],
    };
    let around = field.iter().map(String::as_str);
    let around = around.filter(|name| field.len() == 1 || !matches!(*name, "parameters" | "0"));
    around
        .chain(others.iter().copied())
        .any(|name| body.contains(name))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_out_of_all_bounds_are_refused_by_name_or_pass() {
    let config = RouterConfig {
        payload_limit: 200_000,
        ..config()
    };
    let server = Server::start(config, says(greeting())).await;
    let document = server.get("/openapi.json").await.json();
    let mut wrong = Vec::new();
    let mut count = 0;
    for route in routes() {
        if !route.takes_body || route.alias_of.is_some() {
            continue;
        }
        let body = &document["paths"][route.path][route.method.to_lowercase()]["requestBody"];
        let schema = &body["content"]["application/json"]["schema"];
        let mut found = BTreeSet::new();
        fields(&document, schema, &[], &mut found);
        assert!(!found.is_empty(), "{}: no field is documented", route.path);
        let path = route
            .path
            .replace("{model}", "tiny")
            .replace("{version}", "1");
        for good in good_bodies(route.path) {
            let answer = server.post(&path, &good).await;
            assert_eq!(answer.status, 200, "{path} {good}: {}", answer.body);
            for field in &found {
                for value in extremes() {
                    let mut body = good.clone();
                    if !put(&mut body, field, &value) {
                        continue;
                    }
                    count += 1;
                    let asked = server.post(&path, &body);
                    let answer = tokio::time::timeout(Duration::from_secs(20), asked).await;
                    let what = || {
                        let value: String = value.to_string().chars().take(60).collect();
                        format!("{path} {} = {value}", field.join("."))
                    };
                    let Ok(answer) = answer else {
                        wrong.push(format!("{}: no answer", what()));
                        continue;
                    };
                    let status = answer.status.as_u16();
                    let is_refused =
                        matches!(status, 400 | 404 | 422) && is_named(&answer.body, field);
                    if status != 200 && !is_refused {
                        let text: String = answer.body.chars().take(300).collect();
                        wrong.push(format!("{}: {status} {text}", what()));
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count > 5_000, "{count}");
    server.wait_idle().await;
}
