use super::*;
use crate::gguf::GgufVocabulary;
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

/// Lengths are the validation's business: what a file says of them cuts and fills nothing.
#[test]
fn truncation_and_padding_of_a_file_do_nothing() {
    let file = |truncation: &str, padding: &str| {
        let json = format!(
            r#"{{"version": "1.0", "truncation": {truncation}, "padding": {padding}, "added_tokens": [],
                "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
                "model": {{"type": "BPE", "vocab": {{"a": 0, "b": 1}}, "merges": []}}}}"#
        );
        Tokenizer::from_bytes(json.as_bytes())
    };
    let cuts =
        r#"{"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}"#;
    let fills = r#"{"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 1,
        "pad_type_id": 0, "pad_token": "b"}"#;
    for (truncation, padding) in [(cuts, "null"), ("null", fills), (cuts, fills)] {
        let tokenizer = file(truncation, padding).unwrap();
        let ids = |text: &str| {
            tokenizer
                .encode(text, true, SpecialText::Parse)
                .unwrap()
                .ids
        };
        assert_eq!(ids("aabba"), [0, 0, 1, 1, 0]);
        assert_eq!(ids("a"), [0]);
    }
    // What the library itself cannot read is one line.
    for odd in [
        "7",
        r#"{"max_length": "long"}"#,
        r#"{"strategy": "Shortest"}"#,
    ] {
        let line = file(odd, "null").unwrap_err().to_string();
        assert_eq!(line.lines().count(), 1, "{line}");
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

/// Byte-level, with merges up to `aaaa` and without a token for `\u{1}`.
fn merging_tokenizer(normalizer: &serde_json::Value, left_strip: bool) -> Tokenizer {
    let mut tokens: Vec<String> = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet()
        .into_iter()
        .filter(|character| *character != '\u{101}')
        .map(|character| character.to_string())
        .collect();
    tokens.sort();
    tokens.extend(["aa".to_owned(), "aaaa".to_owned()]);
    let vocabulary: serde_json::Map<String, serde_json::Value> = tokens
        .into_iter()
        .enumerate()
        .map(|(id, token)| (token, id.into()))
        .collect();
    let byte_level = serde_json::json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": normalizer,
        "pre_tokenizer": byte_level, "post_processor": null, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": ["a a", "aa aa"]},
        "added_tokens": [{
            "id": 257, "content": "<end>", "special": true, "normalized": false, "lstrip": left_strip,
            "rstrip": false, "single_word": false,
        }],
    });
    Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
}

#[test]
fn fewest_tokens_is_never_more_than_there_are() {
    let tokenizer = merging_tokenizer(&serde_json::Value::Null, false);
    let count = |text: &str| {
        tokenizer
            .encode(text, false, SpecialText::Parse)
            .unwrap()
            .ids
            .len()
    };
    // The longest is `<end>`: five bytes.
    assert_eq!(tokenizer.fewest_tokens(&"<end>".repeat(100)), 100);
    assert_eq!(count(&"<end>".repeat(100)), 100);
    assert_eq!(tokenizer.fewest_tokens(&"a".repeat(4000)), 800);
    assert_eq!(count(&"a".repeat(4000)), 1000);
    // The model drops what it has no token for.
    assert_eq!(count(&"\u{1}".repeat(50)), 0);
    assert_eq!(tokenizer.fewest_tokens(&"\u{1}".repeat(50)), 0);
    assert_eq!(tokenizer.fewest_tokens(""), 0);
    // No bound where something may shorten the text first.
    let shortened = merging_tokenizer(&serde_json::json!({"type": "NFC"}), false);
    assert_eq!(shortened.fewest_tokens("aaaa"), 0);
    let swallowing = merging_tokenizer(&serde_json::Value::Null, true);
    assert_eq!(swallowing.fewest_tokens("aaaa"), 0);
}

proptest! {
    #[test]
    fn fewest_tokens_holds_for_any_text(text in "(aaaa|<end>|  |\\PC|\u{1}){0,40}") {
        let tokenizer = merging_tokenizer(&serde_json::Value::Null, false);
        let encoding = tokenizer.encode(&text, false, SpecialText::Parse).unwrap();
        prop_assert!(tokenizer.fewest_tokens(&text) <= encoding.ids.len());
    }
}

