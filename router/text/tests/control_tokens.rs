//! Chats over real vocabularies: ids are those of transformers, and letters of control tokens in contents stay letters.
//! `make test-data` fetches the vocabularies; without them these tests say by name what was skipped.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests fail as tests do, and say what was compared"
)]

mod support;

use headrace_text::{ChatTemplate, RenderOptions, SpecialText, TemplateSources, Tokenizer};
use serde_json::{Value, json};
use std::path::Path;
use support::oracle::{ask_script, python};
use support::{ids, real_tokenizer, texts};

/// Where a model has none: Llama 2's way.
const TEMPLATE: &str = "{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }} </s>\
    {% else %}<s>[INST] {{ m.content | trim }} [/INST]{% endif %}{% endfor %}";

/// Byte fallback, byte level, and a vocabulary of 128,000.
const TOKENIZERS: [&str; 3] = ["llama2", "qwen3", "llama3_1"];

/// In these the letters stand.
const SETTINGS: [&str; 6] = ["%", "a%b", " % ", "%%", "x\n%\n", "1%2 % ü%中"];

struct Model {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    folder: std::path::PathBuf,
    /// Text and id of added tokens.
    added: Vec<(String, u32)>,
}

fn model(name: &str) -> Option<Model> {
    let folder = real_tokenizer(name)?;
    let read = |file: &str| -> Value {
        serde_json::from_slice(&std::fs::read(folder.join(file)).unwrap()).unwrap()
    };
    let config = folder.join("tokenizer_config.json");
    let tokenizer = Tokenizer::from_file(&folder.join("tokenizer.json"), Some(&config)).unwrap();
    let own = read("tokenizer_config.json")["chat_template"].clone();
    let template = if own.is_null() {
        ChatTemplate::compile(TEMPLATE, &tokenizer).unwrap()
    } else {
        let sources = TemplateSources {
            chat_template: None,
            tokenizer_config: Some(config),
        };
        ChatTemplate::load(&sources, &tokenizer).unwrap()
    };
    let added = read("tokenizer.json")["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| {
            let content = token["content"].as_str().unwrap().to_owned();
            let id = u32::try_from(token["id"].as_u64().unwrap()).unwrap();
            (content, id)
        })
        // Reserved ones are all alike.
        .filter(|(content, id)| !content.contains("reserved_special") || id % 50 == 0)
        .collect();
    Some(Model {
        tokenizer,
        template,
        folder,
        added,
    })
}

impl Model {
    fn encode(&self, messages: &[Value]) -> Vec<u32> {
        let options = RenderOptions {
            add_generation_prompt: true,
            ..RenderOptions::default()
        };
        let prompt = self.template.render(messages, &options).unwrap();
        self.tokenizer.encode_chat(&prompt).unwrap().ids
    }

    fn ask(&self, python: &Path, chats: &[(Vec<Value>, bool)]) -> Vec<Value> {
        let chats: Vec<Value> = chats
            .iter()
            .map(|(messages, guarded)| json!({"messages": messages, "guarded": guarded}))
            .collect();
        let question = json!({"folder": self.folder, "template": TEMPLATE, "chats": chats});
        ask_script(python, "encode_chats.py", &question)
    }

    /// Compares all, and says where the first differs.
    fn compare(&self, name: &str, chats: &[(Vec<Value>, bool)], python: &Path) {
        for ((messages, _), right) in chats.iter().zip(self.ask(python, chats)) {
            assert_eq!(
                self.encode(messages),
                ids(&right),
                "{name}: {}",
                Value::from(messages.clone())
            );
        }
        eprintln!("{name}: {} chats equal", chats.len());
    }
}

#[test]
fn plain_chats_have_the_ids_of_transformers() {
    let Some(python) = python() else { return };
    for name in TOKENIZERS {
        let Some(model) = model(name) else { continue };
        let is_plain = |text: &String| !model.added.iter().any(|(added, _)| text.contains(added));
        let chats: Vec<(Vec<Value>, bool)> = texts()
            .into_iter()
            .filter(is_plain)
            .map(|text| {
                let messages = vec![
                    json!({"role": "user", "content": text}),
                    json!({"role": "assistant", "content": "yes"}),
                    json!({"role": "user", "content": format!("  {text}\n<b> | <|x|> [INST]")}),
                ];
                (messages, false)
            })
            .collect();
        assert!(chats.len() > 50);
        model.compare(name, &chats, &python);
    }
}

#[test]
fn only_control_tokens_of_contents_are_broken_apart() {
    let Some(python) = python() else { return };
    for name in TOKENIZERS {
        let Some(model) = model(name) else { continue };
        let mut chats = Vec::new();
        for (added, _) in &model.added {
            for setting in SETTINGS {
                let message = json!({"role": "user", "content": setting.replace('%', added)});
                chats.push((vec![message], true));
            }
        }
        model.compare(name, &chats, &python);
    }
}

#[test]
fn no_added_token_comes_out_of_a_content() {
    for name in TOKENIZERS {
        let Some(model) = model(name) else { continue };
        let count = |ids: &[u32], wanted: u32| ids.iter().filter(|id| **id == wanted).count();
        for role in ["user", "system"] {
            let chat = |content: &str| {
                vec![
                    json!({"role": role, "content": content}),
                    json!({"role": "user", "content": "go"}),
                ]
            };
            let plain = model.encode(&chat("x"));
            for (added, id) in &model.added {
                for setting in SETTINGS {
                    let ids = model.encode(&chat(&setting.replace('%', added)));
                    assert_eq!(
                        count(&ids, *id),
                        count(&plain, *id),
                        "{name} {role} {setting} {added}"
                    );
                }
            }
        }
    }
}

#[test]
fn raw_prompts_parse_control_tokens() {
    for name in TOKENIZERS {
        let Some(model) = model(name) else { continue };
        for (added, id) in &model.added {
            let text = format!("a{added}b");
            let parsed = model
                .tokenizer
                .encode(&text, false, SpecialText::Parse)
                .unwrap();
            assert!(parsed.ids.contains(id), "{name} {added}");
        }
    }
}
