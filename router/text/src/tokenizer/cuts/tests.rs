//! Every place that may be cut gives the ids and places of the whole, for real vocabularies and all the pre-tokenizers;
//! and the places that matter may be cut.

use super::super::Tokenizer;
use super::super::chunks::{Reading, Wanted};
use super::expression::Facts;
use super::symbols::{self, COUNT};
use crate::added_tokens::Literals;
use crate::{Encoding, GgufVocabulary, RenderedPrompt, SpecialText};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// `HEADRACE_TEST_DATA`, or `target/test-data` of the checkout.
fn test_data(name: &str) -> PathBuf {
    let folder = match std::env::var_os("HEADRACE_TEST_DATA") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-data"),
    };
    folder.join("tokenizers").join(name)
}

fn golden(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

/// Real ones (`make test-data`; without them the made ones alone), as published or as the launcher makes them.
static REAL: LazyLock<Vec<(String, Tokenizer)>> = LazyLock::new(|| {
    let mut real = Vec::new();
    for name in ["llama2", "qwen3", "llama3_1"] {
        let folder = test_data(name);
        let config = folder.join("tokenizer_config.json");
        if config.is_file() {
            let tokenizer = Tokenizer::from_file(&folder.join("tokenizer.json"), Some(&config));
            real.push((name.to_owned(), tokenizer.unwrap()));
        }
    }
    for name in ["mistral_v3", "mistral_v7", "tekken_240911", "qwen_tiktoken"] {
        if let Some(found) = headrace_vocabulary::find(&test_data(name)) {
            let made = headrace_vocabulary::convert(&found).unwrap();
            let json: Value = serde_json::from_slice(&made.tokenizer).unwrap();
            real.push((name.to_owned(), tokenizer(&json)));
        }
    }
    real
});

fn tokenizer(json: &Value) -> Tokenizer {
    Tokenizer::from_bytes(json.to_string().as_bytes()).unwrap()
}

/// Byte-level BPE of a few merges over any expressions, with added tokens that reach for what stands around them.
fn by_expressions(expressions: &[&str], normalizer: &Value, adds_space: bool) -> Tokenizer {
    let mut letters: Vec<char> = tokenizers::pre_tokenizers::byte_level::ByteLevel::alphabet()
        .into_iter()
        .collect();
    letters.sort_unstable();
    let mut tokens: Vec<String> = letters.into_iter().map(String::from).collect();
    let pairs = [
        "\u{120} a",
        "a b",
        "b \u{120}",
        "' s",
        "1 2",
        "\u{120} \u{120}",
        "\u{10A} \u{10A}",
        ". \u{10A}",
        "e \u{129}",
    ];
    let merges: Vec<[&str; 2]> = pairs
        .iter()
        .map(|pair| {
            [
                pair.split_once(' ').unwrap().0,
                pair.split_once(' ').unwrap().1,
            ]
        })
        .collect();
    tokens.extend(merges.iter().map(|[left, right]| format!("{left}{right}")));
    tokens.sort_unstable();
    tokens.dedup();
    let vocab: serde_json::Map<String, Value> = (0..)
        .zip(&tokens)
        .map(|(id, token): (u32, _)| (token.clone(), json!(id)))
        .collect();
    let mut steps: Vec<Value> = expressions
        .iter()
        .map(|it| json!({"type": "Split", "pattern": {"Regex": it}, "behavior": "Isolated", "invert": false}))
        .collect();
    steps.push(json!({
        "type": "ByteLevel", "add_prefix_space": adds_space, "trim_offsets": false,
        "use_regex": expressions.is_empty(),
    }));
    let size = u32::try_from(tokens.len()).unwrap();
    let added = |index: u32, content: &str, sides: (bool, bool, bool)| {
        json!({
            "id": size + index, "content": content, "special": true, "normalized": false, "lstrip": sides.0,
            "rstrip": sides.1, "single_word": sides.2,
        })
    };
    tokenizer(&json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false},
        "post_processor": null,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        "added_tokens": [
            added(0, "<end>", (false, false, false)), added(1, "<l>", (true, false, false)),
            added(2, "<r>", (false, true, false)), added(3, "word", (false, false, true)),
            added(4, "  ", (false, false, false)), added(5, "<end><l", (false, false, false)),
        ],
    }))
}

