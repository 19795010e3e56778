//! A folder whose tokenizer is in another format: made into `tokenizer.json` once, kept, and used.
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]

mod stage;

use nix::sys::signal::Signal;
use stage::Stage;
use std::path::{Path, PathBuf};

/// A `SentencePiece` model of four pieces: text, score, type.
fn sentence_piece() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (text, score, kind) in [
        ("<unk>", 0.0_f32, 2),
        ("<s>", 0.0, 3),
        ("</s>", 0.0, 3),
        ("a", -1.0, 1),
    ] {
        let mut piece = vec![0x0A, u8::try_from(text.len()).unwrap()];
        piece.extend(text.as_bytes());
        piece.push(0x15);
        piece.extend(score.to_le_bytes());
        piece.extend([0x18, kind]);
        bytes.extend([0x0A, u8::try_from(piece.len()).unwrap()]);
        bytes.extend(piece);
    }
    // The trainer's part: BPE.
    bytes.extend([0x12, 2, 0x18, 2]);
    bytes
}

/// Starts the launcher, and ends it once the router heard of the model: the files of its tokenizer, and the log.
fn serve(stage: &Stage, model: &Path) -> (PathBuf, PathBuf, String) {
    let _ = std::fs::remove_file(stage.path("heard"));
    let mut running = stage.start(&["--model-id", model.to_str().unwrap()], &[]);
    running.wait_until("the model", |stage| !stage.heard_of("model").is_empty());
    let document = stage.heard_of("model").pop().unwrap();
    running.signal(Signal::SIGTERM);
    running.wait();
    let path = |pointer| PathBuf::from(document.pointer(pointer).unwrap().as_str().unwrap());
    let log = stage.read("stdout") + &stage.read("stderr");
    (path("/tokenizer/path"), path("/tokenizer_config"), log)
}

#[test]
fn a_model_without_tokenizer_json_is_converted_once() {
    let stage = Stage::new();
    let model = stage.model();
    std::fs::remove_file(model.join("tokenizer.json")).unwrap();
    std::fs::write(model.join("tokenizer.model"), sentence_piece()).unwrap();
    let (tokenizer, config, log) = serve(&stage, &model);
    assert!(log.contains("tokenizer.model was converted to"), "{log}");
    assert!(
        tokenizer.starts_with(stage.path(".cache/headrace/tokenizers")),
        "{tokenizer:?}"
    );
    let read = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    assert_eq!(read(&tokenizer)["model"]["vocab"]["a"], 3);
    assert_eq!(read(&config)["eos_token"], "</s>");
    let written = std::fs::metadata(&tokenizer).unwrap().modified().unwrap();

    let (again, _, log) = serve(&stage, &model);
    assert_eq!(again, tokenizer);
    assert!(log.contains("was converted before"), "{log}");
    assert_eq!(
        std::fs::metadata(&again).unwrap().modified().unwrap(),
        written
    );

    // What stands beside it has a say, and what the folder's own configuration lacks is added to it.
    let own = model.join("tokenizer_config.json");
    std::fs::write(&own, r#"{"legacy": false, "pad_token": null}"#).unwrap();
    let (other, config, _) = serve(&stage, &model);
    assert_ne!(other, tokenizer);
    assert_eq!(read(&other)["pre_tokenizer"]["prepend_scheme"], "first");
    assert_eq!(
        read(&config),
        serde_json::json!({
            "legacy": false, "pad_token": null, "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>",
        })
    );

    // A configuration that lacks nothing is the one that is used.
    std::fs::write(&own, read(&config).to_string()).unwrap();
    let (_, config, _) = serve(&stage, &model);
    assert_eq!(config, own);
    let (_, config, log) = serve(&stage, &model);
    assert!(log.contains("was converted before"), "{log}");
    assert_eq!(config, own);
    let kept = std::fs::read_dir(stage.path(".cache/headrace/tokenizers")).unwrap();
    assert_eq!(kept.count(), 3, "nothing half-done is left");
}

/// The other layouts come the same way: the ids of `vocab.json` end up in the model of the made file.
#[test]
fn vocab_json_and_merges_txt_are_converted() {
    let stage = Stage::new();
    let model = stage.model();
    std::fs::remove_file(model.join("tokenizer.json")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(model.join(name), text).unwrap();
    write(
        "vocab.json",
        r#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}"#,
    );
    write("merges.txt", "#version: 0.2\na b\n");
    write(
        "tokenizer_config.json",
        r#"{"tokenizer_class": "GPT2Tokenizer"}"#,
    );
    let (tokenizer, config, log) = serve(&stage, &model);
    assert!(log.contains("vocab.json was converted to"), "{log}");
    let read = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    };
    assert_eq!(read(&tokenizer)["model"]["vocab"]["ab"], 2);
    assert_eq!(read(&config)["eos_token"], "<|endoftext|>");

    // Other merges are another tokenizer.
    write("merges.txt", "");
    let (other, _, _) = serve(&stage, &model);
    assert_ne!(other, tokenizer);
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let stage = Stage::new();
    let model = stage.model();
    std::fs::remove_file(model.join("tokenizer.json")).unwrap();
    std::fs::write(model.join("tokenizer.model"), sentence_piece()).unwrap();
    // A file where a directory should be: root may write into any directory.
    std::fs::write(stage.path("cache"), "").unwrap();
    let cache = stage.path("cache");
    let ended = stage.run(
        &["--model-id", model.to_str().unwrap()],
        &[("XDG_CACHE_HOME", cache.to_str().unwrap())],
    );
    assert_eq!(ended.code, Some(1));
    assert!(
        ended.stderr.contains("set XDG_CACHE_HOME"),
        "{}",
        ended.stderr
    );
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
}
