//! Answers bound by a grammar end where the grammar is complete.

use crate::routes_support::tiny_tokenizer::bytes_of;
use crate::routes_support::{Answer, Server, config, says};
use serde_json::{Value, json};

fn completion(regex: &str, rules: &Value) -> Value {
    let mut body = json!({"prompt": "Hello", "max_tokens": 30,
        "response_format": {"type": "regex", "value": regex}});
    let rules = rules.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(rules);
    body
}

/// The text of a stream's chunks, and how it ended.
fn streamed(answer: &Answer) -> (String, Value) {
    let chunks = answer.event_json();
    let texts = chunks
        .iter()
        .map(|chunk| chunk["choices"][0]["text"].as_str().unwrap());
    let last = &chunks.last().unwrap()["choices"][0];
    (texts.collect(), last["finish_reason"].clone())
}

#[tokio::test]
async fn a_complete_grammar_ends_the_answer_whatever_else_was_asked_for() {
    let server = Server::start(config(), says(bytes_of("abcabc"))).await;
    for rules in [
        json!({}),
        json!({"ignore_eos": true}),
        json!({"min_tokens": 25}),
        json!({"ignore_eos": true, "min_tokens": 25}),
    ] {
        let body = completion("ab[cd]", &rules);
        let answer = server.post("/v1/completions", &body).await;
        let choice = &answer.json()["choices"][0];
        assert_eq!(choice["text"], "abc", "{rules}");
        assert_eq!(choice["finish_reason"], "stop", "{rules}");
        let mut body = body;
        body["stream"] = json!(true);
        let (text, end) = streamed(&server.post("/v1/completions", &body).await);
        assert_eq!((text.as_str(), end), ("abc", json!("stop")), "{rules}");
    }
    // While it is not complete, `min_tokens` hold.
    let answer = server
        .post(
            "/v1/completions",
            &completion("[abc]+", &json!({"min_tokens": 10})),
        )
        .await;
    let answer = answer.json();
    let text = answer["choices"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("abcabc") && text.len() >= 10, "{answer}");
    assert!(answer["usage"]["completion_tokens"].as_u64().unwrap() > 10);
    server.wait_idle().await;
}

/// tgi#3058, tgi#2523. The model would go on after the object.
#[tokio::test]
async fn case_5_1_json_object_without_a_schema_is_an_object_in_every_dialect() {
    let server = Server::start(config(), says(bytes_of("{}, or so"))).await;
    let format = json!({"type": "json_object"});
    let text = json!("{}");
    let native = json!({"inputs": "Hello", "parameters": {"grammar": format}});
    let answer = server.post("/generate", &native).await.json();
    assert_eq!(answer["generated_text"], text, "{answer}");
    let completion = json!({"prompt": "Hello", "response_format": format});
    let answer = server.post("/v1/completions", &completion).await.json();
    assert_eq!(answer["choices"][0]["text"], text, "{answer}");
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let chat = json!({"messages": messages, "response_format": format});
    let answer = server.post("/v1/chat/completions", &chat).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], text, "{answer}");
    let vertex = json!({"instances": [chat, native]});
    let answer = server.post("/vertex", &vertex).await.json();
    assert_eq!(answer["predictions"], json!(["{}", "{}"]));
    server.wait_idle().await;
}

#[tokio::test]
async fn a_complete_grammar_ends_the_answer_of_a_model_without_end_ids() {
    let server = Server::start_without_end_ids(config(), says(bytes_of("abcabc"))).await;
    let native = json!({"inputs": "Hello", "parameters": {"details": true, "max_new_tokens": 30,
        "grammar": {"type": "regex", "value": "ab[cd]"}}});
    let answer = server.post("/generate", &native).await.json();
    assert_eq!(answer["generated_text"], "abc");
    assert_eq!(answer["details"]["finish_reason"], "eos_token");
    assert_eq!(answer["details"]["generated_tokens"], 3);
    let events = server.post("/generate_stream", &native).await.event_json();
    let texts: Vec<&str> = events
        .iter()
        .map(|event| event["token"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts, ["a", "b", "c"]);
    assert_eq!(events[2]["generated_text"], "abc");
    assert_eq!(events[2]["details"]["finish_reason"], "eos_token");

    let mut body = completion("ab[cd]", &json!({"stream": true}));
    let (text, end) = streamed(&server.post("/v1/completions", &body).await);
    assert_eq!((text.as_str(), end), ("abc", json!("stop")));
    // What ends before the grammar does ends as ever.
    body["max_tokens"] = json!(2);
    let (text, end) = streamed(&server.post("/v1/completions", &body).await);
    assert_eq!((text.as_str(), end), ("ab", json!("length")));
    body["max_tokens"] = json!(30);
    body["stop"] = json!(["b"]);
    let (text, end) = streamed(&server.post("/v1/completions", &body).await);
    assert_eq!((text.as_str(), end), ("a", json!("stop")));
    // No token could carry this end.
    let body = completion("a{0}", &json!({}));
    let answer = server.post("/v1/completions", &body).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_eq!(answer.json()["error"]["param"], "response_format");
    server.wait_idle().await;
}

/// The field, and the place in the schema.
#[tokio::test]
async fn a_bad_grammar_is_named_by_its_field_and_its_place() {
    let server = Server::start(config(), says(bytes_of("a"))).await;
    let schema = json!({"properties": {"a": {"type": "strin"}}});
    let at = "and must be one of array, boolean, integer, null, number, object, string, or a list of them, at \
              #/properties/a";
    let wrong = format!("`type` is \"strin\", {at}");
    let group = "the regex is not valid: unclosed group at byte 1";
    let space = "the whitespace_pattern is not valid: unclosed group at byte 0";
    for (grammar, field, due) in [
        (json!({"type": "json", "value": schema}), "value", &*wrong),
        (
            json!({"type": "json_schema", "value": {"name": "x", "schema": schema}}),
            "value.schema",
            &*wrong,
        ),
        (json!({"type": "regex", "value": "a(b"}), "value", group),
        (
            json!({"type": "json", "value": {}, "whitespace_pattern": "("}),
            "whitespace_pattern",
            space,
        ),
    ] {
        let body = json!({"inputs": "Hello", "parameters": {"grammar": grammar}});
        let answer = server.post("/generate", &body).await;
        assert_eq!(answer.status, 422);
        assert_eq!(
            answer.json()["error"],
            format!(
                "Input validation error: grammar is not valid: `parameters.grammar.{field}`: {due}"
            )
        );
        let body = json!({"prompt": "Hello", "response_format": grammar});
        let answer = server.post("/v1/completions", &body).await;
        assert_eq!(answer.status, 400);
        let error = &answer.json()["error"];
        assert_eq!(error["param"], "response_format");
        assert_eq!(
            error["message"],
            format!(
                "Input validation error: grammar is not valid: `response_format.{field}`: {due}"
            )
        );
    }
    server.wait_idle().await;
}
