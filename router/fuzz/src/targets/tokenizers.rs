//! Texts as they come from the wire, to ids and back.

use super::made_up_text::{self, text};
use super::models::{Model, models};
use crate::Target;
use crate::random::{Random, mix};
use headrace_dialect::json::Json;
use headrace_text::{Detokenizer, SpecialText};
use std::sync::Arc;

pub(super) const TARGET: Target = Target {
    name: "tokenizers",
    seeds,
    fresh,
    run,
    words: &made_up_text::WORDS,
    short: 4_000,
};

fn seeds() -> Vec<Vec<u8>> {
    // Built here, so that no input counts as slow for it.
    models();
    made_up_text::WORDS
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect()
}

fn fresh(random: &mut Random) -> Vec<u8> {
    text(random).into_bytes()
}

/// As a JSON string where the bytes make one up, for its escapes; else as bytes.
fn read(input: &[u8]) -> String {
    let mut literal = b"\"".to_vec();
    literal.extend(input);
    literal.push(b'"');
    match Json::parse(&literal) {
        Ok(Json::String(text)) => text,
        _ => String::from_utf8_lossy(input).into_owned(),
    }
}

fn run(input: &[u8]) -> u64 {
    let text = read(input);
    let mut met = 0;
    for model in models() {
        met = mix(met, check(model, &text));
    }
    met
}

fn check(model: &Model, text: &str) -> u64 {
    let tokenizer = &model.tokenizer;
    let encode = |special| {
        tokenizer
            .encode(text, false, special)
            .expect("any text has ids")
    };
    let parsed = encode(SpecialText::Parse);
    let plain = encode(SpecialText::Plain);
    for encoding in [&parsed, &plain] {
        assert_eq!(encoding.ids.len(), encoding.offsets.len());
        assert!(encoding.ids.iter().all(|&id| id < tokenizer.vocab_size()));
        let mut last = 0;
        for &(start, end) in &encoding.offsets {
            assert!(start <= end && end <= text.len(), "{start}..{end}");
            assert!(last <= start, "offsets go back");
            last = start;
        }
        let fewest = tokenizer.fewest_tokens(text);
        assert!(
            fewest <= encoding.ids.len(),
            "{} ids, {fewest} were the fewest",
            encoding.ids.len()
        );
    }
    let control = plain.ids.iter().filter(|&&id| tokenizer.is_special(id));
    assert_eq!(control.count(), 0, "plain text has a control id");
    let decoded = Detokenizer::decode(Arc::clone(tokenizer), &[], &plain.ids);
    if model.keeps(text) {
        assert_eq!(decoded, text);
    }
    let with_ends = tokenizer
        .encode(text, true, SpecialText::Parse)
        .expect("any text has ids");
    assert!(with_ends.ids.len() >= parsed.ids.len());
    mix(
        parsed.ids.len().min(8) as u64,
        (parsed.ids != plain.ids).into(),
    ) ^ u64::from(decoded == text)
}
