//! The grammars.

use headrace_grammar::GrammarSource;
use serde_json::{Value, json};
use std::fmt::Write;

fn regex(source: impl Into<String>) -> GrammarSource {
    GrammarSource::Regex(source.into())
}

fn nested(depth: usize, leaf: Value, wrap: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(leaf, |value, _| wrap(value))
}

/// Each with its name.
#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn hostile() -> Vec<(&'static str, GrammarSource)> {
    let names = |count: usize| -> Vec<String> { (0..count).map(|n| format!("name {n}")).collect() };
    let properties = |count: usize| -> Value {
        (0..count)
            .map(|n| (format!("p{n}"), json!({"type": "string"})))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let chain = |count: usize| {
        let mut defs = serde_json::Map::new();
        for n in 0..count {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            defs.insert(format!("d{n}"), json!({"allOf": [next.clone(), next]}));
        }
        defs.insert(
            format!("d{count}"),
            json!({"type": "object", "properties": {"a": {}}}),
        );
        json!({"$ref": "#/$defs/d0", "$defs": defs})
    };
    let product = |lists: usize, length: usize| {
        let list: Vec<Value> = (0..length).map(|n| json!({"maxLength": n + 1})).collect();
        json!({"allOf": (0..lists).map(|_| json!({"anyOf": list})).collect::<Vec<_>>()})
    };
    let mut many_classes = String::new();
    for _ in 0..3000 {
        many_classes.push_str(r"\w");
    }
    let mut alternatives = String::new();
    for n in 0..2500 {
        write!(alternatives, "a{n:04}|").unwrap();
    }
    vec![
        (
            "30,000 nested groups",
            regex("(".repeat(30_000) + &")".repeat(30_000)),
        ),
        (
            "8,000 nested groups",
            regex("(".repeat(8_000) + &")".repeat(8_000)),
        ),
        (
            "90 nested groups with stars",
            regex("(a".repeat(90) + &")*".repeat(90)),
        ),
        ("unclosed groups", regex("(".repeat(5000))),
        ("a{0,100000}", regex("a{0,100000}")),
        ("(a{0,100000}){0,100000}", regex("(a{0,100000}){0,100000}")),
        ("(a{300}b?){300}", regex("(a{300}b?){300}")),
        ("(a?){50000}", regex("(a?){50000}")),
        (
            "[a-z]{1,100000}x{1,100000}",
            regex("([a-z]{1,90000}|x{1,90000})*y"),
        ),
        ("(a*)*b", regex("(a*)*(a*)*(a*)*b")),
        ("(a|a)*b", regex("(a|a)*(aa|a)*b")),
        (".*a.{200}", regex(".*a.{200}")),
        ("(.*a){40}", regex("(.*a.*b.*c){40}")),
        ("(a|b)*a(a|b){60}", regex("(a|b)*a(a|b){60}c")),
        ("many classes", regex(many_classes)),
        ("many alternatives", regex(alternatives + "z")),
        ("16 KiB of letters", regex("ab".repeat(8_000))),
        ("100 KiB of letters", regex("ab".repeat(50_000))),
        ("a lone backslash", regex("abc\\")),
        (
            "case-insensitive",
            regex("(?i)".to_owned() + &"k".repeat(4000)),
        ),
        (
            "enum of 50,000",
            GrammarSource::json(json!({"enum": names(50_000)})),
        ),
        (
            "enum of 10,000",
            GrammarSource::json(json!({"enum": names(10_000)})),
        ),
        (
            "two enums of 5,000",
            GrammarSource::json(json!({"allOf": [{"enum": names(5_000)}, {"enum": names(5_000)}]})),
        ),
        (
            "enum beside a large object",
            GrammarSource::json(json!({"enum": names(5_000), "properties": properties(2_000)})),
        ),
        (
            "2,000 required properties",
            GrammarSource::json(
                json!({"properties": properties(2_000), "required": (0..2_000).map(|n| format!("p{n}")).collect::<Vec<_>>()}),
            ),
        ),
        (
            "2,000 optional properties",
            GrammarSource::json(json!({"properties": properties(2_000)})),
        ),
        (
            "products of alternatives",
            GrammarSource::json(product(6, 20)),
        ),
        (
            "more products of alternatives",
            GrammarSource::json(product(40, 3)),
        ),
        (
            "nested objects",
            GrammarSource::json(nested(
                300,
                json!({}),
                |inner| json!({"properties": {"a": inner}}),
            )),
        ),
        (
            "30 nested objects",
            GrammarSource::json(nested(
                30,
                json!({}),
                |inner| json!({"properties": {"a": inner}}),
            )),
        ),
        (
            "nested allOf",
            GrammarSource::json(nested(
                60,
                json!({"type": "string"}),
                |inner| json!({"allOf": [inner]}),
            )),
        ),
        (
            "nested anyOf twice",
            GrammarSource::json(nested(
                11,
                json!({"type": "object", "properties": {"a": {}}}),
                |inner| json!({"anyOf": [inner.clone(), inner]}),
            )),
        ),
        (
            "nested allOf twice",
            GrammarSource::json(nested(
                11,
                json!({"type": "object", "properties": {"a": {}}}),
                |inner| json!({"allOf": [inner.clone(), inner]}),
            )),
        ),
        (
            "a reference to itself",
            GrammarSource::json(json!({"$ref": "#"})),
        ),
        (
            "references in a circle",
            GrammarSource::json(
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
            ),
        ),
        (
            "combined references in a circle",
            GrammarSource::json(
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}, {"minLength": 1}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}, {"maxLength": 1}]}}}),
            ),
        ),
        ("references that double", GrammarSource::json(chain(40))),
        (
            "a recursive list",
            GrammarSource::json(
                json!({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}),
            ),
        ),
        (
            "minItems",
            GrammarSource::json(
                json!({"type": "array", "items": {"type": "integer"}, "minItems": 1_000_000}),
            ),
        ),
        (
            "maxItems of maxItems",
            GrammarSource::json(nested(
                8,
                json!({"type": "integer"}),
                |inner| json!({"type": "array", "items": inner, "maxItems": 5_000}),
            )),
        ),
        (
            "maxLength",
            GrammarSource::json(json!({"type": "string", "maxLength": 4_000_000_000_u64})),
        ),
        (
            "minLength",
            GrammarSource::json(json!({"type": "string", "minLength": 1_000_000})),
        ),
        (
            "minProperties",
            GrammarSource::json(json!({"type": "object", "minProperties": 100_000})),
        ),
        (
            "multipleOf",
            GrammarSource::json(json!({"type": "integer", "multipleOf": 999_999_937})),
        ),
        (
            "small multipleOf",
            GrammarSource::json(json!({"type": "number", "multipleOf": 1e-9})),
        ),
        (
            "huge bounds",
            GrammarSource::json(json!({"type": "number", "minimum": -1e308, "maximum": 1e308})),
        ),
        (
            "a pattern that explodes",
            GrammarSource::json(json!({"type": "string", "pattern": "(.*a.*b.*c){40}"})),
        ),
        (
            "pattern beside lengths",
            GrammarSource::json(
                json!({"type": "string", "pattern": "^(a|b)*a(a|b){60}$", "maxLength": 100_000}),
            ),
        ),
        (
            "patternProperties",
            GrammarSource::json(
                json!({"patternProperties": (0..60).map(|n| (format!("^.*{n}.*x{{0,500}}$"), json!({}))).collect::<serde_json::Map<_, _>>()}),
            ),
        ),
        (
            "a bad pattern",
            GrammarSource::json(json!({"type": "string", "pattern": "(["})),
        ),
        (
            "200 alternatives of oneOf",
            GrammarSource::json(
                json!({"oneOf": (0..200).map(|n| json!({"properties": {"kind": {"const": format!("k{n}")}, "v": {"type": "integer"}}, "required": ["kind"]})).collect::<Vec<_>>()}),
            ),
        ),
        (
            "an impossible schema",
            GrammarSource::json(json!({"type": "integer", "minimum": 5, "maximum": 4})),
        ),
        (
            "10,000 required names",
            GrammarSource::json(json!({"type": "object", "required": names(10_000)})),
        ),
        (
            "10,000 required names beside a property",
            GrammarSource::json(json!({"properties": {"a": {}}, "required": names(10_000)})),
        ),
        (
            "10,000 required names in small parts",
            GrammarSource::json(
                json!({"allOf": names(10_000).chunks(20).map(|some| json!({"type": "object", "required": some})).collect::<Vec<_>>()}),
            ),
        ),
        (
            "600 properties beside 100 alternatives",
            GrammarSource::json(
                json!({"properties": properties(600), "anyOf": (0..100).map(|n| json!({"required": [format!("p{n}")]})).collect::<Vec<_>>()}),
            ),
        ),
        (
            "100 patterns that hold together",
            GrammarSource::json(
                json!({"allOf": (0..100).map(|n| json!({"type": "string", "pattern": format!("a{n}")})).collect::<Vec<_>>()}),
            ),
        ),
        (
            "100 patterns that hold together for a property",
            GrammarSource::json(
                json!({"allOf": (0..100).map(|n| json!({"properties": {"x": {"type": "string", "pattern": format!("a{n}")}}})).collect::<Vec<_>>()}),
            ),
        ),
        (
            "100 patterns that hold together for items",
            GrammarSource::json(
                json!({"type": "array", "allOf": (0..100).map(|n| json!({"type": "array", "items": {"type": "string", "pattern": format!("a{n}")}})).collect::<Vec<_>>()}),
            ),
        ),
        (
            "12 patterns that hold together",
            GrammarSource::json(
                json!({"allOf": (0..12).map(|n| json!({"type": "string", "pattern": format!("a{n}")})).collect::<Vec<_>>()}),
            ),
        ),
        (
            "3 wide patterns that hold together",
            GrammarSource::json(
                json!({"allOf": (["(.*a.*b.*c){40}", "([a-m]*[c-z]+.?){30}", "(.?[a-k][f-z]){50}"].map(|one| json!({"type": "string", "pattern": one})))}),
            ),
        ),
        (
            "300 patternProperties",
            GrammarSource::json(
                json!({"patternProperties": (0..300).map(|n| (format!("^a{n}$"), json!({}))).collect::<serde_json::Map<_, _>>()}),
            ),
        ),
        (
            "60 patternProperties beside 300 alternatives",
            GrammarSource::json(
                json!({"patternProperties": (0..60).map(|n| (format!("^a{n}$"), json!({}))).collect::<serde_json::Map<_, _>>(), "anyOf": (0..300).map(|n| json!({"maxProperties": n})).collect::<Vec<_>>()}),
            ),
        ),
        (
            "at least one of 300 properties",
            GrammarSource::json(
                json!({"properties": properties(300), "minProperties": 1, "additionalProperties": false}),
            ),
        ),
        (
            "one of 45 properties",
            GrammarSource::json(
                json!({"properties": properties(45), "minProperties": 1, "maxProperties": 1, "additionalProperties": false}),
            ),
        ),
        (
            "two trees that hold together",
            GrammarSource::json(json!({
                "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
                "$defs": {
                    "a": {"type": "object", "properties": {"c": {"$ref": "#/$defs/a"}}},
                    "b": {"type": "object", "properties": {"c": {"$ref": "#/$defs/b"}}},
                },
            })),
        ),
        (
            "10,000 values of an enum",
            GrammarSource::json(json!({"type": "string", "enum": names(10_000)})),
        ),
        (
            "9,000 alternatives",
            GrammarSource::json(
                json!({"anyOf": (0..9_000).map(|n| json!({"const": n})).collect::<Vec<_>>()}),
            ),
        ),
        (
            "a chain of references",
            GrammarSource::json(
                json!({"$ref": "#/$defs/d0", "$defs": (0..4_000).map(|n| (format!("d{n}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}))).chain([("d4000".to_owned(), json!({"type": "null"}))]).collect::<serde_json::Map<_, _>>()}),
            ),
        ),
        (
            "counted repeats within each other",
            regex("(".repeat(9) + "a?" + &"b?){1,3}".repeat(9)),
        ),
        ("false", GrammarSource::json(json!(false))),
        ("a list for a schema", GrammarSource::json(json!([1]))),
        (
            "a text for properties",
            GrammarSource::json(json!({"properties": "all"})),
        ),
        ("a number for type", GrammarSource::json(json!({"type": 5}))),
        (
            "a remote reference",
            GrammarSource::json(json!({"$ref": "http://127.0.0.1/schema"})),
        ),
        (
            "white space that is anything",
            GrammarSource::Json {
                schema: json!({}),
                whitespace_pattern: Some(".*".to_owned()),
            },
        ),
        (
            "white space that may be nothing",
            GrammarSource::Json {
                schema: json!({}),
                whitespace_pattern: Some("[ \\n]*".to_owned()),
            },
        ),
        (
            "bad white space",
            GrammarSource::Json {
                schema: json!({}),
                whitespace_pattern: Some("(".to_owned()),
            },
        ),
    ]
}