/// Expressions of the families, as their files have them.
const EXPRESSIONS: [&[&str]; 9] = [
    &[],
    &[r"\p{N}", super::GPT2],
    &[
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    &[
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    &[
        r"\p{N}{1,3}",
        "[\u{4E00}-\u{9FA5}\u{3040}-\u{309F}\u{30A0}-\u{30FF}]+",
        r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
    ],
    &[
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ],
    &[r"[\p{P}\$\+<=>\^~\|`]+", super::GPT2, "[0-9][0-9][0-9]"],
    &[r"[^\n]+|[\n]+", r"\p{N}+| ?\p{L}+|\s+$|\s+|."],
    // Nothing that ships, but all that is read otherwise than it stands.
    &[r"a(?=b)|ab?(?!\S)|[^ab]?b+(?=[a\]])| ?\p{L}+|\s+"],
];

static MADE: LazyLock<Vec<(String, Tokenizer)>> = LazyLock::new(|| {
    let mut made = Vec::new();
    for (index, expressions) in EXPRESSIONS.iter().enumerate() {
        for (normalizer, adds_space) in [
            (Value::Null, false),
            (json!({"type": "NFC"}), false),
            (Value::Null, true),
        ] {
            let name = format!("{index} {normalizer} {adds_space}");
            made.push((name, by_expressions(expressions, &normalizer, adds_space)));
        }
    }
    let tiny = golden("tiny_byte_fallback.json");
    made.push(("tiny".into(), tokenizer(&tiny)));
    for scheme in ["first", "always", "never"] {
        for splits in [false, true] {
            let mut json = tiny.clone();
            json["normalizer"] = Value::Null;
            json["pre_tokenizer"] = json!({
                "type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": splits,
            });
            made.push((format!("{scheme} {splits}"), tokenizer(&json)));
        }
    }
    made
});

/// Where the encoding of both parts is not that of the whole.
fn wrong_cut(tokenizer: &Tokenizer, text: &str, reading: Reading<'_>) -> Option<usize> {
    let cuts = tokenizer.cuts.as_ref()?;
    let encode = |range: Range<usize>| tokenizer.encode_range(text, reading, range).unwrap();
    let whole = encode(0..text.len());
    (1..text.len())
        .filter(|at| cuts.allows(text, *at))
        .find(|at| {
            let Encoding {
                mut ids,
                mut offsets,
            } = encode(0..*at);
            let right = encode(*at..text.len());
            ids.extend(right.ids);
            offsets.extend(right.offsets);
            (ids, offsets) != (whole.ids.clone(), whole.offsets.clone())
        })
}

const TEXT: &str = "([ab]{1,4}|[ ]{1,3}|[\r\n]{1,2}|[0-9]{1,4}|'s|'LL|don't|[.,;:!?()<>\\[\\]{}$^~|/`\"-]{1,2}|\
    <end>|<l>|<r>|word|<s>|</s>|\\[INST\\]|<\\|im_end\\|>|<\\|eot_id\\|>|<|end>|\u{2581}|\t|\
    \u{e9}|e\u{301}|\u{301}|\u{438}|\u{418}|\u{306}|\u{4e2d}\u{6587}|\u{3002}|\u{ff0c}|\u{ff1f}|\u{304b}|\u{3099}|\
    \u{ac00}|\u{11a8}|\u{915}|\u{93c}|\u{e01}|\u{e31}|\u{628}|\u{5d0}|\u{1f600}|\u{17f}|\u{212a}|\u{a0}|\u{3000}|\u{2028}|\\PC){0,24}";

/// Each is a hundred encodings and more.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn both_parts_have_the_ids_of_the_whole(text in TEXT, marks in proptest::collection::vec(0..24_usize, 0..3)) {
        let mut marks: Vec<Range<usize>> = marks
            .iter()
            .filter_map(|place| text.char_indices().nth(*place))
            .map(|(at, letter)| at..at + letter.len_utf8())
            .collect();
        marks.sort_unstable_by_key(|range| range.start);
        marks.dedup();
        let readings = [
            Reading::Parsed,
            Reading::Literals(Literals::AllText),
            Reading::Literals(Literals::TextWithin(&marks)),
        ];
        for (name, tokenizer) in MADE.iter().chain(REAL.iter()) {
            for reading in readings {
                let wrong = wrong_cut(tokenizer, &text, reading);
                prop_assert_eq!(wrong, None, "{} {:?} {:?}", name, text, reading);
            }
        }
    }
}

