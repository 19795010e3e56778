//! Prompts with a gap, by the families of control tokens.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

#[path = "../../dialect/tests/tiny_tokenizer/mod.rs"]
mod tiny_tokenizer;

use headrace_text::{Infill, SpecialText, Tokenizer};
use proptest::prelude::*;
use serde_json::json;
use tiny_tokenizer::{BOS, bytes_of, vocab_size};

/// The tiny tokenizer with more control tokens, from `vocab_size()` on.
fn with(tokens: &[&str]) -> Tokenizer {
    let mut file = tiny_tokenizer::json();
    for (id, token) in (vocab_size()..).zip(tokens) {
        file["added_tokens"].as_array_mut().unwrap().push(json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true
        }));
    }
    Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap()
}

fn first() -> u32 {
    vocab_size()
}

#[test]
fn the_order_is_the_familys_own() {
    let psm = [first(), first() + 1, first() + 2];
    for tokens in [
        ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
        ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
        ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
        ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
        ["▁<PRE>", "▁<SUF>", "▁<MID>"],
    ] {
        let tokenizer = with(&tokens);
        let infill = Infill::find(&tokenizer, u32::MAX).unwrap();
        let ids = infill.encode(&tokenizer, ("ab", "c"), true).unwrap();
        let expected = [
            &[BOS, psm[0]],
            &*bytes_of("ab"),
            &[psm[1]],
            &*bytes_of("c"),
            &[psm[2]],
        ];
        assert_eq!(ids, expected.concat(), "{tokens:?}");
        assert_eq!(infill.end_ids(), psm);
    }
    let tokenizer = with(&["[SUFFIX]", "[PREFIX]"]);
    let infill = Infill::find(&tokenizer, u32::MAX).unwrap();
    let ids = infill.encode(&tokenizer, ("ab", "c"), true).unwrap();
    let expected = [
        &[BOS, first()],
        &*bytes_of("c"),
        &[first() + 1],
        &*bytes_of("ab"),
    ];
    assert_eq!(ids, expected.concat());
    let bare = infill.encode(&tokenizer, ("ab", "c"), false).unwrap();
    assert_eq!(bare, expected.concat()[1..]);
}

#[test]
fn a_vocabulary_without_all_of_a_familys_tokens_fills_no_gaps() {
    assert_eq!(Infill::find(&with(&[]), u32::MAX), None);
    assert_eq!(
        Infill::find(&with(&["<fim_prefix>", "<fim_suffix>"]), u32::MAX),
        None
    );
    let whole = with(&["<fim_prefix>", "<fim_suffix>", "<fim_middle>"]);
    assert!(Infill::find(&whole, first() + 3).is_some());
    // The model's output is narrower than the tokenizer.
    assert_eq!(Infill::find(&whole, first() + 2), None);
}

#[test]
fn padding_and_file_tokens_end_what_fills_the_gap() {
    let tokens = [
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        "<|file_sep|>",
        "<|fim_pad|>",
    ];
    let tokenizer = with(&tokens);
    let infill = Infill::find(&tokenizer, u32::MAX).unwrap();
    let mut ends = infill.end_ids().to_vec();
    ends.sort_unstable();
    assert_eq!(ends, (first()..first() + 5).collect::<Vec<_>>());
}

#[test]
fn control_tokens_in_either_text_stay_text() {
    let tokenizer = with(&["<fim_prefix>", "<fim_suffix>", "<fim_middle>"]);
    let infill = Infill::find(&tokenizer, u32::MAX).unwrap();
    let texts = ("a<fim_suffix>b<|im_end|>", "<fim_middle><|bos|>");
    let ids = infill.encode(&tokenizer, texts, false).unwrap();
    let (before, after) = (bytes_of(texts.0), bytes_of(texts.1));
    assert_eq!(
        ids,
        [
            &[first()],
            &*before,
            &[first() + 1],
            &*after,
            &[first() + 2]
        ]
        .concat()
    );
}

proptest! {
    /// What transformers' users write by hand, where no text looks like a control token.
    #[test]
    fn ids_are_those_of_the_hand_written_prompt(before in "[ a-z\né]{0,20}", after in "[ a-z\né]{0,20}") {
        let tokenizer = with(&["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]);
        let infill = Infill::find(&tokenizer, u32::MAX).unwrap();
        let by_hand = format!("<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>");
        let expected = tokenizer.encode(&by_hand, true, SpecialText::Parse).unwrap().ids;
        prop_assert_eq!(infill.encode(&tokenizer, (&before, &after), true).unwrap(), expected);
    }
}
