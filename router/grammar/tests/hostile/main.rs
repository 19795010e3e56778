//! Grammars that are made to hurt: each ends in one line or compiles, soon, and in bounded memory.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "test code")]

#[path = "../../../dialect/tests/tiny_tokenizer/mod.rs"]
mod tiny_tokenizer;

mod sources;

use headrace_grammar::{GrammarCompiler, GrammarSource};
use headrace_text::Tokenizer;
use serde_json::{Value, json};
use sources::hostile;
use std::time::{Duration, Instant};
use tiny_tokenizer::{END, EOS, vocab_size};

/// Generous, for a machine that does other things too.
const SOON: Duration = Duration::from_secs(4);

fn compiler() -> GrammarCompiler {
    let json = tiny_tokenizer::json().to_string();
    let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
    GrammarCompiler::new(&tokenizer, &[EOS, END], vocab_size(), false).unwrap()
}

/// Resident bytes of this process.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages = pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap();
    pages * 4096
}

#[test]
fn every_hostile_grammar_ends_soon_in_one_line_or_compiles() {
    let model = compiler();
    let before = resident();
    for (name, source) in hostile() {
        let start = Instant::now();
        let compiled = model.compile(&source);
        let took = start.elapsed();
        let grown = resident().saturating_sub(before) >> 20;
        match &compiled {
            Ok(_) => eprintln!("{took:>12.2?} {grown:>5} MiB  {name}: compiles"),
            Err(error) => eprintln!("{took:>12.2?} {grown:>5} MiB  {name}: {error}"),
        }
        assert!(took < SOON, "{name}: {took:?}");
        if let Err(error) = &compiled {
            let text = error.to_string();
            assert!(
                !text.is_empty() && !text.contains('\n') && text.len() < 800,
                "{name}: {text}"
            );
        }
        let Ok(grammar) = compiled else { continue };
        // It runs too: some steps of the ids that come first.
        let mut state = grammar.start();
        let start = Instant::now();
        let mut slowest = Duration::ZERO;
        for step in 0..60 {
            let from = Instant::now();
            let Ok(mask) = state.mask() else { break };
            slowest = slowest.max(from.elapsed());
            let allowed: Vec<u32> = (0..vocab_size()).filter(|id| mask.allows(*id)).collect();
            let Some(id) = allowed.get(step * 7 % allowed.len().max(1)) else {
                break;
            };
            if state.accept(*id).is_err() || state.is_complete() {
                break;
            }
        }
        eprintln!(
            "      {:?} for the walk, {slowest:?} the slowest mask",
            start.elapsed()
        );
        assert!(
            start.elapsed() < SOON,
            "{name}: the walk took {:?}",
            start.elapsed()
        );
    }
    eprintln!("cached {:?}", model.cached());
}

/// Each of these kept a thread for seconds or for ever; the bound is one of work, told with the place.
#[test]
fn what_would_take_for_ever_is_refused_with_its_place() {
    let model = compiler();
    let names: Vec<String> = (0..10_000).map(|n| format!("name {n}")).collect();
    let texts = |count: usize| -> Vec<Value> {
        let patterns = (0..count).map(|n| json!({"type": "string", "pattern": format!("a{n}")}));
        patterns.collect()
    };
    let patterns = |count: usize| -> serde_json::Map<String, Value> {
        (0..count).map(|n| (format!("^a{n}$"), json!({}))).collect()
    };
    for (schema, words) in [
        (
            json!({"type": "object", "required": names}),
            "too many names in `properties` and `required`",
        ),
        (
            json!({"allOf": names.chunks(20).map(|some| json!({"type": "object", "required": some})).collect::<Vec<_>>()}),
            "names of properties, squared",
        ),
        (json!({"allOf": texts(100)}), "too many patterns"),
        (
            json!({"patternProperties": patterns(65)}),
            "too many `patternProperties`",
        ),
        (
            json!({"patternProperties": patterns(30), "anyOf": (0..50).map(|n| json!({"maxProperties": n})).collect::<Vec<_>>()}),
            "`patternProperties`, squared, times the alternatives",
        ),
        (
            json!({"properties": (0..51).map(|n| (format!("p{n}"), json!({}))).collect::<serde_json::Map<_, _>>(),
                "minProperties": 1, "additionalProperties": false}),
            "beside `minProperties` or `maxProperties`",
        ),
    ] {
        let inner = json!({"type": "array", "items": schema});
        let error = model.compile(&GrammarSource::json(inner)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(words), "{text}");
        assert!(text.ends_with(", at #/items"), "{text}");
    }
    // What people write of the kind passes.
    for schema in [
        json!({"type": "string", "minLength": 8, "allOf": [
            {"pattern": "[A-Z]"}, {"pattern": "[a-z]"}, {"pattern": "[0-9]"}, {"pattern": "[^A-Za-z0-9]"}]}),
        json!({"patternProperties": patterns(20)}),
        json!({"type": "object", "required": names[..500]}),
        json!({"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "minProperties": 1,
            "additionalProperties": false}),
        json!({"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}],
            "$defs": {"base": {"properties": {"id": {"type": "string", "pattern": "^[a-z]+$"}}, "required": ["id"]}}}),
    ] {
        let compiled = model.compile(&GrammarSource::json(schema.clone()));
        assert!(compiled.is_ok(), "{schema}: {compiled:?}");
    }
}

/// Found by fuzzing: references and names of properties were shown as they were.
#[test]
fn what_an_error_quotes_of_a_schema_is_escaped_and_cut() {
    let hostile = format!("x\nERROR y\u{1b}[2J\u{2028}{}", "z".repeat(10_000));
    let compiler = compiler();
    for schema in [
        json!({"$ref": hostile}),
        json!({"$ref": format!("#/{hostile}")}),
        json!({"properties": {&hostile: 1}}),
        json!({"properties": {&hostile: {"not": {"type": "null"}}}}),
        json!({"properties": {&hostile: {"pattern": "("}}}),
        json!({"$defs": {&hostile: {"multipleOf": -1}}}),
    ] {
        let error = compiler.compile(&GrammarSource::json(schema)).unwrap_err();
        let text = error.to_string();
        let breaks = |c: char| c.is_control() || c == '\u{2028}';
        assert!(!text.contains(breaks) && text.len() < 600, "{text:?}");
        assert!(text.contains(r"x\nERROR y\u{1b}[2J\u{2028}"), "{text}");
    }
    // The library's own words, too.
    for schema in [
        json!({"type": "a\nb"}),
        json!({"format": "a\r\nb", "type": "string"}),
        json!({"enum": []}),
    ] {
        if let Err(error) = compiler.compile(&GrammarSource::json(schema)) {
            let text = error.to_string();
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}
