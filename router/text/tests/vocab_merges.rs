//! `vocab.json` with `merges.txt`: ids, texts, named and added tokens are transformers' for the same folder (goldens;
//! script beside them), and those of a published `tokenizer.json` for the vocabulary that was made from it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use headrace_text::{Detokenizer, SpecialText, Tokenizer};
use headrace_vocabulary::{convert, find};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use support::{golden, ids, real};

/// As the launcher has it: the folder's configuration where conversion has nothing to say.
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

fn write(folder: &Path, name: &str, content: &Value) {
    std::fs::write(folder.join(name), content.to_string()).unwrap();
}

/// A folder of a case: the vocabulary and what stands beside it.
fn folder(golden: &Value, case: &Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut vocab = golden["vocab"].as_object().unwrap().clone();
    for token in case["more"].as_array().unwrap() {
        let size = vocab.len();
        vocab.insert(token.as_str().unwrap().to_owned(), size.into());
    }
    write(folder.path(), "vocab.json", &Value::Object(vocab));
    let merges: Vec<&str> = golden["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    let merges = format!("#version: 0.2\n{}\n", merges.join("\n"));
    std::fs::write(folder.path().join("merges.txt"), merges).unwrap();
    for (name, content) in case["files"].as_object().unwrap() {
        write(folder.path(), name, content);
    }
    folder
}

/// Every difference to what transformers says.
fn differences(tokenizer: &Arc<Tokenizer>, case: &Value, texts: &[String]) -> Vec<String> {
    let mut differing = Vec::new();
    for (index, (text, row)) in texts
        .iter()
        .zip(case["ids"].as_array().unwrap())
        .enumerate()
    {
        let expected = ids(row);
        let found = tokenizer.encode(text, false, SpecialText::Parse).unwrap();
        if found.ids != expected {
            differing.push(format!("{text:?}: {:?} for {expected:?}", found.ids));
        }
        let back = case["back"][index.to_string()].as_str().unwrap_or(text);
        let decoded = Detokenizer::decode(Arc::clone(tokenizer), &[], &expected);
        if decoded != back {
            differing.push(format!("{text:?}: {decoded:?} for {back:?}"));
        }
        let plain = tokenizer.encode(text, false, SpecialText::Plain).unwrap();
        if let Some(id) = plain.ids.iter().find(|&&id| tokenizer.is_special(id)) {
            differing.push(format!("{text:?}: the special {id} as text"));
        }
    }
    let around = &case["around"];
    let expected = [ids(&around[0]), ids(&around[1])];
    let inner = tokenizer.encode("a", false, SpecialText::Parse).unwrap();
    let all = tokenizer.encode("a", true, SpecialText::Parse).unwrap();
    if all.ids
        != [&expected[0], &inner.ids, &expected[1]]
            .map(Vec::as_slice)
            .concat()
    {
        differing.push(format!("ends {:?} for {expected:?}", all.ids));
    }
    for (text, row) in case["added"].as_object().unwrap() {
        let id = u32::try_from(row[0].as_u64().unwrap()).unwrap();
        let found = tokenizer.token_to_id(text);
        if found != Some(id) || tokenizer.is_special(id) != row[1].as_bool().unwrap() {
            differing.push(format!("{text:?} is {found:?}, not {row}"));
        }
    }
    for (key, text) in case["named"].as_object().unwrap() {
        let found = tokenizer.named_tokens().get(key).map(String::as_str);
        if found != text.as_str() {
            differing.push(format!("{key} is {found:?}, not {text}"));
        }
    }
    differing
}

#[test]
fn folders_of_every_known_class_are_read_as_transformers_reads_them() {
    let golden = golden("vocab_merges.json");
    let texts: Vec<String> = serde_json::from_value(golden["texts"].clone()).unwrap();
    let cases = golden["cases"].as_object().unwrap();
    assert!(cases.len() >= 10);
    for (name, case) in cases {
        let folder = folder(&golden, case);
        let differing = differences(&load(folder.path()), case, &texts);
        assert!(differing.is_empty(), "{name}\n{}", differing.join("\n"));
    }
}

/// The same tokens as ids and merges: the published file is the oracle.
#[test]
fn qwen_s_published_vocabulary_taken_apart_and_put_together() {
    let published = real("qwen3");
    let json = std::fs::read(published.join("tokenizer.json")).unwrap();
    let config: Value =
        serde_json::from_slice(&std::fs::read(published.join("tokenizer_config.json")).unwrap())
            .unwrap();
    let file: Value = serde_json::from_slice(&json).unwrap();
    let expected = Tokenizer::from_bytes(&json).unwrap();
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "vocab.json", &file["model"]["vocab"]);
    write(folder.path(), "tokenizer_config.json", &config);
    let merges: Vec<String> = file["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| match pair {
            Value::String(pair) => pair.clone(),
            pair => format!(
                "{} {}",
                pair[0].as_str().unwrap(),
                pair[1].as_str().unwrap()
            ),
        })
        .collect();
    std::fs::write(folder.path().join("merges.txt"), merges.join("\n")).unwrap();
    let tokenizer = load(folder.path());
    assert_eq!(tokenizer.vocab_size(), expected.vocab_size());
    for token in file["added_tokens"].as_array().unwrap() {
        let (text, id) = (token["content"].as_str().unwrap(), token["id"].as_u64());
        let found = tokenizer.token_to_id(text);
        assert_eq!(found.map(u64::from), id, "{text}");
        let is_special = tokenizer.is_special(found.unwrap());
        assert_eq!(Some(is_special), token["special"].as_bool(), "{text}");
    }
    let golden = golden("vocabularies.json");
    let texts: Vec<String> = serde_json::from_value(golden["texts"].clone()).unwrap();
    for text in texts {
        for special in [SpecialText::Parse, SpecialText::Plain] {
            let ids = |tokenizer: &Tokenizer| tokenizer.encode(&text, true, special).unwrap().ids;
            assert_eq!(ids(&tokenizer), ids(&expected), "{text:?}");
        }
    }
}

