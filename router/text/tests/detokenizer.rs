//! Text of ids: against transformers (goldens), and streams against the whole.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod support;

use headrace_text::{Detokenizer, SpecialText, Tokenizer};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use support::{demo_gguf, golden, ids, texts};

static TINY: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| {
    let json = golden("tiny_byte_fallback.json").to_string();
    Arc::new(Tokenizer::from_bytes(json.as_bytes()).unwrap())
});

static DEMO: LazyLock<Option<Arc<Tokenizer>>> =
    LazyLock::new(|| demo_gguf().map(|path| Arc::new(Tokenizer::from_gguf(&path).unwrap())));

/// Pushes all ids; the text, and the `token.text`s with special ones left out.
fn stream(tokenizer: &Arc<Tokenizer>, prompt: &[u32], ids: &[u32]) -> (String, String) {
    let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer), prompt);
    let (mut text, mut token_texts) = (String::new(), String::new());
    for &id in ids {
        let delta = detokenizer.push(id);
        assert_eq!(delta.is_special, tokenizer.is_special(id));
        text.push_str(&delta.text);
        if delta.is_special {
            assert_eq!(delta.text, "");
            assert_eq!(delta.token_text, tokenizer.token_text(id));
        } else {
            token_texts.push_str(&delta.token_text);
        }
    }
    let tail = detokenizer.finish();
    text.push_str(&tail);
    token_texts.push_str(&tail);
    (text, token_texts)
}

fn check_goldens(tokenizer: &Arc<Tokenizer>, key: &str) {
    let golden = golden("transformers.json");
    let rows = golden[key].as_array().unwrap();
    assert!(rows.len() > 600);
    for row in rows {
        let last = u32::try_from(row["last"].as_u64().unwrap()).unwrap();
        let ids = ids(&row["ids"]);
        let expected = row["text"].as_str().unwrap();
        let prompt = [0, last];
        assert_eq!(
            Detokenizer::decode(Arc::clone(tokenizer), &prompt, &ids),
            expected,
            "{row}"
        );
        assert_eq!(stream(tokenizer, &prompt, &ids).0, expected, "{row}");
    }
}

#[test]
fn demo_texts_are_those_of_transformers() {
    if let Some(tokenizer) = &*DEMO {
        check_goldens(tokenizer, "demo_texts");
    }
}

#[test]
fn byte_fallback_texts_are_those_of_transformers() {
    check_goldens(&TINY, "tiny_texts");
}

#[test]
fn what_was_encoded_comes_back() {
    let Some(tokenizer) = &*DEMO else { return };
    for text in texts() {
        let ids = tokenizer
            .encode(&text, false, SpecialText::Plain)
            .unwrap()
            .ids;
        assert_eq!(stream(tokenizer, &[], &ids).0, text);
    }
}

#[test]
fn bad_bytes_are_replaced_per_ill_formed_part_and_never_stall() {
    let byte = |byte: u8| TINY.token_to_id(&format!("<0x{byte:02X}>")).unwrap();
    let cases: [(&[u8], &[&str], &str); 7] = [
        // 中 is sent as soon as it is whole; a byte that cannot start anything follows at once.
        (b"\xE4\xB8\xAD\xFF", &["", "", "中", "\u{FFFD}"], ""),
        (b"\xE4\xB8", &["", ""], "\u{FFFD}"),
        // A new start ends the old part.
        (b"\xE4\xB8\xE4\xB8\xAD", &["", "", "\u{FFFD}", "", "中"], ""),
        (b"\xF0\x9F\x98\x80", &["", "", "", "😀"], ""),
        // Surrogates and overlong forms: every byte is a part of its own.
        (b"\xED\xA0\x80", &["", "\u{FFFD}\u{FFFD}", "\u{FFFD}"], ""),
        (b"\xC0\xAF", &["\u{FFFD}", "\u{FFFD}"], ""),
        (b"\x80\x80a", &["\u{FFFD}", "\u{FFFD}", "a"], ""),
    ];
    for (bytes, deltas, tail) in cases {
        let ids: Vec<u32> = bytes.iter().map(|&b| byte(b)).collect();
        let mut detokenizer = Detokenizer::new(Arc::clone(&TINY), &[500]);
        for (&id, &expected) in ids.iter().zip(deltas) {
            assert_eq!(detokenizer.push(id).text, expected, "{bytes:?}");
        }
        assert_eq!(detokenizer.finish(), tail, "{bytes:?}");
    }
}

