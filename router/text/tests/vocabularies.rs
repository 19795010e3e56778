//! Tokenizers made of other formats: ids and texts are those of the formats' own libraries (goldens; script beside
//! them), for real vocabularies and for tiny ones with every switch.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headrace_text::{Detokenizer, SpecialText, Tokenizer};
use headrace_vocabulary::{convert, find};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use support::{golden, ids, real};

static GOLDEN: LazyLock<Value> = LazyLock::new(|| golden("vocabularies.json"));

/// A folder with a vocabulary and what stands beside it.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

/// As the launcher has it, with the folder's own configuration or the one that was made.
fn load(folder: &Path) -> Arc<Tokenizer> {
    let made = convert(&find(folder).unwrap()).unwrap();
    let kept = tempfile::tempdir().unwrap();
    let tokenizer = kept.path().join("tokenizer.json");
    std::fs::write(&tokenizer, &made.tokenizer).unwrap();
    let mut config = folder.join("tokenizer_config.json");
    if let Some(bytes) = made.config {
        config = kept.path().join("tokenizer_config.json");
        std::fs::write(&config, bytes).unwrap();
    }
    Arc::new(Tokenizer::from_file(&tokenizer, Some(&config)).unwrap())
}

/// Every text of the goldens to ids and back.
fn check(tokenizer: &Arc<Tokenizer>, name: &str) {
    let mut texts: Vec<String> = serde_json::from_value(GOLDEN["texts"].clone()).unwrap();
    if let Some(more) = GOLDEN[name].get("more") {
        texts.extend(serde_json::from_value::<Vec<String>>(more.clone()).unwrap());
    }
    let rows = GOLDEN[name]["ids"].as_array().unwrap();
    assert_eq!(rows.len(), texts.len());
    let mut differing = Vec::new();
    for (index, (text, row)) in texts.iter().zip(rows).enumerate() {
        let expected = ids(row);
        let encoded = tokenizer.encode(text, false, SpecialText::Parse).unwrap();
        if encoded.ids != expected && !is_tie(name, &encoded.ids, &expected) {
            differing.push(format!("{text:?}: {:?} for {expected:?}", encoded.ids));
        }
        let plain = tokenizer.encode(text, false, SpecialText::Plain).unwrap();
        let unknown = tokenizer.token_to_id("<unk>");
        let mut found = plain.ids.iter().filter(|&&id| Some(id) != unknown);
        let control = found.find(|&&id| tokenizer.is_special(id));
        assert_eq!(control, None, "{name}: {text:?}");
        let Some(back) = GOLDEN[name].get("back") else {
            continue;
        };
        if expected.iter().any(|&id| tokenizer.is_special(id)) {
            continue;
        }
        let back = back[index.to_string()].as_str().unwrap_or(text);
        let decoded = Detokenizer::decode(Arc::clone(tokenizer), &[], &expected);
        if decoded != back {
            differing.push(format!("{text:?}: {decoded:?} for {back:?}"));
        }
    }
    assert!(differing.is_empty(), "{name}\n{}", differing.join("\n"));
}

/// The same tokens in another order (`0`, `00` and `00`, `0`): to a unigram model both are as likely.
fn is_tie(name: &str, left: &[u32], right: &[u32]) -> bool {
    let sorted = |ids: &[u32]| {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids
    };
    (name.starts_with("tiny_unigram") || name == "tiny_nmt_nfkc") && sorted(left) == sorted(right)
}

#[test]
fn mistral_s_sentence_piece_models() {
    for name in ["mistral_v1", "mistral_v3", "mistral_v7"] {
        let tokenizer = load(&real(name));
        check(&tokenizer, name);
        assert_eq!(tokenizer.bos_id(), Some(1));
        assert_eq!(tokenizer.eos_ids(), [2]);
        let with_ends = tokenizer.encode("a", true, SpecialText::Parse).unwrap();
        assert_eq!((with_ends.ids.len(), with_ends.ids[0]), (2, 1));
    }
}

#[test]
fn legacy_false_puts_the_space_before_the_first_word_only() {
    let model = std::fs::read(real("mistral_v2").join("tokenizer.model")).unwrap();
    let config = json!({
        "tokenizer_class": "LlamaTokenizer", "legacy": false, "bos_token": "<s>", "eos_token": "</s>",
    })
    .to_string();
    let folder = folder(&[
        ("tokenizer.model", &model),
        ("tokenizer_config.json", config.as_bytes()),
    ]);
    check(&load(folder.path()), "mistral_v2_not_legacy");
}

