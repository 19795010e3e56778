//! What the handlers' own descriptions leave out: other names of a route, the errors that every route of its kind may
//! answer with, streams, and keys. From the table of routes, so that a new route has all of it.

use crate::app::dialect_by_prefix;
use crate::routes::table::{Access, ROUTES, Route};
use headrace_dialect::refusal::Dialect;
use serde_json::{Map, Value, json};

/// Completes the document that the handlers' attributes make.
pub(super) fn complete(document: &mut Value) {
    document["components"]["securitySchemes"] = json!({
        "bearer": {"type": "http", "scheme": "bearer"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"}
    });
    for route in ROUTES {
        let path = shown_path(route.path);
        let method = route.method.to_ascii_lowercase();
        if let Some(original) = route.alias_of {
            let operation = original_of(document, original, &method);
            document["paths"][&path][&method] = operation;
        }
        let operation = &mut document["paths"][&path][&method];
        if operation.is_null() {
            continue;
        }
        // Unique, which clients that are generated from the document need.
        operation["operationId"] = Value::String(operation_id(&method, &path));
        if route.access == Access::Open {
            operation["security"] = json!([]);
        } else {
            operation["security"] = json!([{}, {"bearer": []}, {"x-api-key": []}]);
        }
        add_errors(operation, route);
        let is_streamed = |(path, _): &&(&str, &str)| *path == original_path(route);
        if let Some((_, events)) = STREAMS.iter().find(is_streamed)
            && route.takes_body
        {
            add_stream(operation, events);
        }
    }
}

/// Routes that may answer with server-sent events, and what an event's `data` holds.
const STREAMS: [(&str, &str); 5] = [
    ("/", "A `StreamResponse`, or an `ErrorResponse` at the end."),
    (
        "/generate_stream",
        "A `StreamResponse`, or an `ErrorResponse` at the end.",
    ),
    (
        "/v1/chat/completions",
        "A `ChatCompletionChunk`; at the end perhaps an `OpenAiErrorResponse`, then `[DONE]`.",
    ),
    (
        "/v1/completions",
        "A `Completion`; at the end perhaps an `OpenAiErrorResponse`, then `[DONE]`.",
    ),
    (
        "/invocations",
        "As at `/`, `/v1/chat/completions` or `/v1/completions`.",
    ),
];

fn add_stream(operation: &mut Value, events: &str) {
    operation["responses"]["200"]["content"]["text/event-stream"] = json!({"schema": {
        "type": "object",
        "description": "One server-sent event.",
        "properties": {"data": {"type": "string", "description": events}},
        "required": ["data"]
    }});
}

/// The path that a route is another name of, or its own.
fn original_path(route: &Route) -> &'static str {
    route.alias_of.unwrap_or(route.path)
}

/// A path in the document's notation.
pub(super) fn shown_path(path: &str) -> String {
    path.replace("{*", "{")
}

/// The operation that a route is another name of.
fn original_of(document: &Value, path: &str, method: &str) -> Value {
    let item = &document["paths"][shown_path(path)];
    // GET /flush_cache is POST /flush_cache.
    let mut operation = match &item[method] {
        Value::Null => item["post"].clone(),
        same => same.clone(),
    };
    operation["description"] = Value::String(format!("The same as `{path}`."));
    operation
}

fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(|character: char| !character.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let name = if words.is_empty() {
        "root".to_owned()
    } else {
        words.join("_")
    };
    format!("{method}_{name}")
}

/// Statuses that a route of this kind may answer with, and what they mean.
fn errors(route: &Route) -> Vec<(u16, &'static str)> {
    let dialect = dialect_by_prefix(route.path);
    let generates = route.takes_body && !is_about_tokens_or_ids(route);
    let mut errors = vec![
        (405, "The path has other methods"),
        (431, "The head has too many fields or bytes"),
    ];
    if route.access == Access::Admin {
        errors.push((401, "No key, or a wrong one"));
        errors.push((403, "Not the admin key"));
        errors.push((404, "The server has no admin key"));
    } else if route.access != Access::Open {
        errors.push((401, "No key, or a wrong one, where keys are set"));
    }
    if route.takes_body {
        errors.push((408, "The body stopped coming"));
        errors.push((413, "The body is too large"));
        errors.push((415, "The body is not declared as JSON"));
        errors.push((429, "Model is overloaded"));
        match dialect {
            Dialect::Native => {
                errors.push((400, "The body is no JSON, or nested too deep"));
                errors.push((
                    422,
                    "A field is missing, of the wrong type or out of bounds",
                ));
            }
            Dialect::OpenAi => errors.push((400, "Invalid request")),
        }
    }
    if route.path == "/invocations" || route.path.starts_with("/v2/models/") {
        errors.push((404, "Unknown model"));
    }
    match dialect {
        Dialect::Native if generates => errors.push((424, "Generation error")),
        Dialect::OpenAi if generates => {
            errors.push((404, "Unknown model"));
            errors.push((500, "Generation error"));
        }
        _ => {}
    }
    errors.push((500, "A fault of the server"));
    errors.push((503, "Not ready, or shutting down"));
    errors
}

