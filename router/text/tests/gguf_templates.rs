//! Chat templates out of GGUF metadata: the same prompts as with the files beside a checkpoint.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail as tests do"
)]

#[path = "../../../launcher/checkpoint/tests/fixtures/mod.rs"]
mod fixtures;
mod support;

use fixtures::GgufBuilder;
use headrace_text::{ChatTemplate, RenderOptions, TemplateSources, Tokenizer};
use serde_json::{Value, json};
use std::path::Path;
use support::real_templates;

/// Four tokens, three of them named, and this template.
fn from_gguf(folder: &Path, template: &str) -> ChatTemplate {
    let path = folder.join("model.gguf");
    let numbers = |values: [u32; 4]| values.map(u32::to_le_bytes).concat();
    let bytes = GgufBuilder::new()
        .string("general.architecture", "llama")
        .string("tokenizer.ggml.model", "llama")
        .strings("tokenizer.ggml.tokens", &["<unk>", "<s>", "</s>", "a"])
        .array("tokenizer.ggml.scores", 6, 4, &[0; 16])
        .array("tokenizer.ggml.token_type", 5, 4, &numbers([2, 3, 3, 1]))
        .u32("tokenizer.ggml.unknown_token_id", 0)
        .u32("tokenizer.ggml.bos_token_id", 1)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .u32("tokenizer.ggml.padding_token_id", 2)
        .string("tokenizer.chat_template", template)
        .bytes();
    std::fs::write(&path, bytes).unwrap();
    let tokenizer = Tokenizer::from_gguf(&path).unwrap();
    let sources = TemplateSources {
        chat_template: None,
        tokenizer_config: None,
    };
    ChatTemplate::load(&sources, &tokenizer).unwrap()
}

/// A checkpoint's folder with the same named tokens, and this template beside them.
fn from_files(folder: &Path, template: &str) -> ChatTemplate {
    let config = folder.join("tokenizer_config.json");
    let named = json!({
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>",
    });
    std::fs::write(&config, named.to_string()).unwrap();
    let jinja = folder.join("chat_template.jinja");
    std::fs::write(&jinja, template).unwrap();
    let vocabulary =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny_byte_fallback.json");
    let tokenizer = Tokenizer::from_file(&vocabulary, Some(&config)).unwrap();
    let sources = TemplateSources {
        chat_template: Some(jinja),
        tokenizer_config: Some(config),
    };
    ChatTemplate::load(&sources, &tokenizer).unwrap()
}

fn chats() -> Vec<Vec<Value>> {
    let user = json!({"role": "user", "content": " Hi  there\n"});
    let assistant = json!({"role": "assistant", "content": "Hello!"});
    let system = json!({"role": "system", "content": "Be brief."});
    vec![
        vec![user.clone()],
        vec![system, user.clone()],
        vec![user.clone(), assistant.clone(), user.clone()],
        vec![user, assistant],
    ]
}

/// Bug case 4.12, for 70 real templates: the source changes neither what is shown nor what is adapted. That the files' side
/// equals transformers is shown by `real_templates.rs`.
#[test]
fn case_4_12_a_template_out_of_a_gguf_file_gives_the_prompts_of_the_one_beside_a_checkpoint() {
    let Some(paths) = real_templates() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut shown = 0;
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let (gguf, files) = (
            from_gguf(folder.path(), &text),
            from_files(folder.path(), &text),
        );
        assert_eq!(
            gguf.adaptations(),
            files.adaptations(),
            "{}",
            path.display()
        );
        assert_eq!(
            gguf.shows_tools(),
            files.shows_tools(),
            "{}",
            path.display()
        );
        for messages in chats() {
            let prompt = |template: &ChatTemplate| {
                let messages = template
                    .adapt(&messages, false)
                    .map_err(|error| error.to_string())?;
                let options = RenderOptions {
                    add_generation_prompt: true,
                    ..RenderOptions::default()
                };
                let rendered = template.render(&messages, &options);
                rendered
                    .map(|prompt| prompt.text)
                    .map_err(|error| error.to_string())
            };
            let (from_gguf, from_files) = (prompt(&gguf), prompt(&files));
            assert_eq!(from_gguf, from_files, "{}", path.display());
            shown += usize::from(from_gguf.is_ok());
        }
    }
    assert!(shown > 200, "{shown} of {} prompts", paths.len() * 4);
}