#[test]
fn tekken_files() {
    for name in ["tekken_240718", "tekken_240911"] {
        let tokenizer = load(&real(name));
        check(&tokenizer, name);
        assert_eq!(tokenizer.vocab_size(), 131_072);
        assert_eq!(
            (tokenizer.bos_id(), tokenizer.eos_ids()),
            (Some(1), &[2][..])
        );
        assert_eq!(
            tokenizer.id_to_token(17).as_deref(),
            Some("[SYSTEM_PROMPT]")
        );
        assert_eq!(tokenizer.id_to_token(999).as_deref(), Some("<SPECIAL_999>"));
    }
}

#[test]
fn qwen_s_list_of_ranks() {
    let tokenizer = load(&real("qwen_tiktoken"));
    check(&tokenizer, "qwen_tiktoken");
    assert_eq!(tokenizer.token_to_id("<|im_end|>"), Some(151_645));
}

/// Meta ships the list under the name of a `SentencePiece` model; the published `tokenizer.json` is the oracle.
#[test]
fn llama_3_s_list_of_ranks() {
    let published = real("llama3_1");
    let json = std::fs::read(published.join("tokenizer.json")).unwrap();
    let file: Value = serde_json::from_slice(&json).unwrap();
    let expected = Tokenizer::from_bytes(&json).unwrap();
    let vocabulary = file["model"]["vocab"].as_object().unwrap();
    let mut lines = vec![String::new(); vocabulary.len()];
    for id in vocabulary.values() {
        let id = id.as_u64().unwrap();
        let bytes = expected.token_bytes(u32::try_from(id).unwrap());
        lines[usize::try_from(id).unwrap()] = format!("{} {id}\n", STANDARD.encode(bytes));
    }
    let config: &[u8] = br#"{"model_type": "llama"}"#;
    let list = lines.concat();
    let folder = folder(&[
        ("tokenizer.model", list.as_bytes()),
        ("config.json", config),
    ]);
    let tokenizer = load(folder.path());
    for token in file["added_tokens"].as_array().unwrap() {
        let (text, id) = (token["content"].as_str().unwrap(), token["id"].as_u64());
        assert_eq!(tokenizer.token_to_id(text).map(u64::from), id, "{text}");
    }
    let texts: Vec<String> = serde_json::from_value(GOLDEN["texts"].clone()).unwrap();
    for text in texts {
        for special in [SpecialText::Parse, SpecialText::Plain] {
            let ids = |tokenizer: &Tokenizer| tokenizer.encode(&text, true, special).unwrap().ids;
            assert_eq!(ids(&tokenizer), ids(&expected), "{text:?}");
        }
    }
}

/// Kimi's words and special tokens; the ranks are Qwen's, which are in a package.
#[test]
fn kimi_s_list_of_ranks() {
    let ranks = std::fs::read(real("qwen_tiktoken").join("qwen.tiktoken")).unwrap();
    let size = std::str::from_utf8(&ranks).unwrap().lines().count();
    let token = |text: &str, special: bool| {
        json!({
            "content": text, "special": special, "lstrip": false, "normalized": false, "rstrip": false,
            "single_word": false,
        })
    };
    let mut listed = serde_json::Map::new();
    for (place, text) in [
        (0, "[BOS]"),
        (1, "[EOS]"),
        (2, "<|im_end|>"),
        (3, "<|im_user|>"),
        (11, "<|tool_calls_section_begin|>"),
        (17, "<|im_middle|>"),
        (254, "[UNK]"),
        (255, "[PAD]"),
    ] {
        listed.insert((size + place).to_string(), token(text, place != 11));
    }
    let mut config = json!({
        "tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": listed,
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]},
        "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]", "unk_token": "[UNK]",
    });
    let with = |config: &Value| {
        folder(&[
            ("tiktoken.model", &ranks),
            ("tokenizer_config.json", config.to_string().as_bytes()),
        ])
    };
    let tokenizer = load(with(&config).path());
    check(&tokenizer, "kimi_over_qwen");
    let id = |place| u32::try_from(size + place).unwrap();
    assert_eq!(tokenizer.vocab_size(), id(256));
    assert_eq!(tokenizer.eos_ids(), [id(1)]);
    assert!(tokenizer.is_special(id(4)) && !tokenizer.is_special(id(11)));
    // Nothing is put before a text.
    let text = tokenizer.encode("a", true, SpecialText::Parse).unwrap();
    assert_eq!(text.ids.len(), 1);

    config["added_tokens_decoder"][(size + 256).to_string()] = token("<x>", true);
    let error = convert(&with(&config).path().join("tiktoken.model")).unwrap_err();
    assert!(
        error.to_string().contains("256 special tokens follow"),
        "{error}"
    );
}

