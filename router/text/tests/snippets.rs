//! Jinja's and Python's ways, piece by piece, against transformers' own environment.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests fail as tests do, and say what was compared"
)]

mod support;

use headrace_text::{ChatTemplate, RenderOptions, TemplateError, Tokenizer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use support::golden;
use support::oracle::{ask, difference, is_right, python};

fn file() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/snippets.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Each a template; a line of expressions is many.
fn snippets() -> Vec<String> {
    let lines: Vec<String> = serde_json::from_value(file()["equal"].clone()).unwrap();
    let mut snippets = Vec::new();
    for line in lines {
        if line.contains("{%") {
            snippets.push(line);
        } else {
            let parts: Vec<&str> = line.split("}}|{{").collect();
            let last = parts.len() - 1;
            snippets.extend(parts.iter().enumerate().map(|(index, part)| {
                let open = if index == 0 { "" } else { "{{" };
                let close = if index == last { "" } else { "}}" };
                format!("{open}{part}{close}")
            }));
        }
    }
    snippets
}

/// What is known to differ, by reason.
fn known() -> Vec<String> {
    let lists: BTreeMap<String, Vec<String>> =
        serde_json::from_value(file()["different"].clone()).unwrap();
    lists.into_values().flatten().collect()
}

/// The differences of `snippets` that there are.
fn differences(python: &Path, snippets: &[String]) -> Vec<String> {
    let tokenizer =
        Tokenizer::from_bytes(golden("tiny_byte_fallback.json").to_string().as_bytes()).unwrap();
    let messages = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "Grüße"}),
    ];
    let questions: Vec<Value> = snippets
        .iter()
        .map(|text| json!({"text": text, "messages": messages, "options": {}}))
        .collect();
    let answers = ask(python, &questions);
    let mut wrong = Vec::new();
    for (text, answer) in snippets.iter().zip(&answers) {
        let ours: Result<String, TemplateError> = ChatTemplate::compile(text, &tokenizer)
            .and_then(|template| template.render(&messages, &RenderOptions::default()))
            .map(|prompt| prompt.text);
        if !is_right(&ours, answer) {
            wrong.push(difference(text, &ours, answer));
        }
    }
    wrong
}

#[test]
fn snippets_are_rendered_as_transformers_does() {
    let Some(python) = python() else { return };
    let snippets = snippets();
    let wrong = differences(&python, &snippets);
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        snippets.len(),
        wrong.join("\n")
    );
    eprintln!("{} snippets equal", snippets.len());
}

/// A difference that is gone belongs to the equal ones.
#[test]
fn known_differences_are_still_there() {
    let Some(python) = python() else { return };
    let known = known();
    let wrong = differences(&python, &known);
    let equal: Vec<&String> = known
        .iter()
        .filter(|text| !wrong.iter().any(|line| line.starts_with(text.as_str())))
        .collect();
    assert!(equal.is_empty(), "equal now: {equal:?}");
}
