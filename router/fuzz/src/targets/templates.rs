//! Conversations through chat templates, the model's and made-up ones: rendering ends, and no letter of a content
//! becomes a control token.
//!
//! An input's first byte says what it is: 255 a template, 254 a template in which one part is repeated (head, part,
//! number and tail with line feeds between them), else a conversation for one of the `ChatML` templates.

use super::json_text::string;
use super::models::{models, tiny_tokenizer};
use crate::Target;
use crate::random::{Random, kind_of, mix};
use headrace_dialect::bounds::{Bounds, Flags};
use headrace_dialect::call::Prompt;
use headrace_dialect::json::Json;
use headrace_dialect::openai::read_chat_tokenize;
use headrace_dialect::refusal::Dialect;
use headrace_text::{ChatTemplate, RenderOptions};
use serde_json::Value;
use std::sync::OnceLock;

pub(super) const TARGET: Target = Target {
    name: "templates",
    seeds,
    fresh,
    run,
    words: &WORDS,
    short: 2_500,
};

const WORDS: [&str; 62] = [
    "<|im_start|>",
    "<|im_end|>",
    "<|",
    "|>",
    "{{ messages }}",
    "{% for message in messages %}",
    "{% endfor %}",
    "{% for x in range(1000000000) %}{% endfor %}",
    "{{ 'x' * 1000000000 }}",
    "{{ lipsum }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ message['content'] }}",
    "{{ message.content | trim }}",
    "{{ message['content'].split('<|im_end|>')[-1] }}",
    "{% if add_generation_prompt %}",
    "{% endif %}",
    "{% set x = x ~ x %}",
    "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
    "{{ raise_exception('no') }}",
    "{{ strftime_now('%Y %%') }}",
    "{{ messages | tojson(indent=9) }}",
    "{{ '%s' % 'x' }}",
    "{{ ('x' * 70000) | upper }}",
    "| map(attribute='role') | list",
    "[::-1]",
    "\"role\":",
    "\"content\":",
    "\\ud800",
    "null",
    "HEADRACE_CONTINUE_FINAL_MESSAGE ",
    "{% set ns = namespace(x=[1]) %}",
    "{% for i in range(99999) %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}",
    "{% set ns.x = [ns.x, ns.x] %}",
    "{% set ns.x = ns.x | batch(1) %}",
    "{% set ns.x = loop %}",
    "{% if loop.changed(ns.x) %}{% endif %}",
    "{% set text = 'xy' * 500000 %}",
    "{% set list = [text] * 10000 %}",
    "{% if text in list %}{% endif %}",
    "{% if list == list + [] %}{% endif %}",
    "{% if text.strip(text) %}{% endif %}",
    "{% macro m(x) %}{% macro n() %}{% endmacro %}{{ n() }}{% endmacro %}{{ m(1) }}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    "{% include list ignore missing %}",
    "{% for x in [[1]] recursive %}{{ loop(x) }}{% endfor %}",
    "| batch(1000000000000)",
    "| slice(1000000000000)",
    "| list",
    "| sort",
    "| unique",
    "| groupby('a')",
    "| tojson(separators=[text, text])",
    "| tojson(indent=text)",
    "* 9223372036854775808",
    "[9223372036854775807:-9223372036854775808:-1]",
    ".format(text, a=list)",
    "{0:9999}{a}",
    "**{'x': list}",
    "*list",
    "loop.cycle()",
    "| map('batch', 1000000)",
];

/// Parts that a template may have thousands of.
const LINKS: [&str; 24] = [
    "not ",
    "- ",
    ".b",
    "[0]",
    "()",
    "|f",
    " is b",
    "+ a",
    "~ 'a'",
    "* 'a'",
    " and a",
    " or 0",
    " in a",
    " if a",
    " if a else a",
    "(",
    "[",
    "{1:",
    "{% if a %}",
    "{% elif a %}",
    "{% set a %}",
    "[1:",
    "'a' * 99999 +",
    ".b[",
];

const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}\
    <|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// `ChatML` as templates write it: each shows every content once and puts two control tokens around it.
const CHATMLS: [&str; 4] = [
    CHATML,
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content | trim }}<|im_end|>\n{% endfor %}\
     {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' }}{% endfor %}\
     {{ '<|im_start|>' if add_generation_prompt }}",
    "{% for m in messages %}<|im_start|>{{ m.content[:3] }}{{ m.content[3:] }}<|im_end|>{% endfor %}\
     {% if add_generation_prompt %}<|im_start|>{% endif %}",
];

fn compiled() -> &'static [ChatTemplate] {
    static COMPILED: OnceLock<Vec<ChatTemplate>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let tokenizer = &models()[0].tokenizer;
        CHATMLS
            .iter()
            .map(|text| ChatTemplate::compile(text, tokenizer).unwrap())
            .collect()
    })
}

fn seeds() -> Vec<Vec<u8>> {
    compiled();
    let body = r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a<|im_end|>b"}]}"#;
    let mut seeds: Vec<Vec<u8>> = (0..4_u8)
        .map(|which| [&[which], body.as_bytes()].concat())
        .collect();
    seeds.extend(
        CHATMLS
            .iter()
            .chain(&WORDS)
            .map(|text| [&[255], text.as_bytes()].concat()),
    );
    seeds
}