#[test]
fn a_special_token_inside_a_character_does_not_break_it() {
    let byte = |byte: u8| TINY.token_to_id(&format!("<0x{byte:02X}>")).unwrap();
    let mut detokenizer = Detokenizer::new(Arc::clone(&TINY), &[500]);
    assert_eq!(detokenizer.push(byte(0xE4)).text, "");
    let special = detokenizer.push(2);
    assert_eq!(
        (special.text.as_str(), special.token_text.as_str()),
        ("", "</s>")
    );
    assert_eq!(detokenizer.push(byte(0xB8)).text, "");
    assert_eq!(detokenizer.push(byte(0xAD)).text, "中");
    assert_eq!(detokenizer.push(9_999_999).text, "");
}

#[test]
fn the_leading_space_goes_only_at_the_start_of_a_text() {
    let word = TINY.encode("the", false, SpecialText::Parse).unwrap().ids;
    let first = |prompt: &[u32]| stream(&TINY, prompt, &word).0;
    assert_eq!(first(&[]), "the");
    assert_eq!(first(&[500, 1]), "the", "after a special token");
    assert_eq!(first(&[1, 500]), " the", "after text");
    assert_eq!(TINY.token_text(word[0]).chars().next(), Some(' '));
}

#[test]
fn without_a_decoder_tokens_are_joined_by_spaces_and_metaspace_drops_the_first_mark() {
    let build = |decoder: serde_json::Value| {
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": null, "post_processor": null, "decoder": decoder,
            "model": {"type": "WordLevel", "vocab": {"\u{2581}a": 0, "\u{2581}\u{2581}b": 1}, "unk_token": "\u{2581}a"},
        });
        Tokenizer::from_bytes(json.to_string().as_bytes()).map(Arc::new)
    };
    // Expected: tokenizers' `decode` (join with a space; Metaspace drops every mark of the first token).
    let none = build(serde_json::Value::Null).unwrap();
    assert_eq!(stream(&none, &[], &[0, 1]).0, "\u{2581}a \u{2581}\u{2581}b");
    let metaspace = build(serde_json::json!(
        {"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true}
    ))
    .unwrap();
    assert_eq!(stream(&metaspace, &[], &[1, 0, 1]).0, "b a  b");
    assert_eq!(stream(&metaspace, &[0], &[1]).0, "  b");
    let refused = build(
        serde_json::json!({"type": "CTC", "pad_token": "", "word_delimiter_token": "|", "cleanup": true}),
    );
    assert!(refused.unwrap_err().to_string().contains("decoder CTC"));
}

fn check_random(tokenizer: &Arc<Tokenizer>, seeds: &[u32], prompt: u32) {
    let size = tokenizer.vocab_size();
    let ids: Vec<u32> = seeds.iter().map(|seed| seed % size).collect();
    let whole = Detokenizer::decode(Arc::clone(tokenizer), &[prompt % size], &ids);
    let (text, token_texts) = stream(tokenizer, &[prompt % size], &ids);
    assert_eq!(text, whole);
    assert_eq!(token_texts, whole);
}

proptest! {
    #[test]
    fn a_stream_is_the_whole_text(seeds in proptest::collection::vec(any::<u32>(), 0..60), prompt in any::<u32>()) {
        check_random(&TINY, &seeds, prompt);
        if let Some(tokenizer) = &*DEMO {
            check_random(tokenizer, &seeds, prompt);
        }
    }

    #[test]
    fn bytes_of_a_stream_are_the_lossy_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let ids: Vec<u32> =
            bytes.iter().map(|byte| TINY.token_to_id(&format!("<0x{byte:02X}>")).unwrap()).collect();
        prop_assert_eq!(stream(&TINY, &[500], &ids).0, String::from_utf8_lossy(&bytes));
    }
}
