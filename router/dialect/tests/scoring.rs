//! What completions tell of prompts and tokens: `echo`, `prompt_logprobs`, ids.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

mod tiny_tokenizer;

use headrace_dialect::choice::{ChoiceRecord, ChoiceText, PromptPlace, RawToken};
use headrace_dialect::end::EndReason;
use headrace_dialect::openai::{
    CompletionShown, CompletionStream, Identity, Scoring, StreamShape, completion, usage,
};
use headrace_dialect::shown_prompt::{EchoText, ShownPrompt};
use headrace_text::{SpecialText, StopMode, Tokenizer};
use serde_json::{Value, json};
use std::sync::Arc;
use tiny_tokenizer::{BOS, END, EOS, START, bytes_of, word};

fn tokenizer() -> Arc<Tokenizer> {
    let json = tiny_tokenizer::json().to_string();
    Arc::new(Tokenizer::from_bytes(json.as_bytes()).unwrap())
}

fn identity() -> Identity {
    Identity {
        id: "x".to_owned(),
        created: 0,
        model: "m".to_owned(),
        system_fingerprint: "f".to_owned(),
        service_tier: None,
    }
}

fn echo_of(tokenizer: &Arc<Tokenizer>, text: &str) -> (Vec<u32>, EchoText) {
    let encoding = tokenizer.encode(text, true, SpecialText::Parse).unwrap();
    let echo = EchoText::of_text(tokenizer, text, &encoding.ids, &encoding.offsets);
    (encoding.ids, echo)
}

/// A place whose best id is `best` and whose own id is the second.
fn place(id: u32, best: u32) -> PromptPlace {
    let token = RawToken {
        id,
        logprob: Some(-1.5),
        top: vec![(best, -0.5), (id, -1.5)],
    };
    PromptPlace::new(token, 2)
}

/// `Hello wö`, and a place for each of its ids but the first.
fn prompt(tokenizer: &Arc<Tokenizer>) -> (ShownPrompt, Vec<PromptPlace>) {
    let (ids, echo) = echo_of(tokenizer, "Hello wö");
    let places = ids[1..].iter().map(|id| place(*id, EOS)).collect();
    let shown = ShownPrompt {
        ids: ids.into(),
        echo: Some(Arc::new(echo)),
    };
    (shown, places)
}

fn record(
    tokenizer: &Arc<Tokenizer>,
    shown: &ShownPrompt,
    places: Vec<PromptPlace>,
) -> ChoiceRecord {
    let mut record = ChoiceRecord::default();
    record.push_prompt(places);
    let mut text = ChoiceText::new(tokenizer, &shown.ids, &[], StopMode::CutStop).unwrap();
    for (index, id) in bytes_of("rs").into_iter().enumerate() {
        let token = RawToken {
            id,
            logprob: Some(-0.25),
            top: vec![(id, -0.25)],
        };
        record.push(text.push(token, (index == 1).then_some(EndReason::Length)));
    }
    record
}

fn whole(shown: CompletionShown) -> Value {
    let tokenizer = tokenizer();
    let (prompt, places) = prompt(&tokenizer);
    let records = vec![vec![record(&tokenizer, &prompt, places)]];
    let usage = usage(&[prompt.ids.len()], &records);
    let answer = completion(&identity(), (&[prompt], &records), usage, shown, &tokenizer);
    serde_json::to_value(answer.unwrap()).unwrap()["choices"][0].clone()
}

fn echoed(logprobs: Option<u32>) -> CompletionShown {
    CompletionShown {
        logprobs,
        scoring: Scoring {
            echo: true,
            ..Scoring::default()
        },
    }
}

