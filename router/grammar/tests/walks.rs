//! Random walks through grammars: what comes out at the end matches the grammar, by other programs' judgement.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

#[path = "../../dialect/tests/tiny_tokenizer/mod.rs"]
mod tiny_tokenizer;
mod validator;

use headrace_grammar::{CompiledGrammar, GrammarCompiler, GrammarSource, Mask};
use headrace_text::Tokenizer;
use serde_json::{Value, json};
use tiny_tokenizer::{END, EOS, vocab_size};

struct Driver {
    tokenizer: Tokenizer,
    compiler: GrammarCompiler,
}

/// A small linear congruential generator: the walks are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % count as u64).unwrap()
    }
}

impl Driver {
    fn new() -> Self {
        Self::with_leniency(false)
    }

    fn with_leniency(lenient: bool) -> Self {
        let json = tiny_tokenizer::json().to_string();
        let tokenizer = Tokenizer::from_bytes(json.as_bytes()).unwrap();
        let compiler =
            GrammarCompiler::new(&tokenizer, &[EOS, END], vocab_size() + 3, lenient).unwrap();
        Self {
            tokenizer,
            compiler,
        }
    }

    fn compile(&self, source: &GrammarSource) -> CompiledGrammar {
        self.compiler
            .compile(source)
            .unwrap_or_else(|error| panic!("{source:?}: {error}"))
    }

    /// A whole text. For `free` tokens anything goes, then closing is preferred: the end, and the marks that close.
    fn walk(&self, grammar: &CompiledGrammar, dice: &mut Dice, free: usize) -> String {
        let mut state = grammar.start();
        let mut bytes = Vec::new();
        for step in 0..3000 {
            let mask = state
                .mask()
                .unwrap_or_else(|end| panic!("after {:?}: {end}", String::from_utf8_lossy(&bytes)));
            let allowed: Vec<u32> = (0..vocab_size() + 3)
                .filter(|id| mask.allows(*id))
                .collect();
            assert!(
                allowed.iter().all(|id| *id < vocab_size()),
                "an id without a token is allowed"
            );
            let ends = allowed.iter().copied().find(|id| [EOS, END].contains(id));
            assert_eq!(ends.is_some(), state.may_end());
            // Within a string nearly everything is allowed.
            let marks: &[u8] = if allowed.len() > 90 { b"\"" } else { b"}]\":," };
            let closing = || {
                let ids = marks
                    .iter()
                    .map(|mark| tiny_tokenizer::BYTES + u32::from(*mark));
                ids.into_iter().find(|id| allowed.contains(id))
            };
            let id = match (ends, step >= free) {
                (Some(end), true) => end,
                (_, true) => closing().unwrap_or_else(|| allowed[dice.below(allowed.len())]),
                (_, false) => allowed[dice.below(allowed.len())],
            };
            state.accept(id).unwrap();
            assert_eq!(usize::try_from(state.accepted()).unwrap(), step + 1);
            if [EOS, END].contains(&id) {
                assert!(state.is_complete());
                assert!(state.accept(id).is_ok() && state.accept(tiny_tokenizer::BYTES).is_err());
                return String::from_utf8(bytes).unwrap();
            }
            assert!(!self.tokenizer.is_special(id));
            bytes.extend_from_slice(self.tokenizer.token_bytes(id));
        }
        panic!("no end: {}", String::from_utf8_lossy(&bytes));
    }
}

