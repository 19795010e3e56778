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

#[test]
fn bounds_beyond_64_bits_are_named_with_their_place_or_held_within_them() {
    for (bounds, keyword) in [
        (json!({"minimum": 1e19}), "minimum"),
        (json!({"maximum": -1e19}), "maximum"),
        (json!({"exclusiveMinimum": i64::MAX}), "exclusiveMinimum"),
        (json!({"exclusiveMaximum": i64::MIN}), "exclusiveMaximum"),
        (json!({"minimum": 9_223_372_036_854_775_808_u64}), "minimum"),
        (json!({"minimum": 1e300}), "minimum"),
    ] {
        for kind in ["integer", "number"] {
            let mut schema = bounds.clone();
            schema["type"] = json!(kind);
            let schema = json!({"properties": {"a": {"items": schema}}});
            let (what, place) = refusal(schema);
            assert!(what.starts_with(&format!("`{keyword}` is ")), "{what}");
            assert!(what.contains("beyond 64 bits"), "{what}");
            assert_eq!(place, "#/properties/a/items");
        }
    }
    let (what, place) = refusal(json!({"items": {"type": "number", "minimum": 1e-300}}));
    assert!(what.contains("at most 18 digits after the point"), "{what}");
    assert_eq!(place, "#/items");
    for wrong in [
        json!({"const": 9_007_199_254_740_993_i64}),
        json!({"enum": ["a", [u64::MAX]]}),
    ] {
        let (what, place) = refusal(json!({"items": wrong}));
        assert!(what.contains("no 64-bit float holds"), "{what}");
        assert_eq!(place, "#/items");
    }
    for kind in ["integer", "number"] {
        for bounds in [
            json!({"minimum": -1e19}),
            json!({"maximum": 1e19}),
            json!({"minimum": -1e308, "maximum": 1e308}),
            json!({"minimum": 0, "maximum": u64::MAX}),
            json!({"minimum": i64::MIN, "maximum": i64::MAX}),
            json!({"minimum": 1_000_000_000_000_000_000_i64}),
            json!({"maximum": -1_000_000_000_000_000_001_i64}),
            json!({"exclusiveMinimum": 9_007_199_254_740_993_i64}),
        ] {
            let mut schema = bounds;
            schema["type"] = json!(kind);
            let compiled = compiler(false).compile(&GrammarSource::json(schema.clone()));
            assert!(compiled.is_ok(), "{schema}: {compiled:?}");
        }
    }
}

/// Whether a text is one of the grammar's, byte by byte.
fn accepts(schema: &Value, text: &str) -> bool {
    let grammar = compiler(false)
        .compile(&GrammarSource::json(schema.clone()))
        .unwrap();
    let mut state = grammar.start();
    text.bytes().all(|byte| {
        state
            .accept(tiny_tokenizer::BYTES + u32::from(byte))
            .is_ok()
    }) && state.may_end()
}

/// Floats round 2⁵³ + 1 to its neighbour, which would be out of bounds.
#[test]
fn no_bound_is_widened_by_rounding() {
    let odd = 9_007_199_254_740_993_i64;
    let schema = json!({"type": "integer", "minimum": odd});
    assert!(!accepts(&schema, "9007199254740992"));
    assert!(accepts(&schema, "9007199254740994"));
    let schema = json!({"type": "integer", "maximum": odd + 2});
    assert!(!accepts(&schema, "9007199254740996"));
    assert!(accepts(&schema, "9007199254740994"));
    let schema = json!({"type": "integer", "exclusiveMinimum": odd - 1});
    assert!(!accepts(&schema, "9007199254740992"));
    let schema = json!({"type": "integer", "exclusiveMaximum": odd + 1});
    assert!(!accepts(&schema, "9007199254740994"));
    assert!(accepts(&schema, "9007199254740991"));
    let schema = json!({"type": "integer", "minimum": -1e19, "maximum": 1e19});
    assert!(accepts(&schema, "-9000000000000000000"));
    assert!(!accepts(&schema, "99999999999999999999"));
}