/// What conversion says of a folder that is not converted.
fn refusal(files: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let error = convert(&find(folder.path()).unwrap()).unwrap_err();
    let line = error.to_string();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

type File = (&'static str, &'static str);

const VOCAB: File = ("vocab.json", r#"{"a": 0, "b": 1, "ab": 2}"#);
const MERGES: File = ("merges.txt", "a b\n");
const GPT2: File = (
    "tokenizer_config.json",
    r#"{"tokenizer_class": "GPT2Tokenizer"}"#,
);

fn assert_refused(cases: &[(&[File], &[&str])]) {
    for (files, parts) in cases {
        let line = refusal(files);
        for part in *parts {
            assert!(line.contains(part), "{line:?} lacks {part:?}");
        }
    }
}

#[test]
fn what_is_not_known_is_refused_by_file_and_key() {
    assert_refused(&[
        (
            &[VOCAB][..],
            &["vocab.json", "merges.txt is not beside it"][..],
        ),
        (
            &[VOCAB, MERGES],
            &["`tokenizer_class`, which no file names"],
        ),
        (
            &[
                VOCAB,
                MERGES,
                ("config.json", r#"{"tokenizer_class": "CLIPTokenizerFast"}"#),
            ],
            &["\"CLIPTokenizer\" is of no known class", "Qwen2Tokenizer"],
        ),
        (
            &[
                VOCAB,
                MERGES,
                (
                    "tokenizer_config.json",
                    r#"{"tokenizer_class": "X", "auto_map": {"AutoTokenizer": ["x.X", null]}}"#,
                ),
            ],
            &["\"X\" is the repository's own code"],
        ),
    ]);
}

#[test]
fn vocabularies_and_merges_that_do_not_fit_together_are_refused() {
    assert_refused(&[
        (
            &[VOCAB, GPT2, ("merges.txt", "#version: 0.2\na b\na b c\n")][..],
            &["merges.txt: line 3 is not two tokens"][..],
        ),
        (
            &[VOCAB, GPT2, ("merges.txt", "b a\n")],
            &["merges.txt: line 1 needs the token \"ba\""],
        ),
        (
            &[("vocab.json", r#"{"a": 0, "b": 2}"#), GPT2, MERGES],
            &["\"b\" has the id 2"],
        ),
        (
            &[("vocab.json", r#"{"a": 0, "b": 0}"#), GPT2, MERGES],
            &["\"b\" has the id 0"],
        ),
        (
            &[("vocab.json", r#"{"a": -1}"#), GPT2, MERGES],
            &["\"a\" has the id -1"],
        ),
        (&[("vocab.json", "{}"), GPT2, MERGES], &["0 tokens"]),
        (
            &[("vocab.json", "[]"), GPT2, MERGES],
            &["not a JSON object"],
        ),
        (
            &[VOCAB, GPT2, MERGES, ("added_tokens.json", r#"{"<x>": 7}"#)],
            &["\"<x>\" has the id 7, and gets 3"],
        ),
    ]);
}

#[test]
fn named_tokens_that_are_none_are_refused_by_file_and_key() {
    assert_refused(&[
        (
            &[
                VOCAB,
                MERGES,
                (
                    "tokenizer_config.json",
                    r#"{"tokenizer_class": "RobertaTokenizer", "sep_token": null}"#,
                ),
            ][..],
            &["`cls_token` or `sep_token` is null"][..],
        ),
        (
            &[
                VOCAB,
                MERGES,
                (
                    "tokenizer_config.json",
                    r#"{"tokenizer_class": "GPT2Tokenizer", "eos_token": 2}"#,
                ),
            ],
            &["tokenizer_config.json", "`eos_token` is neither"],
        ),
        (
            &[
                VOCAB,
                GPT2,
                MERGES,
                ("special_tokens_map.json", r#"{"pad_token": [1]}"#),
            ],
            &["special_tokens_map.json", "`pad_token` is neither"],
        ),
    ]);
}

/// Tokens that only the class knows are in the configuration that is made, and nothing else of the folder's is lost.
#[test]
fn a_configuration_without_named_tokens_gets_those_of_its_class() {
    let golden = golden("vocab_merges.json");
    let case = json!({"more": ["<|endoftext|>"], "files": {"tokenizer_config.json": {
        "tokenizer_class": "GPT2Tokenizer", "unk_token": null, "chat_template": "{{ messages }}",
    }}});
    let folder = folder(&golden, &case);
    let made = convert(&folder.path().join("vocab.json")).unwrap();
    let config: Map<String, Value> = serde_json::from_slice(&made.config.unwrap()).unwrap();
    assert_eq!(config["chat_template"], "{{ messages }}");
    assert_eq!(config["eos_token"], "<|endoftext|>");
    assert_eq!(config["unk_token"], Value::Null);
}