/// Schemas of the kinds that clients send.
fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}}, "required": ["name", "age"]}),
        json!({"properties": {"a": {"type": "boolean"}, "b": {"type": "null"}}, "required": ["b"]}),
        json!({"properties": {}}),
        json!({"type": "object"}),
        json!({"type": "object", "properties": {"a": {"type": "number"}}, "additionalProperties": {"type": "integer"}}),
        json!({"type": "array", "items": {"enum": ["red", "green", 3, null, {"a": [1]}]}, "minItems": 1, "maxItems": 4}),
        json!({"type": "array", "prefixItems": [{"type": "string", "maxLength": 3}, {"type": "integer"}], "items": false, "minItems": 2}),
        json!({"anyOf": [{"type": "string", "minLength": 2, "maxLength": 5}, {"type": "integer", "multipleOf": 7}, {"const": "x"}]}),
        json!({"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["value", "next"]}}}),
        json!({"allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"$ref": "#/definitions/b"}], "definitions": {"b": {"properties": {"b": {"type": "integer"}}, "required": ["b"]}}}),
        json!({"oneOf": [{"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]}, {"properties": {"kind": {"const": "b"}}, "required": ["kind"]}]}),
        json!({"type": ["object", "null"], "properties": {"a": {"type": "string", "pattern": "^[a-c]{2,4}$"}}, "required": ["a"]}),
        json!({"type": "object", "properties": {"a": {"type": "number", "exclusiveMinimum": -1, "maximum": 2.5}}, "required": ["a", "zz"]}),
        json!({"type": "object", "patternProperties": {"^x[0-9]$": {"type": "integer"}}, "additionalProperties": false, "minProperties": 1, "maxProperties": 3}),
        json!({}),
        json!(true),
    ]
}

#[test]
fn texts_of_a_schema_are_json_that_is_valid_by_it() {
    let driver = Driver::new();
    for schema in schemas() {
        let grammar = driver.compile(&GrammarSource::json(schema.clone()));
        let mut dice = Dice(7);
        for free in [0, 3, 10, 40, 40, 80] {
            let text = driver.walk(&grammar, &mut dice, free);
            let value: Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{schema}: {text:?}: {error}"));
            validator::validate(&schema, &schema, &value)
                .unwrap_or_else(|error| panic!("{schema}: {text}: {error}"));
        }
    }
}

#[test]
fn objects_with_listed_properties_are_closed() {
    let driver = Driver::new();
    let schema = json!({"properties": {"a": {"properties": {"b": {"type": "integer"}}}}, "x-guidance": {"lenient": true}});
    let grammar = driver.compile(&GrammarSource::json(schema));
    let fits = |text: &str| accepts(&driver, &grammar, text);
    assert!(fits(r#"{"a":{"b":1}}"#) && fits("{}") && fits(r#"{"a":{}}"#));
    assert!(!fits(r#"{"c":1}"#) && !fits(r#"{"a":{"c":1}}"#) && !fits("123"));
    let open = driver.compile(&GrammarSource::json(
        json!({"properties": {"a": {}}, "additionalProperties": true}),
    ));
    assert!(accepts(&driver, &open, r#"{"c":1}"#));
}

/// Whether a text, byte by byte, is a whole text of the grammar.
fn accepts(_driver: &Driver, grammar: &CompiledGrammar, text: &str) -> bool {
    let mut state = grammar.start();
    for id in tiny_tokenizer::bytes_of(text) {
        if !state.mask().is_ok_and(|mask| mask.allows(id)) || state.accept(id).is_err() {
            return false;
        }
    }
    state.mask().is_ok_and(|mask| mask.allows(EOS))
}

#[test]
fn white_space_is_one_space_at_most_unless_a_pattern_says_otherwise() {
    let driver = Driver::new();
    let schema = json!({"properties": {"a": {"type": "integer"}}, "required": ["a"]});
    let usual = driver.compile(&GrammarSource::json(schema.clone()));
    for (text, fits) in [
        (r#"{"a":1}"#, true),
        (r#"{ "a" : 1 }"#, true),
        (r#"{"a":  1}"#, false),
        ("{\n\"a\":1}", false),
        (r#" {"a":1}"#, false),
    ] {
        assert_eq!(accepts(&driver, &usual, text), fits, "{text:?}");
    }
    let with = |pattern: &str| {
        driver.compile(&GrammarSource::Json {
            schema: schema.clone(),
            whitespace_pattern: Some(pattern.to_owned()),
        })
    };
    let lines = with("^[\\n ]{0,3}$");
    assert!(accepts(&driver, &lines, "{\n  \"a\":1\n}") && accepts(&driver, &lines, r#"{"a":1}"#));
    assert!(!accepts(&driver, &lines, "{\n    \"a\":1}"));
    let none = with("");
    assert!(accepts(&driver, &none, r#"{"a":1}"#) && !accepts(&driver, &none, r#"{"a": 1}"#));
}

#[test]
fn texts_of_a_regex_match_it_whole() {
    let driver = Driver::new();
    for regex in [
        "a",
        "(red|green|blue)",
        "[0-9]{3}-[0-9]{4}",
        r"\d+\.\d{2}",
        "^(yes|no)$",
        "^yes$|^no$",
        "(?i)Hello( and)*!",
        "(?x) a b \n c # a comment \n d",
        "x*",
        "",
        "a/b\\/c",
        "\n\t",
        ".{3,6}é?",
        "(?s).{2,4}",
        "[^a-z]{1,5}",
        "(ab|ba){1,3}c?",
        "\\$\\^",
        "Hello user",
        r"[\w\s]{1,8}\\",
        "漢字{2,3}",
    ] {
        let whole = regex::Regex::new(
            &format!("^(?:{regex}\n)$")
                .replace("\n)$", if regex.contains("(?x)") { "\n)$" } else { ")$" }),
        )
        .unwrap();
        let grammar = driver.compile(&GrammarSource::Regex(regex.to_owned()));
        let mut dice = Dice(11);
        for free in [0, 2, 5, 20] {
            let text = driver.walk(&grammar, &mut dice, free);
            assert!(whole.is_match(&text), "{regex:?}: {text:?}");
        }
    }
}

#[test]
fn a_mask_is_what_the_language_says() {
    // Words of several letters, so that one token crosses several states.
    let driver = Driver::new();
    let alphabet = ["H", "e", "l", "o"];
    let mut texts = vec![String::new()];
    let mut last = texts.clone();
    for _ in 0..6 {
        let longer = |text: &String| alphabet.map(|letter| format!("{text}{letter}"));
        last = last.iter().flat_map(longer).collect();
        texts.extend(last.iter().cloned());
    }
    for regex in [
        "(He|Hel|oHe){1,2}",
        "He(l{0,3}o?)",
        "(H|e)(l|o){0,2}H?",
        "[Helo]{1,3}",
        "Hello",
    ] {
        let whole = regex::Regex::new(&format!("^(?:{regex})$")).unwrap();
        let language: Vec<&String> = texts.iter().filter(|text| whole.is_match(text)).collect();
        let grammar = driver.compile(&GrammarSource::Regex(regex.to_owned()));
        let mut dice = Dice(3);
        for _ in 0..5 {
            let mut state = grammar.start();
            let mut text = String::new();
            loop {
                let mask = state.mask().unwrap();
                let mut allowed = Vec::new();
                for id in 0..vocab_size() {
                    let bytes = driver.tokenizer.token_bytes(id);
                    let next = std::str::from_utf8(bytes).map(|piece| format!("{text}{piece}"));
                    let expected = match next {
                        _ if [EOS, END].contains(&id) => language.contains(&&text),
                        _ if driver.tokenizer.is_special(id) => false,
                        Ok(next) => language.iter().any(|whole| whole.starts_with(&next)),
                        Err(_) => false,
                    };
                    assert_eq!(
                        mask.allows(id),
                        expected,
                        "{regex}: {:?} after {text:?}",
                        driver.tokenizer.token_text(id)
                    );
                    let mut copy = grammar.start();
                    for id in tiny_tokenizer::bytes_of(&text) {
                        copy.accept(id).unwrap();
                    }
                    assert_eq!(copy.accept(id).is_ok(), expected);
                    if expected {
                        allowed.push(id);
                    }
                }
                let id = allowed[dice.below(allowed.len())];
                state.accept(id).unwrap();
                if [EOS, END].contains(&id) {
                    break;
                }
                text.push_str(std::str::from_utf8(driver.tokenizer.token_bytes(id)).unwrap());
            }
        }
    }
}

#[test]
fn a_complete_grammar_allows_the_ends_and_nothing_else() {
    let driver = Driver::new();
    let grammar = driver.compile(&GrammarSource::Regex("ab".to_owned()));
    let mut state = grammar.start();
    for id in tiny_tokenizer::bytes_of("ab") {
        assert!(!state.is_complete());
        state.accept(id).unwrap();
    }
    assert!(state.is_complete() && state.may_end());
    assert_eq!(state.mask().unwrap(), Mask::Allow(vec![EOS, END]));
    // Without an id that ends a sequence there is nothing to allow.
    let compiler = GrammarCompiler::new(&driver.tokenizer, &[], vocab_size(), false).unwrap();
    let mut state = compiler
        .compile(&GrammarSource::Regex("a".to_owned()))
        .unwrap()
        .start();
    state.accept(tiny_tokenizer::bytes_of("a")[0]).unwrap();
    assert!(state.is_complete());
    assert_eq!(state.mask().unwrap(), Mask::Allow(vec![]));
}

#[test]
fn an_id_that_is_not_allowed_is_a_dead_end_of_that_sequence_only() {
    let driver = Driver::new();
    let grammar = driver.compile(&GrammarSource::Regex("ab".to_owned()));
    let (mut good, mut bad) = (grammar.start(), grammar.start());
    let ids = tiny_tokenizer::bytes_of("ab");
    assert!(bad.accept(EOS).is_err());
    assert!(bad.accept(ids[1]).is_err());
    assert!(!bad.mask().unwrap_err().to_string().contains('\n'));
    good.accept(ids[0]).unwrap();
    assert!(good.accept(vocab_size() + 100).is_err());
    let mut third = grammar.start();
    third.accept(ids[0]).unwrap();
    third.accept(ids[1]).unwrap();
    assert!(third.is_complete());
}

#[test]
fn keywords_that_cannot_be_enforced_are_refused_by_name_unless_lenient() {
    let lenient = Driver::with_leniency(true);
    let driver = Driver::new();
    for (keyword, schema) in [
        ("not", json!({"not": {"type": "string"}})),
        (
            "if",
            json!({"if": {"type": "string"}, "then": {"minLength": 1}}),
        ),
        ("contains", json!({"type": "array", "contains": {}})),
        ("uniqueItems", json!({"type": "array", "uniqueItems": true})),
        (
            "unevaluatedProperties",
            json!({"type": "object", "unevaluatedProperties": false}),
        ),
        (
            "propertyNames",
            json!({"type": "object", "propertyNames": {"minLength": 1}}),
        ),
        (
            "dependentRequired",
            json!({"type": "object", "dependentRequired": {"a": ["b"]}}),
        ),
    ] {
        let schema = json!({"properties": {"deep": {"anyOf": [schema, {"type": "null"}]}}});
        let source = GrammarSource::json(schema);
        let error = driver.compiler.compile(&source).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("the keyword `{keyword}` at #/properties/deep/anyOf/0 is not supported")
        );
        lenient.compile(&source);
    }
    // With these values they say nothing.
    driver.compile(&GrammarSource::json(
        json!({"type": "array", "uniqueItems": false, "unevaluatedItems": true}),
    ));
    // A property may be called like a keyword, and a value may hold one.
    driver.compile(&GrammarSource::json(
        json!({"properties": {"not": {"const": {"if": 1}}, "contains": {"default": {"not": 1}}}}),
    ));
}

#[test]
fn equal_grammars_are_compiled_once_and_unequal_ones_apart() {
    let driver = Driver::new();
    for n in 0..400 {
        driver.compile(&GrammarSource::Regex(format!("a{{{n}}}b")));
    }
    let (grammars, bytes) = driver.compiler.cached();
    assert!(
        grammars <= 128 && bytes <= 64 << 20,
        "{grammars} grammars, {bytes} bytes"
    );
    // The order of properties is the order of the text.
    let one = driver.compile(&GrammarSource::json(
        json!({"properties": {"a": {}, "b": {}}, "required": ["a", "b"]}),
    ));
    let other = driver.compile(&GrammarSource::json(
        json!({"properties": {"b": {}, "a": {}}, "required": ["a", "b"]}),
    ));
    assert!(
        accepts(&driver, &one, r#"{"a":1,"b":2}"#) && !accepts(&driver, &one, r#"{"b":1,"a":2}"#)
    );
    assert!(
        accepts(&driver, &other, r#"{"b":1,"a":2}"#)
            && !accepts(&driver, &other, r#"{"a":1,"b":2}"#)
    );
}
