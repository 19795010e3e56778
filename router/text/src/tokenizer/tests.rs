use super::*;
use proptest::prelude::*;

/// A small byte-level tokenizer with every kind of added token.
fn tokenizer(normalizer: &str) -> Tokenizer {
    let alphabet: serde_json::Map<String, serde_json::Value> =
        tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet()
            .into_iter()
            .map(|character| character.to_string())
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .enumerate()
            .map(|(id, token)| (token, id.into()))
            .collect();
    let token = |id: u32, content: &str, flags: [bool; 5]| {
        serde_json::json!({
            "id": id, "content": content, "special": flags[0], "normalized": flags[1],
            "lstrip": flags[2], "rstrip": flags[3], "single_word": flags[4],
        })
    };
    let json = serde_json::json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "normalizer": serde_json::from_str::<serde_json::Value>(normalizer).unwrap(),
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "vocab": alphabet, "merges": []},
        "added_tokens": [
            token(256, "<|end|>", [true, false, false, false, false]),
            token(257, "<|end|>>", [true, false, false, false, false]),
            token(258, "<think>", [false, true, false, false, false]),
            token(259, "<left>", [true, false, true, false, false]),
            token(260, "<right>", [true, false, false, true, false]),
            token(261, "word", [false, true, false, false, true]),
            token(262, "   ", [false, true, false, false, false]),
            token(263, "<both>", [false, true, true, true, false]),
        ],
    });
    Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
}

fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<|end|>"),
        Just("<|end|>>"),
        Just("<think>"),
        Just("<THINK>"),
        Just("<left>"),
        Just("<right>"),
        Just("word"),
        Just("<both>"),
        Just(" "),
        Just("   "),
        Just("<"),
        Just("|>"),
        Just("é"),
        Just("E\u{301}"),
        Just("x1"),
        Just("\n"),
    ];
    proptest::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

const NORMALIZERS: [&str; 3] = [
    "null",
    r#"{"type": "NFC"}"#,
    r#"{"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}]}"#,
];

proptest! {
    #[test]
    fn with_nothing_vetoed_the_search_is_the_library_s(text in pieces()) {
        for normalizer in NORMALIZERS {
            let tokenizer = tokenizer(normalizer);
            let own = tokenizer.encode_split(&text, Literals::TextWithin(&[])).unwrap();
            let library = tokenizer.library_encoding(&text).unwrap();
            prop_assert_eq!(own.get_ids(), library.get_ids());
            prop_assert_eq!(own.get_offsets(), library.get_offsets());
        }
    }

    #[test]
    fn plain_text_holds_no_added_token_but_space(text in pieces()) {
        for normalizer in NORMALIZERS {
            let tokenizer = tokenizer(normalizer);
            let encoding = tokenizer.encode(&text, false, SpecialText::Plain).unwrap();
            prop_assert!(encoding.ids.iter().all(|&id| id < 256 || id == 262), "{:?}", encoding.ids);
        }
    }
}

#[test]
fn only_marked_occurrences_are_broken_apart() {
    let tokenizer = tokenizer("null");
    // The second <|end|> is a content's: its first and last characters are marked.
    let prompt = RenderedPrompt {
        text: "a<|end|><|end|><|end|>".into(),
        content_marks: vec![8..9, 14..15],
    };
    let ids = tokenizer.encode_chat(&prompt).unwrap().ids;
    assert_eq!(ids.iter().filter(|&&id| id == 256).count(), 2);
    assert_eq!(ids[1], 256);
    assert_eq!(ids[ids.len() - 1], 256);
    assert_eq!(ids.len(), 3 + "<|end|>".len());
}

#[test]
fn a_token_of_the_template_inside_a_broken_one_is_found() {
    // A content's "<" before the template's "<|end|>>" must not hide it, nor may a content's ">" lengthen it.
    let tokenizer = tokenizer("null");
    let text = "<<|end|>>".to_owned();
    let prompt = RenderedPrompt {
        text,
        content_marks: std::iter::once(0..1).collect(),
    };
    assert_eq!(tokenizer.encode_chat(&prompt).unwrap().ids[1..], [257]);
}
