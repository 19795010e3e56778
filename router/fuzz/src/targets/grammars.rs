//! Grammars as clients send them: a refusal of one line, or masks along which a walk ends in a text that fits.

use super::json_text::value;
use super::models::{models, tiny_tokenizer};
use crate::Target;
use crate::input::Choices;
use crate::random::{Random, kind_of, mix};
use headrace_grammar::{CompiledGrammar, GrammarCompiler, GrammarSource};
use std::sync::OnceLock;
use tiny_tokenizer::{BYTES, END, EOS};

pub(super) const TARGET: Target = Target {
    name: "grammars",
    seeds,
    fresh,
    run,
    words: &WORDS,
    short: 1_200,
};

const WORDS: [&str; 40] = [
    "\"type\":\"object\"",
    "\"type\":\"string\"",
    "\"type\":[\"integer\",\"null\"]",
    "\"properties\":{}",
    "\"required\":[\"a\"]",
    "\"items\":{}",
    "\"prefixItems\":[{}]",
    "\"minItems\":3",
    "\"maxItems\":4294967296",
    "\"enum\":[1,\"a\"]",
    "\"const\":null",
    "\"anyOf\":[{}]",
    "\"allOf\":[{},{}]",
    "\"oneOf\":[{}]",
    "\"$ref\":\"#\"",
    "\"$ref\":\"#/$defs/a\"",
    "\"$defs\":{\"a\":{}}",
    "\"pattern\":\"^a*$\"",
    "\"format\":\"date\"",
    "\"minLength\":-1",
    "\"maximum\":1e308",
    "\"multipleOf\":0.1",
    "\"additionalProperties\":false",
    "\"patternProperties\":{\"a\":{}}",
    "\"not\":{}",
    "{0,100000}",
    "(a|b)*",
    "(?=a)",
    "(?i)",
    "[^\\x00-\\x7f]",
    "\\p{L}",
    "\\b",
    "(((",
    ")))",
    "^",
    "$",
    ".*",
    "\\1",
    "[a-",
    "\\u{10ffff}",
];

/// The first byte says how to read the rest: a regex, or a schema.
const REGEX: u8 = 0;
const SCHEMA: u8 = 1;

fn seeds() -> Vec<Vec<u8>> {
    compiler();
    let regexes = ["a+", "[a-c]{2,4}", "(\\d{3}-)?\\w+", "日|é", "true|false"];
    let schemas = [
        r#"{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}"#,
        r#"{"type":"array","items":{"type":"boolean"},"maxItems":3}"#,
        r##"{"$ref":"#/$defs/n","$defs":{"n":{"anyOf":[{"type":"null"},{"properties":{"n":{"$ref":"#/$defs/n"}}}]}}}"##,
        r#"{"enum":["a",1,null]}"#,
    ];
    let tagged = |tag: u8, text: &str| [&[tag], text.as_bytes()].concat();
    let regexes = regexes.iter().map(|text| tagged(REGEX, text));
    regexes
        .chain(schemas.iter().map(|text| tagged(SCHEMA, text)))
        .collect()
}

fn fresh(random: &mut Random) -> Vec<u8> {
    if random.percent(50) {
        let words: Vec<&str> = (0..=random.below(8))
            .map(|_| WORDS[25 + random.below(WORDS.len() - 25)])
            .collect();
        return [&[REGEX], words.concat().as_bytes()].concat();
    }
    let schema = schema(random, 3);
    [&[SCHEMA], schema.as_bytes()].concat()
}

fn schema(random: &mut Random, depth: usize) -> String {
    if depth == 0 || random.percent(10) {
        return value(random, 1);
    }
    let members: Vec<String> = (0..random.below(4))
        .map(|_| {
            let keyword = *random.pick(&WORDS[..25]);
            let (key, _) = keyword.split_once(':').unwrap_or((keyword, ""));
            match random.below(3) {
                0 => format!("{key}:{}", schema(random, depth - 1)),
                1 => format!("{key}:{{\"a\":{}}}", schema(random, depth - 1)),
                _ => keyword.to_owned(),
            }
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

fn compiler() -> &'static GrammarCompiler {
    static COMPILER: OnceLock<GrammarCompiler> = OnceLock::new();
    COMPILER.get_or_init(|| {
        let tokenizer = &models()[0].tokenizer;
        GrammarCompiler::new(tokenizer, &[EOS, END], tokenizer.vocab_size(), false).unwrap()
    })
}

fn run(input: &[u8]) -> u64 {
    let Some((tag, rest)) = input.split_first() else {
        return 0;
    };
    let text = String::from_utf8_lossy(rest).into_owned();
    let source = if tag % 2 == REGEX {
        GrammarSource::Regex(text)
    } else {
        match serde_json::from_str(&text) {
            Ok(schema) => GrammarSource::json(schema),
            Err(_) => return 1,
        }
    };
    match compiler().compile(&source) {
        Err(error) => {
            let text = error.to_string();
            assert!(!text.contains('\n'), "two lines: {text:?}");
            assert!(text.len() < 2000, "{} bytes", text.len());
            kind_of(&text)
        }
        Ok(grammar) => mix(7, walk(&grammar, &source, rest)),
    }
}

/// Forty ids along the masks; where the text may end, it is what was asked for.
fn walk(grammar: &CompiledGrammar, source: &GrammarSource, input: &[u8]) -> u64 {
    let tokenizer = &models()[0].tokenizer;
    let mut choices = Choices::of(input);
    let mut state = grammar.start();
    let mut twin = grammar.start();
    let mut bytes = Vec::new();
    for position in 0..40 {
        assert_eq!(state.accepted(), position);
        let Ok(mask) = state.mask() else {
            return 2;
        };
        assert_eq!(twin.mask().as_ref(), Ok(&mask), "two states differ");
        let allowed: Vec<u32> = (0..tokenizer.vocab_size())
            .filter(|id| mask.allows(*id))
            .collect();
        assert!(!allowed.is_empty(), "a mask that allows nothing");
        let may_end = allowed.iter().any(|id| [EOS, END].contains(id));
        assert_eq!(may_end, state.may_end());
        if may_end && matches!(source, GrammarSource::Json { .. }) {
            let text = std::str::from_utf8(&bytes).expect("complete JSON is UTF-8");
            // Not as a value: a number may be beyond any float.
            serde_json::from_str::<serde::de::IgnoredAny>(text).expect("complete JSON parses");
        }
        let id = allowed[(choices.word() as usize) % allowed.len()];
        if [EOS, END].contains(&id) {
            state.accept(id).expect("the end is allowed");
            return 3;
        }
        // A byte that the mask forbids is refused as well.
        let other = BYTES + u32::from(choices.byte());
        if !mask.allows(other) {
            let mut third = grammar.start();
            if position == 0 {
                assert!(
                    third.accept(other).is_err(),
                    "{other} is forbidden and taken"
                );
            }
        }
        state.accept(id).expect("an allowed id is taken");
        twin.accept(id).expect("an allowed id is taken");
        bytes.extend_from_slice(tokenizer.token_bytes(id));
    }
    4
}
