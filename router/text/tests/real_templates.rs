//! Real chat templates against transformers. They are fetched by `make test-data`, as is the Python that answers;
//! without them these tests say by name that they were skipped.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "helpers of tests fail as tests do, and say what was compared"
)]

mod support;

use headrace_text::{ChatTemplate, RenderOptions, TemplateError, Tokenizer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use support::oracle::{ask, difference, is_right, python};
use support::real_templates;

const DOCS_HEAD: &str = "\
# What is adapted for a chat template

Models differ in the shape of messages that their chat templates take. At load headrace renders small conversations and
finds out what the template wants; each request's messages are then brought into that shape. A client sends what
OpenAI's API says, whatever the model.

Written by `HEADRACE_REGENERATE=1 cargo test -p headrace-text --test real_templates` over 70 real templates (`make
test-data` fetches them; they are not part of headrace). Plain chats of all of them are rendered equal to
`transformers`.

- text as parts: a content is sent as `[{\"type\": \"text\", …}]`; otherwise text parts are joined to one text.
- null content as empty text: the template fails on `null` or prints `None`.
- arguments as JSON text: of past tool calls; otherwise they are parsed to an object.
- developer as system: the role `developer` is lost or refused.
- tool ids: the form that the model was trained on, made from the client's ids.

## Bounds

A template is a program. Whatever it says, the server goes on, and other chats do:

- At load: 1 MiB of text, names of 256 bytes, 1,000 levels of blocks, brackets, operators and `elif`s within each other (the
  deepest of the 70 has 28). More is one line that names the file and the line.
- Each rendering: 5 million instructions, and 50,000 for each message (100 million in all); 128 MiB that operations read
  over again, and 256 bytes for each byte of the messages and each pair of messages (4 GiB in all); 256 MiB that it builds (2
  GiB for long chats); 32 MiB in one text, a million items in one list, 128 lists or objects within each other, 100
  frames of loops, blocks and macros; five seconds of the thread's processor time, looked at wherever something is read or
  built. More is a template error of that request. (A chat that holds letters of control tokens is rendered twice.) The 70
  leave at least three quarters of the instructions and the reads, for 2,001 messages too.
- Memory: any number of chats are rendered at once with 8 MiB, and 16 bytes for each byte of the messages, each. What
  builds more is stopped, waits for its turn, and is rendered anew: of such renderings as many run at once as may build
  512 MiB together, and one that may build more runs alone.
- Measured (30 November 2026, processor time of one thread, `cargo run -p headrace-text --example wasteful_templates`): of 75
  templates that do nothing but waste time none kept a thread longer than 2.0 seconds for a small chat, but for one that
  writes numbers of 300 digits, which the clock stopped. For the longest chats that a body holds (2 MiB in 2,001 or in 50,001
  messages) those tried took up to 5.3 seconds. A request is rendered twice at most, so it keeps a thread about ten. Of
  the 70, those that render 50,001 messages need 0.3 seconds, the slowest 1.2; some look at every message from every other, and
  run out.
- The prompt: 1 MiB and the template's own length, and 16 bytes for each that was sent. A prompt that cannot fit the
  context, however it is tokenised, is refused before it is tokenised, on `/chat_tokenize` and `/tokenize` too.
- Counts (`batch`, `range`, `*`, widths of formats) are refused before they are memory. There are no other templates to
  include, extend or import. `debug()` is not there. Namespaces and loops cannot be put into other values.
- A fault of the template engine itself is a template error, too.

How many of the 70:

";

/// One chat, rendered here and there.
struct Case {
    name: String,
    ours: Result<String, TemplateError>,
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(name)
}

fn chats() -> Value {
    let mut chats: Value =
        serde_json::from_str(&std::fs::read_to_string(here("oracle/chats.json")).unwrap()).unwrap();
    let definitions = chats["definitions"].clone();
    for chat in chats["tools"].as_object_mut().unwrap().values_mut() {
        if chat["options"]["tools"] == "TOOLS" {
            chat["options"]["tools"] = definitions.clone();
        }
    }
    chats
}

/// The vocabulary matters only for the texts of named tokens.
fn tokenizer() -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tokenizer_config.json");
    let named = json!({
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "</s>",
    });
    std::fs::write(&config, named.to_string()).unwrap();
    Tokenizer::from_file(&here("golden/tiny_byte_fallback.json"), Some(&config)).unwrap()
}

