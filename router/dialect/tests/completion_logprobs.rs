//! `top_logprobs` of text completions where several ids have one text.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a test ends by panicking; the numbers are passed through"
)]

mod tiny_tokenizer;

use headrace_dialect::choice::{ChoiceRecord, ChoiceText, RawToken};
use headrace_dialect::end::EndReason;
use headrace_dialect::openai::{CompletionShown, Identity, completion, usage};
use headrace_dialect::shown_prompt::ShownPrompt;
use headrace_text::{StopMode, Tokenizer};
use std::sync::Arc;
use tiny_tokenizer::BYTES;

/// `tokens[0]` and `top_logprobs[0]` of an answer of one token.
fn entry(id: u32, logprob: f32, top: &[(u32, f32)]) -> (String, serde_json::Value) {
    let json = tiny_tokenizer::json().to_string();
    let tokenizer = Arc::new(Tokenizer::from_bytes(json.as_bytes()).unwrap());
    let mut text = ChoiceText::new(&tokenizer, &[], &[], StopMode::CutStop).unwrap();
    let token = RawToken {
        id,
        logprob: Some(logprob),
        top: top.to_vec(),
    };
    let mut record = ChoiceRecord::default();
    record.push(text.push(token, Some(EndReason::Length)));
    let identity = Identity {
        id: "x".to_owned(),
        created: 0,
        model: "x".to_owned(),
        system_fingerprint: "x".to_owned(),
        service_tier: None,
    };
    let records = vec![vec![record]];
    let usage = usage(&[1], &records);
    let shown = CompletionShown {
        logprobs: Some(u32::try_from(top.len()).unwrap()),
        ..CompletionShown::default()
    };
    let prompts = [ShownPrompt::default()];
    let answer = completion(&identity, (&prompts, &records), usage, shown, &tokenizer).unwrap();
    let value = serde_json::to_value(answer).unwrap();
    let logprobs = &value["choices"][0]["logprobs"];
    (
        logprobs["tokens"][0].as_str().unwrap().to_owned(),
        logprobs["top_logprobs"][0].clone(),
    )
}

/// Each of these bytes begins a character, so alone each reads as a replacement character.
const PARTS: [u32; 3] = [BYTES + 0xE1, BYTES + 0xE2, BYTES + 0xE3];

#[test]
fn the_sampled_token_keeps_its_text_and_the_others_are_told_apart() {
    let [first, sampled, last] = PARTS;
    let top = [
        (first, -0.5),
        (sampled, -1.0),
        (BYTES + u32::from(b'a'), -2.0),
        (last, -3.0),
    ];
    let (token, map) = entry(sampled, -1.0, &top);
    assert_eq!(token, "\u{fffd}");
    let named = |id: u32| format!("token_id:{id}");
    assert_eq!(
        map,
        serde_json::json!({named(first): -0.5, "\u{fffd}": -1.0, "a": -2.0, named(last): -3.0})
    );
}

#[test]
fn a_sampled_token_that_is_not_among_the_likeliest_is_there_too() {
    let [first, sampled, _] = PARTS;
    let (_, map) = entry(sampled, -7.0, &[(first, -0.5)]);
    assert_eq!(
        map,
        serde_json::json!({format!("token_id:{first}"): -0.5, "\u{fffd}": -7.0})
    );
}

#[test]
fn without_the_sampled_token_the_likeliest_keeps_the_text() {
    let [first, second, _] = PARTS;
    let (_, map) = entry(
        BYTES + u32::from(b'a'),
        -7.0,
        &[(first, -0.5), (second, -1.0)],
    );
    assert_eq!(
        map,
        serde_json::json!({"\u{fffd}": -0.5, format!("token_id:{second}"): -1.0, "a": -7.0})
    );
}