fn is_about_tokens_or_ids(route: &Route) -> bool {
    let path = original_path(route);
    path.contains("tokenize") || path == "/abort"
}

fn add_errors(operation: &mut Value, route: &Route) {
    let schema = match dialect_by_prefix(route.path) {
        _ if route.path == "/invocations" => "#/components/schemas/AnyErrorResponse",
        Dialect::Native => "#/components/schemas/ErrorResponse",
        Dialect::OpenAi => "#/components/schemas/OpenAiErrorResponse",
    };
    let Some(responses) = operation["responses"].as_object_mut() else {
        return;
    };
    for (status, description) in errors(route) {
        let response = responses
            .entry(status.to_string())
            .or_insert_with(|| json!({"description": description}));
        // A handler's own shape of what is wrong stays: `KServe`'s probes have one.
        let named = &response["content"]["application/json"]["schema"]["$ref"];
        let is_own = named
            .as_str()
            .is_some_and(|name| !name.ends_with("ErrorResponse"));
        if !is_own {
            response["content"] = json!({"application/json": {"schema": {"$ref": schema}}});
        }
    }
    sort(responses);
}

fn sort(responses: &mut Map<String, Value>) {
    let mut sorted: Vec<(String, Value)> = std::mem::take(responses).into_iter().collect();
    sorted.sort_by(|one, other| one.0.cmp(&other.0));
    responses.extend(sorted);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every path and method.
    fn operations(document: &Value) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys() {
                found.insert((method.to_uppercase(), path.clone()));
            }
        }
        found
    }

    #[test]
    fn the_document_and_the_table_hold_the_same_routes() {
        let documented = operations(&super::super::value());
        let listed: BTreeSet<_> = ROUTES
            .iter()
            .map(|route| (route.method.to_owned(), shown_path(route.path)))
            .collect();
        assert_eq!(documented, listed);
    }

    #[test]
    fn every_operation_is_whole() {
        let document = super::super::value();
        let mut ids = BTreeSet::new();
        for route in ROUTES {
            let path = shown_path(route.path);
            let operation = &document["paths"][&path][route.method.to_lowercase()];
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} twice");
            assert_eq!(
                route.takes_body,
                operation["requestBody"].is_object(),
                "{path}"
            );
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                responses.keys().any(|status| status.starts_with('2')),
                "{path}"
            );
            for (status, _) in errors(route) {
                assert!(
                    responses.contains_key(&status.to_string()),
                    "{path} {status}"
                );
            }
            for (status, response) in responses {
                let is_described = response["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty());
                assert!(is_described, "{path} {status}");
            }
        }
    }

    /// A probe at `/` does not stream, though the generation route of the same path does.
    #[test]
    fn only_generation_routes_stream() {
        let document = super::super::value();
        let streams = |method: &str, path: &str| {
            let answer = &document["paths"][path][method]["responses"]["200"];
            answer["content"]["text/event-stream"].is_object()
        };
        assert!(streams("post", "/") && streams("post", "/v1"));
        assert!(streams("post", "/v1/chat/completions"));
        assert!(!streams("get", "/") && !streams("post", "/generate"));
    }

    #[test]
    fn probes_of_kserve_say_in_their_own_shape_what_is_waited_for() {
        let document = super::super::value();
        for path in ["/v2/health/ready", "/v2/models/{model}/ready"] {
            let answers = &document["paths"][path]["get"]["responses"];
            let shape = &answers["503"]["content"]["application/json"]["schema"]["$ref"];
            assert_eq!(shape, "#/components/schemas/KserveHealth", "{path}");
        }
    }

    /// Nothing predicts the first token of a prompt.
    #[test]
    fn the_first_place_of_a_prompt_may_have_no_logprob() {
        let document = super::super::value();
        for (schema, field) in [
            ("ChatCompletion", "prompt_logprobs"),
            ("CompletionChoice", "prompt_logprobs"),
            ("CompletionLogprobs", "top_logprobs"),
            ("CompletionLogprobs", "token_logprobs"),
        ] {
            let items = &document["components"]["schemas"][schema]["properties"][field]["items"];
            assert!(
                items.to_string().contains("\"null\""),
                "{schema}.{field}: {items}"
            );
        }
    }

    /// A reference to nowhere makes generated clients fail.
    #[test]
    fn every_reference_leads_somewhere() {
        let document = super::super::value();
        let mut left = vec![&document];
        while let Some(value) = left.pop() {
            match value {
                Value::Object(members) => {
                    if let Some(Value::String(reference)) = members.get("$ref") {
                        let pointer = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                    }
                    left.extend(members.values());
                }
                Value::Array(items) => left.extend(items),
                _ => {}
            }
        }
    }
}
