//! What real templates leave of the bounds, and who needs a turn.

use super::{ChatTemplate, Limits, RenderOptions};
use crate::{TemplateError, Tokenizer};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Some templates fail without names of tokens.
fn tokenizer() -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny_byte_fallback.json");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tokenizer_config.json");
    let named =
        json!({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>"});
    std::fs::write(&config, named.to_string()).unwrap();
    Tokenizer::from_file(&path, Some(&config)).unwrap()
}

/// Those of `make test-data`; nothing where they are not there.
fn real_templates() -> Vec<PathBuf> {
    let folder = match std::env::var_os("HEADRACE_TEST_DATA") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-data"),
    };
    let entries = std::fs::read_dir(folder.join("templates"));
    let paths = entries
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "jinja"))
        .collect()
}

fn chat(num_messages: usize, bytes: usize) -> Vec<Value> {
    let roles = ["user", "assistant"].into_iter().cycle();
    let message = |role| json!({"role": role, "content": "word ".repeat(bytes / 5)});
    roles.map(message).take(num_messages).collect()
}

/// Whether a bound ended it; some templates want other chats.
fn is_bound<T>(result: &Result<T, TemplateError>) -> bool {
    use TemplateError::{NeedsMemory, OutOfFuel, TooLong};
    matches!(result, Err(OutOfFuel | TooLong { .. } | NeedsMemory { .. }))
}

#[test]
fn real_templates_leave_three_quarters_of_instructions_and_reads() {
    let tokenizer = tokenizer();
    let options = RenderOptions::default();
    let mut failed = Vec::new();
    for path in real_templates() {
        let text = std::fs::read_to_string(&path).unwrap();
        let template = ChatTemplate::compile(&text, &tokenizer).unwrap();
        for (num_messages, bytes) in [(3, 10), (1, 1 << 20), (301, 3000), (2001, 100)] {
            let messages = chat(num_messages, bytes);
            let quarter = template.render_within(&messages, &options, |limits, _| Limits {
                fuel: limits.fuel / 4,
                reads: limits.reads / 4,
                ..limits
            });
            let beside = template.render_beside_others(&messages, &options);
            if is_bound(&quarter) || (is_bound(&beside) && num_messages <= 3) {
                failed.push(format!("{}: {num_messages} of {bytes}", path.display()));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn what_builds_much_says_so_and_is_rendered_in_its_turn() {
    let text = "{% set ns = namespace(x='') %}{% for i in range(4) %}{% set ns.x = ns.x ~ ('y' * 4000000) %}{% endfor %}\
                {{ ns.x | length }}";
    let template = ChatTemplate::compile(text, &tokenizer()).unwrap();
    let messages = chat(1, 10);
    let options = RenderOptions::default();
    match template.render_beside_others(&messages, &options) {
        Err(TemplateError::NeedsMemory { bytes }) => assert_eq!(bytes, (256 << 20) + 20),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        template.render(&messages, &options).unwrap().text,
        "16000000"
    );
    // For a longer chat it is what is due.
    let messages = chat(1, 4 << 20);
    assert_eq!(
        template
            .render_beside_others(&messages, &options)
            .unwrap()
            .text,
        "16000000"
    );
    // What no memory helps is told at once.
    let endless = "{% set ns = namespace(x='y' * 10) %}{% for i in range(40) %}{% set ns.x = ns.x * 9999999999 %}{% endfor %}";
    let template = ChatTemplate::compile(endless, &tokenizer()).unwrap();
    let error = template
        .render_beside_others(&messages, &options)
        .unwrap_err();
    assert!(matches!(error, TemplateError::TooLong { .. }), "{error:?}");
}

/// The sums bound what is done, and not how long it takes.
#[test]
fn a_rendering_whose_time_is_up_ends() {
    let text =
        "{% for i in range(9999) %}{% if 'x' in messages[0].content %}{% endif %}{% endfor %}done";
    let template = ChatTemplate::compile(text, &tokenizer()).unwrap();
    let render = |time| {
        let bound = |limits, _| Limits { time, ..limits };
        template.render_within(&chat(1, 10), &RenderOptions::default(), bound)
    };
    let second = std::time::Duration::from_secs(1);
    assert_eq!(render(60 * second).unwrap().text, "done");
    let error = render(std::time::Duration::ZERO).unwrap_err();
    assert!(matches!(error, TemplateError::OutOfFuel), "{error:?}");
}
