//! What is wrong with a schema is told with its place in it.
#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "../../dialect/tests/tiny_tokenizer/mod.rs"]
mod tiny_tokenizer;

use headrace_grammar::{GrammarCompiler, GrammarSource};
use headrace_text::Tokenizer;
use serde_json::{Value, json};
use tiny_tokenizer::{EOS, vocab_size};

fn compiler(lenient: bool) -> GrammarCompiler {
    let json = tiny_tokenizer::json().to_string();
    let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
    GrammarCompiler::new(&tokenizer, &[EOS], vocab_size(), lenient).unwrap()
}

/// What is said of a schema, without the place, and the place.
fn refusal(schema: Value) -> (String, String) {
    let source = GrammarSource::json(schema);
    let error = compiler(false).compile(&source).unwrap_err().to_string();
    assert!(!error.contains('\n'), "{error}");
    let (what, place) = error.rsplit_once(", at ").unwrap_or((&error, ""));
    (what.to_owned(), place.to_owned())
}

#[test]
fn a_value_that_its_keyword_cannot_have_is_named_with_its_place() {
    for (keyword, value) in [
        ("type", json!("strin")),
        ("type", json!(5)),
        ("type", json!([])),
        ("type", json!(["string", "foo"])),
        ("additionalProperties", json!(5)),
        ("items", json!("a")),
        ("allOf", json!({})),
        ("anyOf", json!(5)),
        ("oneOf", json!("a")),
        ("prefixItems", json!({})),
        ("enum", json!("a")),
        ("properties", json!(["a"])),
        ("patternProperties", json!(1)),
        ("$defs", json!([])),
        ("$ref", json!(5)),
        ("pattern", json!(5)),
        ("format", json!({})),
        ("required", json!("a")),
        ("required", json!(["a", 1])),
        ("minimum", json!("1")),
        ("maximum", json!(null)),
        ("exclusiveMaximum", json!("1")),
        ("multipleOf", json!("1")),
        ("minLength", json!(-1)),
        ("maxLength", json!(1.5)),
        ("maxLength", json!(99_999_999_999_u64)),
        ("minItems", json!("3")),
        ("maxProperties", json!([])),
    ] {
        let schema = json!({"properties": {"a/b": {"items": {keyword: value}}}});
        let (what, place) = refusal(schema);
        assert!(
            what.starts_with(&format!("`{keyword}` is {value}, and must be ")),
            "{what}"
        );
        assert_eq!(place, "#/properties/a~1b/items", "{what}");
    }
    // What is no schema, and a pattern that does not parse.
    let (_, place) = refusal(json!({"properties": {"a": {"anyOf": [{}, 5]}}}));
    assert_eq!(place, "#/properties/a/anyOf/1");
    let (what, place) = refusal(json!({"$defs": {"x": {"pattern": "a(b"}}, "$ref": "#/$defs/x"}));
    assert!(what.contains("at byte 1"), "{what}");
    assert_eq!(place, "#/$defs/x");
}

#[test]
fn what_no_value_can_satisfy_is_named_with_its_place() {
    let never = json!({"type": "integer", "minimum": 5, "maximum": 2});
    for (schema, due) in [
        (never.clone(), "#"),
        (
            json!({"properties": {"o": {"properties": {"a": never}, "required": ["a"]}}, "required": ["o"]}),
            "#/properties/o/properties/a",
        ),
        (
            json!({"type": "array", "prefixItems": [{}, never], "minItems": 2}),
            "#/prefixItems/1",
        ),
        (
            json!({"$defs": {"x": never}, "properties": {"a": {"$ref": "#/$defs/x"}}, "required": ["a"]}),
            "#/$defs/x",
        ),
    ] {
        let (what, place) = refusal(schema);
        assert!(
            what.ends_with("minimum (5) is greater than maximum (2)"),
            "{what}"
        );
        assert!(what.contains("no value can be valid"), "{what}");
        assert_eq!(place, due, "{what}");
    }
    // The way leads through a combination, which has no such place: the property is named.
    let (what, place) = refusal(json!({"allOf": [
        {"properties": {"a": {"minLength": 5}}, "required": ["a"]},
        {"properties": {"a": {"type": "string", "maxLength": 2}}},
    ]}));
    assert!(
        what.contains("'a'") && what.contains("minLength (5)"),
        "{what}"
    );
    assert_eq!(place, "#");
}

#[test]
fn formats_and_alternatives_that_are_not_supported_are_named_with_their_place() {
    let (what, place) =
        refusal(json!({"properties": {"a": {"type": "string", "format": "shoe-size"}}}));
    assert_eq!(what, "the format `shoe-size` is not supported");
    assert_eq!(place, "#/properties/a");
    let either = json!({"oneOf": [{"type": "integer"}, {"type": "number"}]});
    let (what, place) = refusal(json!({"type": "array", "items": either}));
    assert!(what.contains("`oneOf`"), "{what}");
    assert_eq!(place, "#/items");
    // Of several it is not known which.
    let (what, place) = refusal(json!({"properties": {"a": either, "b": either}}));
    assert!(what.contains("`oneOf`"), "{what}");
    assert_eq!(place, "");
    let source = GrammarSource::json(json!({"type": "string", "format": "shoe-size"}));
    assert!(compiler(true).compile(&source).is_ok(), "lenient");
}

/// What the shapes let pass is never refused for its shape.
#[test]
fn values_that_keywords_can_have_pass() {
    for schema in [
        json!({"type": ["string", "null"], "minLength": 0}),
        json!({"type": "number", "minimum": 1, "exclusiveMinimum": true}),
        json!({"type": "number", "exclusiveMinimum": 1.5}),
        json!({"type": "array", "items": true}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "required": []}),
        // Of generators that write the largest number of their language.
        json!({"type": "string", "maxLength": i32::MAX}),
        json!({"type": "string", "maxLength": u32::MAX}),
    ] {
        let compiled = compiler(false).compile(&GrammarSource::json(schema.clone()));
        assert!(compiled.is_ok(), "{schema}: {compiled:?}");
    }
}