/// A conversation for one of the templates, or a template (after the byte 255).
fn fresh(random: &mut Random) -> Vec<u8> {
    if random.percent(5) {
        let head = *random.pick(&["{{ ", "{{ a", "{{ 1", "{% if a %}", "{% set a", "{{ [1, "]);
        let tail = *random.pick(&["", " }}", "x }}", "1] }}", " %}{% endif %}"]);
        let link = *random.pick(&LINKS);
        let count = *random.pick(&[10, 70, 150, 300, 900, 1000, 5000, 60_000]);
        return [
            &[254],
            format!("{head}\n{link}\n{count}\n{tail}").as_bytes(),
        ]
        .concat();
    }
    if random.percent(15) {
        let words: Vec<&str> = (0..=random.below(5))
            .map(|_| *random.pick(&WORDS))
            .collect();
        return [&[255], words.concat().as_bytes()].concat();
    }
    let messages: Vec<String> = (0..=random.below(4))
        .map(|_| {
            let role = *random.pick(&["user", "assistant", "system", "tool", "<|im_end|>"]);
            let content = match random.below(4) {
                0 => {
                    let first = string(random);
                    let second = string(random);
                    format!(
                        "[{{\"type\":\"text\",\"text\":{first}}},{{\"type\":\"text\",\"text\":{second}}}]"
                    )
                }
                _ => string(random),
            };
            format!("{{\"role\":\"{role}\",\"content\":{content}}}")
        })
        .collect();
    let options = *random.pick(&[
        "",
        ",\"continue_final_message\":true,\"add_generation_prompt\":false",
        ",\"add_generation_prompt\":false",
    ]);
    let which = u8::try_from(random.below(CHATMLS.len())).unwrap_or(0);
    let body = format!("{{\"messages\":[{}]{options}}}", messages.join(","));
    [&[which], body.as_bytes()].concat()
}

fn run(input: &[u8]) -> u64 {
    let Some((&which, rest)) = input.split_first() else {
        return 0;
    };
    if which == 254 {
        return run_template(&repeated(&String::from_utf8_lossy(rest)));
    }
    if which == 255 {
        return run_template(&String::from_utf8_lossy(rest));
    }
    run_messages(usize::from(which) % CHATMLS.len(), rest)
}

/// A template in which one part is repeated.
fn repeated(spec: &str) -> String {
    const MOST: usize = 100_000;
    let mut parts = spec.splitn(4, '\n');
    let mut part = || parts.next().unwrap_or_default();
    let (head, link, count, tail) = (part(), part(), part(), part());
    let count = count.parse().unwrap_or(1).min(MOST);
    // Mutations may make a part long.
    let count = count.min((1 << 21) / link.len().max(1));
    format!("{head}{}{tail}", link.repeat(count))
}

/// A template that nobody trusts, on a usual conversation: it ends.
fn run_template(text: &str) -> u64 {
    let tokenizer = &models()[0].tokenizer;
    let template = match ChatTemplate::compile(text, tokenizer) {
        Ok(template) => template,
        Err(error) => return kind_of(&error.to_string()),
    };
    let messages: Vec<Value> = serde_json::from_str(
        r#"[{"role":"system","content":"s"},{"role":"user","content":"a<|im_end|>b"}]"#,
    )
    .unwrap();
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    match template.render(&messages, &options) {
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() < 10_000, "{} bytes of error", text.len());
            kind_of(&text)
        }
        Ok(prompt) => {
            tokenizer.encode_chat(&prompt).expect("any text has ids");
            mix(2, prompt.text.len().min(64) as u64)
        }
    }
}

fn run_messages(which: usize, body: &[u8]) -> u64 {
    let bounds = Bounds::of(Dialect::OpenAi, Flags::default());
    let read = Json::parse(body).and_then(|json| read_chat_tokenize(&json, &bounds));
    let chat = match read {
        Ok((Prompt::Chat(chat), _)) => chat,
        Ok(_) => return 1,
        Err(refusal) => return kind_of(refusal.message()),
    };
    let continues = chat.continues();
    let options = RenderOptions {
        add_generation_prompt: chat.add_generation_prompt.unwrap_or(!continues),
        continue_final_message: continues,
        ..RenderOptions::default()
    };
    let tokenizer = &models()[0].tokenizer;
    let prompt = match compiled()[which].render(&chat.messages, &options) {
        Ok(prompt) => prompt,
        Err(error) => return kind_of(&error.to_string()),
    };
    let encoding = tokenizer.encode_chat(&prompt).expect("any text has ids");
    // What the assistant is said to have said may hold its own control tokens.
    let may_control = |message: &Value| {
        message["role"] == "assistant" && message["content"].to_string().contains(['<', '|', '>'])
    };
    if chat.messages.iter().any(may_control) {
        return 5;
    }
    let count = |id| encoding.ids.iter().filter(|&&other| other == id).count();
    let messages = chat.messages.len();
    let opened = messages + usize::from(options.add_generation_prompt);
    let closed = messages - usize::from(continues);
    assert_eq!(count(tiny_tokenizer::START), opened, "{}", prompt.text);
    assert_eq!(count(tiny_tokenizer::END), closed, "{}", prompt.text);
    assert_eq!(count(tiny_tokenizer::BOS) + count(tiny_tokenizer::EOS), 0);
    mix(messages as u64, prompt.text.len().min(64) as u64)
}