/// Where the middle of two texts may be cut.
fn allows(tokenizer: &Tokenizer, left: &str, right: &str) -> bool {
    let cuts = tokenizer.cuts.as_ref();
    cuts.is_some_and(|cuts| cuts.allows(&format!("{left}{right}"), left.len()))
}

#[test]
fn texts_of_any_script_may_be_cut_and_words_may_not() {
    for (name, tokenizer) in MADE.iter().chain(REAL.iter()) {
        let is_odd = name.starts_with("7 ") || name.starts_with("8 ");
        assert!(is_odd || allows(tokenizer, "a b", " a b"), "{name}");
        for (left, right) in [
            ("a", "b"),
            ("a ", "b"),
            (" ", " a"),
            ("\n", "a"),
            ("", " a"),
            ("a", ""),
            ("a<end>", " b"),
        ] {
            let has_token = !left.ends_with('>') || tokenizer.token_to_id("<end>").is_some();
            if has_token {
                assert!(
                    !allows(tokenizer, left, right),
                    "{name}: {left:?} {right:?}"
                );
            }
        }
    }
    for (name, tokenizer) in REAL
        .iter()
        .filter(|(name, _)| !name.starts_with("llama2") && !name.starts_with("mistral"))
    {
        for (left, right) in [
            ("\u{6587}", "\u{ff0c}"),
            ("\u{43f}", " \u{43f}"),
            ("a", "\n"),
            ("a.", " B"),
            ("a", "1"),
        ] {
            assert!(allows(tokenizer, left, right), "{name}: {left:?} {right:?}");
        }
    }
}

#[test]
fn tokenizers_that_read_further_have_no_places() {
    let places = |normalizer: Value, post: Value| {
        let mut json = golden("tiny_byte_fallback.json");
        json["normalizer"] = normalizer;
        json["post_processor"] = post;
        tokenizer(&json).cuts.is_some()
    };
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"});
    assert!(places(replace.clone(), Value::Null));
    let sequence =
        |step: Value| json!({"type": "Sequence", "normalizers": [step, replace.clone()]});
    for step in [
        json!({"type": "Strip", "strip_left": true, "strip_right": true}),
        json!({"type": "NFKC"}),
        json!({"type": "Replace", "pattern": {"Regex": " +"}, "content": "\u{2581}"}),
        json!({"type": "Replace", "pattern": {"String": "ab"}, "content": "b"}),
        json!({"type": "Lowercase"}),
    ] {
        assert!(!places(sequence(step.clone()), Value::Null), "{step}");
    }
    let trims = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    assert!(!places(replace.clone(), trims));
}

#[test]
fn an_expression_that_is_not_understood_gives_nothing() {
    let unknown = [
        r"(?<=a)b",
        r"(?<!a)b",
        r"\bword",
        "^a",
        r"a\G",
        r"(?>a+)b",
        r"(a)\1",
        r"a|",
        r"\h+",
        "(?m:a.b)",
        "[a&&b]",
        "[[:alpha:]]",
        r"(?=ab)c",
        "a{2}?",
        "a**",
        r"\x61",
        "(?x: a)",
    ];
    for expression in unknown {
        assert!(Facts::of(expression).is_none(), "{expression}");
    }
}

#[test]
fn what_an_expression_never_matches_is_known() {
    let facts = Facts::of(r"a{2,3}b?|\p{N}|x(?!\S)|[^\r\nab0-9]?\p{L}+").unwrap();
    let symbol = |letter: char| symbols::of(letter).unwrap();
    let joined = |left: char, right: char| facts.joined[symbol(left) * COUNT + symbol(right)];
    assert!(joined('a', 'a') && joined('a', 'b') && joined('-', 'a') && joined('-', '\u{4e2d}'));
    assert!(!joined('1', '2') && !joined('\n', 'a') && !joined('c', '-'));
    assert!(facts.asks_behind[symbol('x')] && !facts.asks_behind[symbol('a')]);
    assert!(facts.starts[symbol('1')] && facts.starts[symbol('x')] && !facts.starts[symbol('-')]);
    // `\p{Lu}` holds a part of it.
    let facts = Facts::of("[\u{4E00}-\u{5000}]").unwrap();
    assert!(facts.joined[symbol('\u{4e2d}') * COUNT + symbol('a')]);
}

