//! Prompts with a gap over real vocabularies: the ids are those of the models' own tools (golden; script beside it).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

mod support;

use headrace_text::{Infill, Tokenizer};
use headrace_vocabulary::{convert, find};
use std::path::Path;
use support::{golden, ids, real};

/// Its own tokenizer.json, or the one that the launcher makes.
fn load(folder: &Path) -> Tokenizer {
    let own = folder.join("tokenizer.json");
    if own.exists() {
        let config = folder.join("tokenizer_config.json");
        return Tokenizer::from_file(&own, Some(&config)).unwrap();
    }
    let made = convert(&find(folder).unwrap()).unwrap();
    let kept = tempfile::tempdir().unwrap();
    let path = |name: &str| kept.path().join(name);
    std::fs::write(path("tokenizer.json"), &made.tokenizer).unwrap();
    std::fs::write(path("config.json"), made.config.unwrap()).unwrap();
    Tokenizer::from_file(&path("tokenizer.json"), Some(&path("config.json"))).unwrap()
}

fn check(name: &str) {
    let golden = golden("infill.json");
    let rows = golden[name].as_array().unwrap();
    assert!(rows.len() >= 10);
    let tokenizer = load(&real(name));
    let infill = Infill::find(&tokenizer, u32::MAX).unwrap_or_else(|| panic!("{name}"));
    for row in rows {
        let (prefix, suffix) = (
            row["prefix"].as_str().unwrap(),
            row["suffix"].as_str().unwrap(),
        );
        let found = infill.encode(&tokenizer, (prefix, suffix), true).unwrap();
        assert_eq!(found, ids(&row["ids"]), "{name}: {prefix:?} {suffix:?}");
    }
}

#[test]
fn qwens_tokens_stand_as_its_documentation_has_them() {
    check("qwen3");
}

#[test]
fn mistrals_sentencepiece_is_as_in_mistral_common() {
    check("mistral_v3");
}

#[test]
fn mistrals_tekken_is_as_in_mistral_common() {
    check("tekken_240911");
}
