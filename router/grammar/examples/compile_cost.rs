//! What compiling costs, and what is said of odd schemas: `cargo run -p headrace-grammar --example compile_cost [WORD]`.
//!
//! For schemas and regexes at and beyond their bounds it prints the time of the compile and how it ended. With a word,
//! only those whose name holds it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "an example prints its figures"
)]

#[path = "../../dialect/tests/tiny_tokenizer/mod.rs"]
mod tiny_tokenizer;

use headrace_grammar::{GrammarCompiler, GrammarSource};
use headrace_text::Tokenizer;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Then it is left to itself, until the program ends.
const PATIENCE: Duration = Duration::from_secs(20);

fn main() {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let tokenizer = Tokenizer::from_bytes(tiny_tokenizer::json().to_string().as_bytes()).unwrap();
    let vocab = tiny_tokenizer::vocab_size();
    let compiler = GrammarCompiler::new(&tokenizer, &[tiny_tokenizer::EOS], vocab, false).unwrap();
    let compiler = Arc::new(compiler);
    let sources = odd().into_iter().chain(regexes()).chain(many());
    for (name, source) in sources.filter(|(name, _)| name.contains(&wanted)) {
        let began = Instant::now();
        let (sender, receiver) = channel();
        let one = Arc::clone(&compiler);
        std::thread::spawn(move || sender.send(one.compile(&source).map(drop)));
        let end = match receiver.recv_timeout(PATIENCE) {
            Ok(Ok(())) => "compiles".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "STILL COMPILES".to_owned(),
        };
        println!("{:>10.1?}  {name}: {end:.300}", began.elapsed());
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("name {n}")).collect()
}

fn properties(count: usize) -> Value {
    let named = (0..count).map(|n| (format!("p{n}"), json!({"type": "string"})));
    named.collect::<Map<_, _>>().into()
}