#[test]
fn bug_case_3_2_echoed_prompts_have_logprobs_with_the_first_null() {
    let choice = whole(echoed(Some(1)));
    assert_eq!(choice["text"], "Hello wörs");
    let logprobs = &choice["logprobs"];
    // The begin of sequence, `Hello`, ` w`, the two bytes of `ö`, and two sampled bytes.
    assert_eq!(
        logprobs["tokens"],
        json!(["<|bos|>", "Hello", " w", "\u{fffd}", "\u{fffd}", "r", "s"])
    );
    assert_eq!(
        logprobs["token_logprobs"],
        json!([null, -1.5, -1.5, -1.5, -1.5, -0.25, -0.25])
    );
    // In characters of the choice's whole text; the parts of one character stand at its start.
    assert_eq!(logprobs["text_offset"], json!([0, 0, 5, 7, 7, 8, 9]));
    // One of the likeliest and the token's own.
    let top = logprobs["top_logprobs"].as_array().unwrap();
    assert_eq!(top[0], Value::Null);
    assert_eq!(top[1], json!({"<|eos|>": -0.5, "Hello": -1.5}));
    assert_eq!(top[5], json!({"r": -0.25}));
}

#[test]
fn without_logprobs_an_echo_is_text_alone() {
    let choice = whole(echoed(None));
    assert_eq!(
        (&choice["text"], &choice["logprobs"]),
        (&json!("Hello wörs"), &Value::Null)
    );
    let choice = whole(echoed(Some(0)));
    assert_eq!(
        choice["logprobs"]["top_logprobs"][1],
        json!({"Hello": -1.5})
    );
}

#[test]
fn prompt_logprobs_are_by_id_with_rank_and_text() {
    let choice = whole(CompletionShown {
        logprobs: None,
        scoring: Scoring {
            prompt_logprobs: Some(1),
            ..Scoring::default()
        },
    });
    assert_eq!(choice["text"], "rs");
    let entries = choice["prompt_logprobs"].as_array().unwrap();
    assert_eq!((entries.len(), &entries[0]), (6 - 1, &Value::Null));
    let hello = word("Hello").to_string();
    assert_eq!(
        entries[1],
        json!({
            hello: {"logprob": -1.5, "rank": 2, "decoded_token": "Hello"},
            "1": {"logprob": -0.5, "rank": 1, "decoded_token": "<|eos|>"},
        })
    );
}

#[test]
fn ids_are_shown_for_prompts_and_choices_and_as_names() {
    let choice = whole(CompletionShown {
        logprobs: Some(1),
        scoring: Scoring {
            token_ids: true,
            tokens_as_ids: true,
            ..Scoring::default()
        },
    });
    let [r, s] = bytes_of("rs")[..] else { return };
    assert_eq!(choice["token_ids"], json!([r, s]));
    let prompt: Vec<u32> = [&[BOS, word("Hello"), word(" w")], &*bytes_of("ö")].concat();
    assert_eq!(choice["prompt_token_ids"], json!(prompt));
    let named = |id: u32| format!("token_id:{id}");
    assert_eq!(choice["logprobs"]["tokens"], json!([named(r), named(s)]));
    assert_eq!(
        choice["logprobs"]["top_logprobs"][0],
        json!({named(r): -0.25})
    );
}

#[test]
fn a_streams_first_chunk_begins_with_the_prompt_and_all_chunks_add_up() {
    let tokenizer = tokenizer();
    let (prompt, places) = prompt(&tokenizer);
    let shown = CompletionShown {
        logprobs: Some(1),
        scoring: Scoring {
            echo: true,
            token_ids: true,
            ..Scoring::default()
        },
    };
    let steps = record(&tokenizer, &prompt, Vec::new()).steps;
    let mut stream =
        CompletionStream::new(identity(), StreamShape::default(), shown, vec![prompt], 2);
    // Told in two parts, and to each choice.
    for index in 0..2 {
        stream.take_prompt(index, places[..2].to_vec());
        stream.take_prompt(index, places[2..].to_vec());
    }
    let whole = whole(shown);
    for index in 0..2 {
        let chunks: Vec<Value> = steps
            .iter()
            .filter_map(|step| stream.chunk(index, step.clone(), &tokenizer))
            .map(|chunk| serde_json::to_value(chunk).unwrap()["choices"][0].clone())
            .collect();
        assert_eq!(chunks[0]["text"], "Hello wör");
        assert_eq!(chunks[0]["prompt_token_ids"], whole["prompt_token_ids"]);
        assert_eq!(chunks[1].get("prompt_token_ids"), None);
        for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            let entries = chunks
                .iter()
                .flat_map(|chunk| chunk["logprobs"][list].as_array().unwrap());
            let entries: Value = entries.cloned().collect();
            assert_eq!(entries, whole["logprobs"][list], "{list}");
        }
        let ids = chunks
            .iter()
            .flat_map(|chunk| chunk["token_ids"].as_array().unwrap());
        assert_eq!(ids.cloned().collect::<Value>(), whole["token_ids"]);
    }
}