/// Found by fuzzing: the library panics on a decoder that is cut off, and on a merge that is longer than any token.
#[test]
fn files_on_which_the_library_panics_are_errors_of_one_line() {
    let whole = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]},
    })
    .to_string();
    let cut = &whole[..whole.find("Fuse").unwrap()];
    for json in [
        whole.as_str(),
        cut,
        "",
        "{\"decoder\": {\"type\": \"x\\ny\"}}",
    ] {
        let error = Tokenizer::from_bytes(json.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(
            !error.contains('\n') && !error.is_empty(),
            "{json}: {error}"
        );
    }
    let vocabulary = |merge: &str| GgufVocabulary {
        model: crate::gguf::VocabularyModel::Gpt2,
        pre: None,
        tokens: vec!["a".to_owned(), "b".to_owned()],
        kinds: vec![crate::gguf::TokenKind::Normal; 2],
        scores: Vec::new(),
        merges: vec![merge.to_owned()],
        bos_id: None,
        eos_id: None,
        end_of_turn_id: None,
        unknown_id: None,
        padding_id: None,
        add_bos: None,
        add_eos: None,
        add_space_prefix: None,
        chat_template: None,
    };
    for merge in ["a b", "ab"] {
        let error = Tokenizer::from_gguf_vocabulary(vocabulary(merge)).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("tokenizer.ggml.merges[0]"), "{text}");
    }
}

/// Found by fuzzing: a template may name a token that its own list lacks, or a second text, and panics on any text.
#[test]
fn a_post_processor_on_which_the_library_panics_is_refused_at_load() {
    let file = |single: serde_json::Value| {
        serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": null, "decoder": null, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []},
            "post_processor": {
                "type": "TemplateProcessing", "single": single, "pair": [],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
            },
        })
    };
    let special = |name: &str| serde_json::json!({"SpecialToken": {"id": name, "type_id": 0}});
    let sequence = |id: &str| serde_json::json!({"Sequence": {"id": id, "type_id": 0}});
    let load = |file: &serde_json::Value| Tokenizer::from_bytes(file.to_string().as_bytes());

    let sound = file(serde_json::json!([special("<s>"), sequence("A")]));
    let ids = load(&sound)
        .unwrap()
        .encode("a", true, SpecialText::Parse)
        .unwrap()
        .ids;
    assert_eq!(ids, [0, 0]);
    let missing = file(serde_json::json!([special("</s>"), sequence("A")]));
    let second = file(serde_json::json!([special("<s>"), sequence("B")]));
    let mut nested = missing.clone();
    nested["post_processor"] = serde_json::json!({
        "type": "Sequence", "processors": [missing["post_processor"].clone()],
    });
    for file in [missing, second, nested] {
        let error = load(&file).unwrap_err().to_string();
        assert!(error.contains("`post_processor`"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

/// Found with converted vocabularies: a unigram model knows its control pieces as any other, and made `</s>` of a
/// content's letters.
#[test]
fn a_unigram_model_makes_no_control_token_of_plain_text() {
    let letters = ["a", "b", "<", "/", "s", ">"].map(|letter| serde_json::json!([letter, -4.0]));
    let mut pieces = vec![
        serde_json::json!(["<unk>", 0.0]),
        serde_json::json!(["</s>", 0.0]),
    ];
    pieces.extend(letters);
    let token = |id: u32, content: &str| {
        serde_json::json!({
            "id": id, "content": content, "special": true, "normalized": false, "lstrip": false,
            "rstrip": false, "single_word": false,
        })
    };
    let json = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": {"type": "Fuse"},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": pieces, "byte_fallback": false},
        "added_tokens": [token(0, "<unk>"), token(1, "</s>")],
    });
    let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap();
    let encode = |text: &str, special| tokenizer.encode(text, false, special).unwrap();
    assert_eq!(encode("a</s>", SpecialText::Parse).ids, [2, 1]);
    let plain = encode("a</s></s>b", SpecialText::Plain);
    assert_eq!(plain.ids, [2, 4, 5, 6, 7, 4, 5, 6, 7, 3]);
    let ends: Vec<usize> = plain.offsets.iter().map(|offsets| offsets.1).collect();
    assert_eq!(ends, (1..=10).collect::<Vec<_>>());
    // Only the one in a content is broken apart.
    let prompt = RenderedPrompt {
        text: "a</s></s>".into(),
        content_marks: std::iter::once(0..5).collect(),
    };
    let chat = tokenizer.encode_chat(&prompt).unwrap().ids;
    assert_eq!(chat, [2, 4, 5, 6, 7, 1]);
}