/// Many of one thing.
#[expect(clippy::too_many_lines, reason = "a list")]
fn many() -> Vec<(String, GrammarSource)> {
    let mut found = Vec::new();
    for count in [100, 300, 700, 1_000, 2_000, 5_000, 10_000, 19_000] {
        let words = names(count);
        let objects = |with: &dyn Fn(usize) -> Value| (0..count).map(with).collect::<Vec<_>>();
        let schemas = [
            ("required", json!({"type": "object", "required": words})),
            (
                "required beside a property",
                json!({"properties": {"a": {}}, "required": words}),
            ),
            (
                "required beside all properties",
                json!({"properties": properties(count), "required": words}),
            ),
            (
                "required of integers",
                json!({"type": "object", "required": words, "additionalProperties": {"type": "integer"}}),
            ),
            (
                "required in allOf",
                json!({"allOf": [{"type": "object", "required": words}, {"type": "object", "maxProperties": 30_000}]}),
            ),
            (
                "required, two halves",
                json!({"allOf": [{"type": "object", "required": words[..count / 2]}, {"type": "object", "required": words[count / 2..]}]}),
            ),
            (
                "required in a ref",
                json!({"$ref": "#/x", "x": {"type": "object", "required": words}}),
            ),
            ("enum", json!({"enum": words})),
            (
                "enum beside a type",
                json!({"type": "string", "enum": words}),
            ),
            (
                "enum of integers",
                json!({"enum": (0..count).collect::<Vec<_>>()}),
            ),
            (
                "enum of objects",
                json!({"enum": objects(&|n| json!({"a": n}))}),
            ),
            ("enum of lists", json!({"enum": objects(&|n| json!([n]))})),
            (
                "anyOf consts",
                json!({"anyOf": objects(&|n| json!({"const": n}))}),
            ),
            (
                "anyOf patterns",
                json!({"anyOf": objects(&|n| json!({"type": "string", "pattern": format!("^a{n}")}))}),
            ),
            (
                "anyOf ranges",
                json!({"anyOf": objects(&|n| json!({"type": "integer", "minimum": n, "maximum": n * 3}))}),
            ),
            (
                "anyOf objects",
                json!({"anyOf": objects(&|n| json!({"properties": {(format!("a{n}")): {}}}))}),
            ),
            (
                "anyOf lists",
                json!({"anyOf": objects(&|n| json!({"type": "array", "items": {"const": n}}))}),
            ),
            (
                "anyOf refs",
                json!({"anyOf": objects(&|n| json!({"$ref": format!("#/$defs/d{n}")})), "$defs": objects(&|_| json!({})).iter().enumerate().map(|(n, _)| (format!("d{n}"), json!({"type": "integer"}))).collect::<Map<_, _>>()}),
            ),
            (
                "oneOf consts",
                json!({"oneOf": objects(&|n| json!({"const": n}))}),
            ),
            (
                "allOf minimums",
                json!({"allOf": objects(&|n| json!({"minimum": n}))}),
            ),
            (
                "allOf patterns",
                json!({"allOf": objects(&|n| json!({"type": "string", "pattern": format!("a{n}")}))}),
            ),
            (
                "allOf objects",
                json!({"allOf": objects(&|n| json!({"type": "object", "properties": {(format!("a{n}")): {}}}))}),
            ),
            (
                "prefixItems",
                json!({"type": "array", "prefixItems": objects(&|n| json!({"const": n}))}),
            ),
            ("properties", json!({"properties": properties(count)})),
            (
                "properties, all",
                json!({"properties": properties(count), "required": (0..count).map(|n| format!("p{n}")).collect::<Vec<_>>()}),
            ),
            (
                "properties, false",
                json!({"properties": objects(&|_| json!(false)).iter().enumerate().map(|(n, v)| (format!("p{n}"), v.clone())).collect::<Map<_, _>>(), "additionalProperties": true}),
            ),
            (
                "patternProperties",
                json!({"patternProperties": (0..count).map(|n| (format!("^a{n}$"), json!({}))).collect::<Map<_, _>>()}),
            ),
            (
                "$defs",
                json!({"$defs": properties(count), "type": "integer"}),
            ),
            (
                "definitions that are used",
                json!({"prefixItems": objects(&|n| json!({"$ref": format!("#/$defs/p{n}")})), "$defs": properties(count)}),
            ),
            ("minItems", json!({"type": "array", "minItems": count})),
            ("maxItems", json!({"type": "array", "maxItems": count})),
            (
                "items of maxItems",
                json!({"type": "array", "maxItems": count, "items": {"type": "array", "maxItems": count}}),
            ),
            (
                "minProperties",
                json!({"type": "object", "minProperties": count}),
            ),
            (
                "maxProperties",
                json!({"type": "object", "maxProperties": count}),
            ),
            (
                "one of the properties",
                json!({"properties": properties(count), "minProperties": 1, "additionalProperties": false}),
            ),
            ("minLength", json!({"type": "string", "minLength": count})),
            (
                "pattern and maxLength",
                json!({"type": "string", "pattern": "^[a-z]*x[a-z]*$", "maxLength": count}),
            ),
            ("types", json!({"type": vec!["string"; count]})),
            (
                "const of a long text",
                json!({"const": "x".repeat(count * 10)}),
            ),
            (
                "long name",
                json!({"properties": {("x".repeat(count * 10)): {}}}),
            ),
        ];
        for (name, schema) in schemas {
            found.push((format!("{count} {name}"), GrammarSource::json(schema)));
        }
    }
    found
}

/// Values at the edges of what a keyword may have.
fn odd() -> Vec<(String, GrammarSource)> {
    let texts = ODD.lines().map(str::trim).filter(|line| !line.is_empty());
    texts
        .map(|text| {
            (
                text.to_owned(),
                GrammarSource::json(serde_json::from_str(text).unwrap()),
            )
        })
        .collect()
}