#[test]
fn what_is_minus_infinity_is_written_as_a_number() {
    let token = RawToken {
        id: 7,
        logprob: Some(f32::NEG_INFINITY),
        top: vec![(8, -0.5), (7, f32::NEG_INFINITY)],
    };
    let place = PromptPlace::new(token, 2);
    assert_eq!((place.logprob, place.top[1].1), (-9999.0, -9999.0));
}

#[test]
fn a_prompts_text_is_as_it_was_sent_special_tokens_too() {
    let tokenizer = tokenizer();
    let text = "<|im_start|>user Hello<|im_end|>";
    let (ids, echo) = echo_of(&tokenizer, text);
    assert_eq!(ids[..3], [BOS, START, word("user")]);
    assert_eq!(ids.last(), Some(&END));
    assert_eq!(echo.text, text);
    assert_eq!(echo.characters, text.chars().count());
    assert_eq!(echo.offsets[..4], [0, 0, 12, 16]);
    assert_eq!(echo.offsets.last(), Some(&22));
}

#[test]
fn a_prompt_of_ids_is_decoded_as_output_is() {
    let tokenizer = tokenizer();
    let ids = [
        &[BOS, word("Hello"), END],
        &*bytes_of("é!"),
        &[tiny_tokenizer::BYTES + 0xE9],
    ]
    .concat();
    let echo = EchoText::of_ids(&tokenizer, &ids, false);
    // Half a character at the end is one, as everywhere.
    assert_eq!(echo.text, "Helloé!\u{fffd}");
    assert_eq!(echo.offsets, [0, 0, 5, 5, 5, 6, 7]);
    let echo = EchoText::of_ids(&tokenizer, &ids, true);
    assert_eq!(echo.text, "<|bos|>Hello<|im_end|>é!\u{fffd}");
    assert_eq!(echo.offsets[..4], [0, 7, 12, 22]);
}

#[test]
fn a_cut_prompt_is_echoed_from_where_it_was_cut() {
    let tokenizer = tokenizer();
    let (ids, echo) = echo_of(&tokenizer, "Hello wö!");
    let cut = echo.clone().keep_last(3);
    assert_eq!((&*cut.text, cut.characters), ("ö!", 2));
    assert_eq!(cut.offsets, [0, 0, 1]);
    assert_eq!(echo.clone().keep_last(ids.len()), echo);
    assert_eq!(echo.clone().keep_last(0).text, "");
    let cut = echo.clone().keep_first(3);
    assert_eq!((&*cut.text, cut.characters), ("Hello w", 7));
    assert_eq!(cut.offsets, [0, 0, 5]);
    assert_eq!(echo.clone().keep_first(ids.len()), echo);
}

/// A tokenizer of the sentencepiece kind puts a space before a text: the ids decode to something else.
#[test]
fn where_ids_say_something_else_than_was_sent_the_places_tell() {
    let tokenizer = tokenizer();
    let ids = [BOS, word("Hello"), word(" w")];
    // As if white space had been trimmed off the places, and a capital had been made small.
    let echo = EchoText::of_text(&tokenizer, "HÉLLO w", &ids, &[(0, 0), (0, 6), (7, 8)]);
    assert_eq!(echo.text, "HÉLLO w");
    assert_eq!(echo.offsets, [0, 0, 5]);
    assert_eq!(echo.characters, 7);
}