/// `nmt_nfkc`, T5's rules for letters: the package's own file, put into a small model without them.
#[test]
fn t5_s_rules_for_letters() {
    let rules = std::fs::read(real("nmt_nfkc").join("nmt_nfkc.bin")).unwrap();
    let model = GOLDEN["tiny_nmt_nfkc"]["model"].as_str().unwrap();
    let mut model = STANDARD.decode(model).unwrap();
    // A message's parts add up: another `normalizer_spec` (3) with `precompiled_charsmap` (2) alone.
    let length = |bytes: usize| -> Vec<u8> {
        let low = |shift: usize| u8::try_from(bytes >> shift & 0x7F).unwrap();
        vec![low(0) | 0x80, low(7) | 0x80, low(14)]
    };
    let inner = [&[0x12][..], &length(rules.len()), &rules].concat();
    model.extend([0x1A]);
    model.extend(length(inner.len()));
    model.extend(inner);
    let folder = folder(&[("tokenizer.model", &model)]);
    let tokenizer = load(folder.path());
    check(&tokenizer, "tiny_nmt_nfkc");
    // Every token is where it came from, also after letters that are dropped, joined or drawn apart.
    for text in [
        "\u{200b}a",
        "\u{7}\u{7}",
        "\u{ff76}\u{ff9e}a",
        "\u{fb03}a",
        "\u{200b}\u{fb01} b\u{200b}",
    ] {
        let encoding = tokenizer.encode(text, false, SpecialText::Parse).unwrap();
        for (start, end) in encoding.offsets {
            assert!(text.get(start..end).is_some(), "{text:?}: {start}..{end}");
        }
        if let Some(place) = text.find('a') {
            let last = tokenizer.encode(text, false, SpecialText::Parse).unwrap();
            assert_eq!(last.offsets.last(), Some(&(place, place + 1)), "{text:?}");
        }
    }
}

#[test]
fn tiny_models_with_every_switch() {
    for name in [
        "tiny_unigram",
        "tiny_unigram_bytes",
        "tiny_bpe",
        "tiny_bpe_bytes",
    ] {
        let model = STANDARD
            .decode(GOLDEN[name]["model"].as_str().unwrap())
            .unwrap();
        let folder = folder(&[("tokenizer.model", &model)]);
        check(&load(folder.path()), name);
    }
}

#[test]
fn files_beside_a_model_name_its_tokens() {
    let model = STANDARD
        .decode(GOLDEN["tiny_bpe_bytes"]["model"].as_str().unwrap())
        .unwrap();
    let names: &[u8] = br#"{"eos_token": {"content": "<|im_end|>"}, "pad_token": "[PAD]"}"#;
    let size = load(folder(&[("tokenizer.model", &model)]).path()).vocab_size();
    let added = format!(r#"{{"[PAD]": {size}, "<tool>": {}}}"#, size + 1);
    let folder = folder(&[
        ("tokenizer.model", &model),
        ("special_tokens_map.json", names),
        ("added_tokens.json", added.as_bytes()),
    ]);
    let tokenizer = load(folder.path());
    let end = tokenizer.token_to_id("<|im_end|>").unwrap();
    assert_eq!(tokenizer.eos_ids(), [end]);
    assert_eq!(tokenizer.token_to_id("[PAD]"), Some(size));
    assert!(tokenizer.is_special(size) && !tokenizer.is_special(size + 1));
    let ids = tokenizer
        .encode("a<tool>", false, SpecialText::Parse)
        .unwrap()
        .ids;
    assert_eq!(ids.last(), Some(&(size + 1)));
}