fn options(value: &Value) -> RenderOptions {
    let mut variables: Map<String, Value> = value.as_object().unwrap().clone();
    let flag = |value: Option<Value>| value.is_some_and(|value| value == true);
    RenderOptions {
        add_generation_prompt: flag(variables.remove("add_generation_prompt")),
        continue_final_message: flag(variables.remove("continue_final_message")),
        tools: variables.remove("tools"),
        documents: variables.remove("documents"),
        variables,
    }
}

/// Renders the chats of one section with each template; the oracle gets `seen` by it.
fn compare(section: &str, seen: impl Fn(&ChatTemplate, &Value) -> Vec<Value>) {
    let (Some(paths), Some(python)) = (real_templates(), python()) else {
        return;
    };
    let tokenizer = tokenizer();
    let chats = chats();
    let mut questions = Vec::new();
    let mut cases = Vec::new();
    for path in &paths {
        let name = path.file_stem().unwrap().to_string_lossy();
        let text = std::fs::read_to_string(path).unwrap();
        let template = match ChatTemplate::compile(&text, &tokenizer) {
            Ok(template) => template,
            Err(error) => panic!("{name}: {error}"),
        };
        for (chat_name, chat) in chats[section].as_object().unwrap() {
            let messages = chat["messages"].as_array().unwrap();
            questions.push(json!({
                "template": path, "options": chat["options"], "messages": seen(&template, chat),
            }));
            cases.push(Case {
                name: format!("{name}: {chat_name}"),
                ours: template
                    .render(messages, &options(&chat["options"]))
                    .map(|prompt| prompt.text),
            });
        }
    }
    let answers = ask(&python, &questions);
    let mut wrong = Vec::new();
    for (case, answer) in cases.iter().zip(&answers) {
        let is_right = is_right(&case.ours, answer);
        if !is_right {
            wrong.push(difference(&case.name, &case.ours, answer));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    eprintln!(
        "{section}: {} templates, {} chats equal",
        paths.len(),
        cases.len()
    );
}

#[test]
fn plain_chats_are_rendered_as_transformers_does() {
    compare("plain", |template, chat| {
        let messages = chat["messages"].as_array().unwrap().clone();
        if template.adaptations().contains(&"text as parts") {
            template.adapt(&messages, false).unwrap()
        } else {
            messages
        }
    });
}

/// `HEADRACE_REGENERATE=1` writes it anew.
#[test]
fn docs_templates_md_says_what_is_adapted() {
    let Some(paths) = real_templates() else {
        return;
    };
    let tokenizer = tokenizer();
    let mut rows = String::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let template = ChatTemplate::compile(&text, &tokenizer).unwrap();
        let names = template.adaptations();
        for name in &names {
            *counts.entry(name).or_default() += 1;
        }
        let name = path.file_stem().unwrap().to_string_lossy();
        let tools = if template.shows_tools() {
            "shown"
        } else {
            "not shown"
        };
        let changed = if names.is_empty() {
            "nothing".to_owned()
        } else {
            names.join(", ")
        };
        writeln!(rows, "| {name} | {tools} | {changed} |").unwrap();
    }
    let mut expected = DOCS_HEAD.to_owned();
    for (name, count) in counts {
        writeln!(expected, "- {name}: {count}").unwrap();
    }
    expected += "\n| template | tools | adapted |\n|---|---|---|\n";
    expected += &rows;
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/templates.md");
    if std::env::var_os("HEADRACE_REGENERATE").is_some() {
        std::fs::write(&docs, &expected).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&docs).unwrap_or_default(),
        expected,
        "docs/templates.md is old: run with HEADRACE_REGENERATE=1"
    );
}

#[test]
fn adapted_chats_are_rendered_as_transformers_does() {
    compare("tools", |template, chat| {
        let has_tools = chat["options"].get("tools").is_some();
        template
            .adapt(chat["messages"].as_array().unwrap(), has_tools)
            .unwrap()
    });
}