/// Megabytes, as the routes have them.
#[test]
fn a_large_text_has_the_ids_of_the_whole_whatever_is_wanted() {
    let words = [
        "The quick",
        " brown fox",
        "; don't\n",
        " 1234567",
        "\r\n\r\n",
        " \u{4e2d}\u{6587}\u{ff0c}",
        "  x",
        "</s>",
        "<|im_end|>",
        " caf\u{e9}.",
    ];
    let mut text = String::new();
    let mut state = 7_usize;
    while text.len() < 200_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text.push_str(words[(state >> 33) % words.len()]);
    }
    for (name, tokenizer) in REAL.iter().take(3).chain(&MADE[..1]) {
        let marks: Vec<Range<usize>> = text
            .match_indices('<')
            .step_by(3)
            .map(|(at, it)| at..at + it.len())
            .collect();
        let whole = tokenizer
            .encode_range(&text, Reading::Parsed, 0..text.len())
            .unwrap();
        let chat = tokenizer
            .encode_range(
                &text,
                Reading::Literals(Literals::TextWithin(&marks)),
                0..text.len(),
            )
            .unwrap();
        let bare = tokenizer.encode("", true, SpecialText::Parse).unwrap().ids;
        let full = tokenizer.encode(&text, true, SpecialText::Parse).unwrap();
        assert_eq!(full.ids.len(), whole.ids.len() + bare.len(), "{name}");
        assert_eq!(
            tokenizer.encode(&text, false, SpecialText::Parse).unwrap(),
            whole,
            "{name}"
        );
        let prompt = RenderedPrompt {
            text: text.clone(),
            content_marks: marks,
        };
        assert_eq!(tokenizer.encode_chat(&prompt).unwrap(), chat, "{name}");
        for count in [0, 1000, 40_000] {
            let encode = |wanted| {
                tokenizer
                    .encode_wanted(&text, true, SpecialText::Parse, wanted)
                    .unwrap()
            };
            let (length, count) = (full.ids.len(), count.min(full.ids.len()));
            assert_eq!(
                encode(Wanted::First(count)).ids,
                full.ids[..count],
                "{name}"
            );
            let last = encode(Wanted::Last(count));
            assert_eq!(last.ids, full.ids[length - count..], "{name}");
            assert_eq!(last.offsets, full.offsets[length - count..], "{name}");
            let last = tokenizer
                .encode_chat_wanted(&prompt, Wanted::Last(count))
                .unwrap();
            assert_eq!(
                last.ids,
                chat.ids[chat.ids.len() - count.min(chat.ids.len())..],
                "{name}"
            );
        }
    }
}

/// The demo model's and the GGUF families' own.
#[test]
fn gguf_vocabularies_have_places_too() {
    let model = &golden("tiny_byte_fallback.json")["model"]["vocab"];
    let mut tokens = vec![String::new(); model.as_object().unwrap().len()];
    for (token, id) in model.as_object().unwrap() {
        tokens[usize::try_from(id.as_u64().unwrap()).unwrap()].clone_from(token);
    }
    let kinds = (0..tokens.len()).map(|id| match id {
        0 => crate::TokenKind::Unknown,
        1 | 2 => crate::TokenKind::Control,
        3..=258 => crate::TokenKind::Byte,
        _ => crate::TokenKind::Normal,
    });
    let vocabulary = GgufVocabulary {
        model: crate::VocabularyModel::Llama,
        pre: None,
        kinds: kinds.collect(),
        scores: serde_json::from_value(golden("transformers.json")["tiny_scores"].clone()).unwrap(),
        tokens,
        merges: Vec::new(),
        bos_id: Some(1),
        eos_id: Some(2),
        end_of_turn_id: None,
        unknown_id: Some(0),
        padding_id: None,
        add_bos: None,
        add_eos: None,
        add_space_prefix: None,
        chat_template: None,
    };
    for adds in [None, Some(false)] {
        let mut vocabulary = vocabulary.clone();
        vocabulary.add_space_prefix = adds;
        let tokenizer = Tokenizer::from_gguf_vocabulary(vocabulary).unwrap();
        assert!(allows(&tokenizer, "a b", " a b"));
        for text in golden("strings.json").as_array().unwrap() {
            let text = format!("a {} b </s> c  d", text.as_str().unwrap());
            assert_eq!(
                wrong_cut(&tokenizer, &text, Reading::Parsed),
                None,
                "{text:?}"
            );
        }
    }
}