#[test]
fn recursion_without_an_end_is_named_with_its_place() {
    for (schema, due) in [
        (json!({"$ref": "#"}), "#"),
        (json!({"allOf": [{"$ref": "#"}]}), "#"),
        (json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}), "#"),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            "#/$defs/a",
        ),
        (
            json!({"properties": {"x": {"$ref": "#/properties/x"}}}),
            "#/properties/x",
        ),
        (
            json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}),
            "#",
        ),
        (
            json!({"type": "array", "items": {"$ref": "#"}, "minItems": 1}),
            "#",
        ),
        (
            json!({"type": "array", "prefixItems": [{}, {"$ref": "#"}], "minItems": 2}),
            "#",
        ),
    ] {
        let (what, place) = refusal(schema.clone());
        assert!(
            what.contains("recursion without an end"),
            "{schema}: {what}"
        );
        assert!(what.contains("cycle"), "{what}");
        assert_eq!(place, due, "{schema}");
    }
    // A way out is enough.
    for schema in [
        json!({"type": "object", "properties": {"next": {"$ref": "#"}}}),
        json!({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]}),
        json!({"type": "array", "items": {"$ref": "#"}}),
        json!({"type": ["object", "null"], "properties": {"next": {"$ref": "#"}}, "required": ["next"]}),
        json!({"anyOf": [{"$ref": "#"}, {"type": "integer"}]}),
    ] {
        let compiled = compiler(false).compile(&GrammarSource::json(schema.clone()));
        assert!(compiled.is_ok(), "{schema}: {compiled:?}");
    }
    // The library's own cycle, which it tells by an address.
    let (what, place) = refusal(json!({"properties": {"a": {"anyOf": [
        {"type": "null"}, {"allOf": [{"$ref": "#/properties/a"}, {"minimum": 1}]}]}}}));
    assert!(what.contains("`$ref` cycle"), "{what}");
    assert_eq!(place, "#/properties/a");
}

#[test]
fn what_the_library_cannot_do_is_told_in_our_words_with_its_place() {
    for (schema, words, due) in [
        (
            json!({"items": {"type": "string", "pattern": r"\d+\b"}}),
            "word boundaries",
            "#/items",
        ),
        (
            json!({"items": {"pattern": "a^b"}}),
            "`^` is supported",
            "#/items",
        ),
        (
            json!({"items": {"patternProperties": {r"\b": {}}}}),
            "word boundaries",
            "#/items",
        ),
        (
            json!({"items": {"patternProperties": {"^a": {}, "a$": {}}}}),
            "not disjoint",
            "#/items",
        ),
        (
            json!({"items": {"properties": {"a": {}, "b": {}}, "minProperties": 2}}),
            "`minProperties` and `maxProperties` are supported only",
            "#/items",
        ),
        (
            json!({"items": {"type": "string", "format": ""}}),
            "the format `` is not supported",
            "#/items",
        ),
        (
            json!({"items": {"type": "array", "items": [{}], "additionalItems": 7}}),
            "`additionalItems` is 7",
            "#/items",
        ),
        (
            json!({"items": {"type": "array", "items": [{}], "additionalItems": {"not": {}}}}),
            "the keyword `not`",
            "#/items/additionalItems is not supported",
        ),
        (
            json!({"items": {"type": "string", "format": "uri", "minLength": 100}}),
            "takes too long to find out whether any text fits",
            "#/items",
        ),
        (
            json!({"items": {"$ref": "#/$defs/a~1b"}, "$defs": {"a/b": {"type": "integer"}}}),
            "a name with `/` or `~`",
            "#/$defs/a~1b",
        ),
    ] {
        let source = GrammarSource::json(schema);
        let error = compiler(false).compile(&source).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.ends_with(due), "{error}");
    }
}