const ODD: &str = r##"
    {"type": "integer", "minimum": 9223372036854775807}
    {"type": "integer", "minimum": 9223372036854775808}
    {"type": "integer", "maximum": 18446744073709551615}
    {"type": "integer", "maximum": 18446744073709551616}
    {"type": "integer", "minimum": 1e19}
    {"type": "integer", "minimum": -1e19}
    {"type": "integer", "maximum": 1e19}
    {"type": "integer", "maximum": -1e19}
    {"type": "integer", "minimum": -1e30, "maximum": 1e30}
    {"type": "integer", "exclusiveMinimum": 1e300}
    {"type": "integer", "exclusiveMinimum": 9223372036854775807}
    {"type": "integer", "exclusiveMaximum": -9223372036854775808}
    {"type": "integer", "maximum": 9007199254740993}
    {"type": "integer", "minimum": 0.5}
    {"type": "integer", "minimum": 0.5, "maximum": 0.6}
    {"type": "integer", "minimum": 3, "exclusiveMaximum": 3}
    {"type": "number", "minimum": 1e19}
    {"type": "number", "maximum": 1e300}
    {"type": "number", "minimum": -1e308, "maximum": 1e308}
    {"type": "number", "minimum": 1e-300}
    {"type": "number", "minimum": 1e-7, "maximum": 2e-7}
    {"type": "number", "minimum": 1e-320}
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1e-12}
    {"type": "number", "minimum": 3, "maximum": 3}
    {"type": "number", "exclusiveMinimum": 3, "exclusiveMaximum": 3}
    {"type": "number", "minimum": 3, "exclusiveMinimum": true}
    {"type": "number", "exclusiveMinimum": true}
    {"type": "number", "minimum": 123456789012.123, "maximum": 123456789012.124}
    {"type": "number", "minimum": 0.1, "maximum": 0.30000000000000004}
    {"type": "number", "minimum": -0.0, "maximum": 0.0}
    {"type": "number", "minimum": 5, "maximum": 4}
    {"minimum": 5, "maximum": 4}
    {"minimum": 1e40}
    {"type": ["integer", "number"], "minimum": 1e40}
    {"type": "integer", "multipleOf": 0}
    {"type": "integer", "multipleOf": -2}
    {"type": "integer", "multipleOf": 0.1}
    {"type": "integer", "multipleOf": 1.5}
    {"type": "integer", "multipleOf": 7, "minimum": 1e30}
    {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1}
    {"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 6}
    {"type": "integer", "multipleOf": 1e300}
    {"type": "number", "multipleOf": 1e-300}
    {"type": "number", "multipleOf": 9999}
    {"type": "number", "multipleOf": 0.000001}
    {"allOf": [{"multipleOf": 3}, {"multipleOf": 5}, {"minimum": 1, "maximum": 14, "type": "integer"}]}
    {"type": "string", "minLength": 5, "maxLength": 4}
    {"type": "string", "minLength": 4294967295}
    {"type": "string", "maxLength": 4294967295}
    {"type": "string", "minLength": 4294967296}
    {"type": "string", "maxLength": 1e3}
    {"type": "string", "minLength": -1}
    {"type": "string", "minLength": 1.5}
    {"type": "string", "pattern": "^[0-9]{3}$", "maxLength": 2}
    {"type": "string", "pattern": "^a*$", "minLength": 70000}
    {"type": "string", "pattern": "^[a-z]{0,5000}$", "minLength": 3000}
    {"type": "string", "pattern": "(?=a)"}
    {"type": "string", "pattern": "(?i)abc"}
    {"type": "string", "pattern": "\\d+\\b"}
    {"type": "string", "pattern": "^(a|b$)"}
    {"type": "string", "pattern": "a^b"}
    {"type": "string", "pattern": "\\p{L}+"}
    {"type": "string", "pattern": "\\p{Nope}"}
    {"type": "string", "pattern": "\\u0041"}
    {"type": "string", "pattern": "[\\d-x]"}
    {"type": "string", "pattern": "\\cA"}
    {"type": "string", "pattern": "(?<n>a)\\k<n>"}
    {"type": "string", "pattern": "(a)\\1"}
    {"type": "string", "pattern": "[^]"}
    {"type": "string", "pattern": "[]"}
    {"type": "string", "pattern": "\\/"}
    {"type": "string", "pattern": "\\-"}
    {"type": "string", "pattern": "a{3,1}"}
    {"type": "string", "pattern": "a{,3}"}
    {"type": "string", "pattern": ""}
    {"type": "string", "pattern": "[^\\x00-\\x{10FFFF}]"}
    {"type": "string", "pattern": "\\x00"}
    {"type": "string", "pattern": "\\xff"}
    {"type": "string", "pattern": "(?-u)\\xff"}
    {"type": "string", "pattern": "(?-u:.)"}
    {"type": "string", "pattern": "(?m)^a$"}
    {"type": "string", "pattern": "(?s).*"}
    {"type": "string", "pattern": "(?x) a b # c"}
    {"type": "string", "pattern": "a**"}
    {"type": "string", "pattern": "a*?"}
    {"type": "string", "pattern": "\"\\\\"}
    {"type": "string", "pattern": "é+"}
    {"type": "string", "pattern": "\n"}
    {"type": "string", "pattern": "&|~|(a&b)"}
    {"type": "string", "format": "date-time"}
    {"type": "string", "format": "date-time", "maxLength": 3}
    {"type": "string", "format": "date", "pattern": "^x"}
    {"type": "string", "format": "email", "maxLength": 20}
    {"type": "string", "format": "uri", "minLength": 100}
    {"type": "string", "format": "ipv4"}
    {"type": "string", "format": "ipv6"}
    {"type": "string", "format": "uuid"}
    {"type": "string", "format": "hostname"}
    {"type": "string", "format": "regex"}
    {"type": "string", "format": "nope"}
    {"type": "string", "format": ""}
    {"format": "date"}
    {"type": "integer", "format": "int64"}
    {"enum": []}
    {"enum": [[]]}
    {"enum": [{}]}
    {"enum": [null, true, 1.5, -0.0, "x", [1, [2]], {"a": {"b": 1}}]}
    {"enum": [1e308, 5e-324, 18446744073709551615]}
    {"enum": ["a", "a", "a"]}
    {"enum": [1], "type": "string"}
    {"enum": [1, "a"], "type": "string"}
    {"enum": ["a"], "pattern": "^b"}
    {"enum": [5], "minimum": 6}
    {"enum": ["\u0000", "\ud83d\ude00", "\u2028"]}
    {"const": null}
    {"const": {}}
    {"const": [[[[]]]]}
    {"const": 1, "enum": [2]}
    {"const": 1e30}
    {"const": 12345678901234567890123}
    {"const": ""}
    {"type": []}
    {"type": ["null", "null"]}
    {"type": "null", "enum": [1]}
    {"type": "boolean", "const": 0}
    {"allOf": []}
    {"anyOf": []}
    {"oneOf": []}
    {"allOf": [false]}
    {"anyOf": [false, false]}
    {"anyOf": [false, {"type": "integer"}]}
    {"oneOf": [false, {"type": "integer"}]}
    {"oneOf": [true, true]}
    {"oneOf": [{"type": "integer"}, {"type": "number"}]}
    {"allOf": [{"type": "integer"}, {"type": "string"}]}
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"type": "object", "properties": {"a": {"type": "string"}}}]}
    {"allOf": [{"type": "array", "minItems": 3}, {"type": "array", "maxItems": 2}]}
    {"allOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "b$"}]}
    {"allOf": [{"type": "string", "pattern": "^a$"}, {"type": "string", "pattern": "^b$"}]}
    {"allOf": [{"type": "integer", "minimum": 1e25}, {"maximum": 3}]}
    {"type": "array", "minItems": 3, "maxItems": 2}
    {"type": "array", "minItems": 4294967295}
    {"type": "array", "maxItems": 4294967295}
    {"type": "array", "maxItems": 0}
    {"type": "array", "items": false}
    {"type": "array", "items": false, "minItems": 1}
    {"type": "array", "prefixItems": [{"type": "integer"}], "items": false, "minItems": 2}
    {"type": "array", "items": [{"type": "integer"}], "additionalItems": false}
    {"type": "array", "items": [{"type": "integer"}], "additionalItems": 7}
    {"type": "array", "additionalItems": {"not": {}}}
    {"type": "array", "items": []}
    {"type": "object", "minProperties": 3, "maxProperties": 2}
    {"type": "object", "minProperties": 4294967295}
    {"type": "object", "maxProperties": 4294967295}
    {"type": "object", "maxProperties": 0}
    {"type": "object", "maxProperties": 0, "required": ["a"]}
    {"properties": {"a": {}, "b": {}}, "minProperties": 2}
    {"properties": {"a": {}, "b": {}}, "maxProperties": 1}
    {"properties": {"a": {}, "b": {}}, "required": ["a"], "minProperties": 2}
    {"type": "object", "required": ["a", "a"]}
    {"type": "object", "required": []}
    {"properties": {"a": false}, "required": ["a"]}
    {"properties": {"": {}}}
    {"properties": {"a\"b\\c\n": {}}}
    {"properties": {"a": {"properties": {"b": {"type": "integer", "minimum": 1e25}}}}}
    {"properties": {"a": {"properties": {"b": {"type": "integer", "minimum": 1e25}}, "required": ["b"]}}, "required": ["a"]}
    {"type": "array", "items": {"type": "integer", "maximum": -1e25}}
    {"type": "array", "prefixItems": [{}, {"type": "integer", "maximum": 1e25}]}
    {"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 1e25}]}
    {"additionalProperties": {"type": "integer", "maximum": 1e25}}
    {"patternProperties": {"^a": {"type": "integer", "maximum": 1e25}}}
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer", "maximum": 1e25}}}
    {"patternProperties": {"^a": {}, "a$": {}}}
    {"patternProperties": {"^a": {}, "^b": {}}}
    {"patternProperties": {"(": {}}}
    {"patternProperties": {"(?=a)": {}}}
    {"patternProperties": {"\\b": {}}}
    {"patternProperties": {"": {}}}
    {"patternProperties": {"^a$": {"type": "integer"}}, "properties": {"a": {"type": "string"}}, "required": ["a"]}
    {"patternProperties": {"^a$": {}}, "required": ["b"], "additionalProperties": false}
    {"additionalProperties": false}
    {"additionalProperties": false, "required": ["a"]}
    {"$ref": "#"}
    {"$ref": "#/"}
    {"$ref": ""}
    {"$ref": "#/$defs/a"}
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    {"anyOf": [{"$ref": "#"}]}
    {"anyOf": [{"$ref": "#"}, {"type": "integer"}]}
    {"allOf": [{"$ref": "#"}, {"type": "integer"}]}
    {"allOf": [{"$ref": "#"}]}
    {"oneOf": [{"$ref": "#"}, {"type": "integer"}]}
    {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    {"type": "object", "properties": {"a": {"$ref": "#"}}}
    {"type": "array", "items": {"$ref": "#"}, "minItems": 1}
    {"type": "array", "items": {"$ref": "#"}}
    {"$ref": "#", "type": "integer"}
    {"properties": {"a": {"$ref": "#/properties/a"}}}
    {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}, "required": ["a"]}
    {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}, {"type": "null"}]}}}
    {"properties": {"a": {"allOf": [{"$ref": "#/properties/a"}, {"minimum": 1}]}}}
    {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}
    {"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "integer"}}}
    {"$ref": "#/$defs/0", "$defs": {"0": true}}
    {"$ref": "#/enum/0", "enum": [{"type": "integer"}]}
    {"$ref": "#/type", "type": "integer"}
    {"$ref": "http://x/y"}
    {"$ref": "other.json"}
    {"$ref": "#foo", "$defs": {"x": {"$anchor": "foo"}}}
    {"$id": "http://x/y", "$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}}
    {"$id": "not a uri %%%", "type": "integer"}
    {"$id": 7, "type": "integer"}
    {"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer", "minimum": 1, "exclusiveMinimum": true}
    {"$schema": "http://nope/schema", "type": "integer"}
    {"$schema": 7, "type": "integer"}
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://a.b/c", "properties": {"a": {"$id": "d", "type": "integer"}}}
    {"properties": {"a": {"$id": "d", "$ref": "#/$defs/x", "$defs": {"x": {"type": "integer"}}}}}
    {"$defs": {"a": 7}, "type": "integer"}
    {"$anchor": "a b", "type": "integer"}
    {"$anchor": 5, "type": "integer"}
    {"id": "http://x/y#", "type": "integer"}
    {"definitions": {"a": {"$id": "#a"}}, "type": "integer"}
    {"x-guidance": {"nope": 1}, "type": "integer"}
    {"properties": {"a": {"x-guidance": {}}}}
    {"$vocabulary": {}, "type": "integer"}
    {"$dynamicAnchor": "x", "type": "integer"}
    {"title": 5, "description": [], "default": {}, "examples": 1, "type": "integer"}
    {"contentSchema": {"type": "integer"}, "type": "string"}
    {"discriminator": {}, "nullable": true, "type": "string"}
    {"type": "string", "const": "a", "format": "nope"}
    {"properties": {"a": {"type": "string", "pattern": "^\\w{1,200}(\\.\\w{1,200}){0,20}$"}}}
    true
    {}
"##;

/// Regexes with counted repeats.
fn regexes() -> Vec<(String, GrammarSource)> {
    let mut found: Vec<String> = [
        "a{0,1000}",
        "a{0,10000}",
        "(a{0,100}){0,100}",
        "((a{0,30}){0,30}){0,30}",
        "(a{0,10}b{0,10}){0,100}",
        "([a-z]{1,30} ){1,1000}",
        "(\\w{1,20} ){1,200}",
        "(\\w{1,200}\\s{1,200}){1,20}",
        "([ab]{0,50}[bc]{0,50}){0,40}",
        "(a?){1000}b",
        "(a?b?){3000}",
        "(.{0,50}x){20}",
        ".{0,1000}x.{0,1000}",
        "(.*x){20}",
        ".*x.{16}",
        ".*x.{40}",
        "(a|ab|abc){1,2000}",
        "((a|b){1,10}c?){1,900}",
        "(\\d{1,3}\\.){3}\\d{1,3}",
        "(?i)[k-s]{1,2000}",
        "\\p{L}{1,2000}",
        "(x+x+)+y",
        "([^a]|a[^b]){0,5000}",
        "(a{1,2}){1,2}{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}{1,2}",
        "(?-u)\\xff",
        "[^\\x00-\\x{10FFFF}]",
        "",
        "a^b",
        "x{0}",
        "(?-u:\\xff)a",
        "\\x{D7FF}",
        "(?m)^a$",
    ]
    .map(str::to_owned)
    .to_vec();
    found.push("(".repeat(9) + "a" + &"){1,3}".repeat(9));
    found.push("(".repeat(90) + "a" + &"){0,1}".repeat(90));
    found.push("(".repeat(40) + "a?" + &"b?)*".repeat(40));
    found.push(
        (0..2000)
            .map(|n| format!("a{n}"))
            .collect::<Vec<_>>()
            .join("|"),
    );
    found.push("(a|b|c|d)?".repeat(1600));
    found.push("[a-z]*1".repeat(2000));
    found.push("a{1,9}b{1,9}".repeat(1300));
    found.push("\\w{1,60}".repeat(1600));
    found
        .into_iter()
        .map(|text| (format!("{text:.60}"), GrammarSource::Regex(text)))
        .collect()
}
