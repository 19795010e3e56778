//! Bodies of 2 MB, each of many small things of one kind. Nothing here looks at a clock: reading them takes well under
//! a second when the work grows with the body, and minutes where it grows with its square.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

use headrace_dialect::bounds::{Bounds, Flags};
use headrace_dialect::json::Json;
use headrace_dialect::native::{NativeRoute, read_generate};
use headrace_dialect::openai::{read_chat, read_completion, read_tokenize};
use headrace_dialect::refusal::{Dialect, Refusal};

const SIZE: usize = 2_000_000;

fn bounds(dialect: Dialect) -> Bounds {
    Bounds::of(dialect, Flags::default())
}

/// `before`, then items until the body has its size, then `after`.
fn body(before: &str, item: impl Fn(usize) -> String, after: &str) -> String {
    let mut body = before.to_owned();
    let mut count = 0;
    while body.len() < SIZE {
        if count > 0 {
            body.push(',');
        }
        body.push_str(&item(count));
        count += 1;
    }
    body.push_str(after);
    body
}

/// Reads a body on every route; the answers in this order: generate, completion, chat, tokenize.
fn read_everywhere(body: &str) -> [Result<String, String>; 4] {
    let parsed = Json::parse(body.as_bytes());
    let read = |read: &dyn Fn(&Json) -> Result<Option<String>, Refusal>| match &parsed {
        Ok(json) => read(json)
            .map(Option::unwrap_or_default)
            .map_err(|refusal| refusal.message().to_owned()),
        Err(refusal) => Err(refusal.message().to_owned()),
    };
    let native = bounds(Dialect::Native);
    let openai = bounds(Dialect::OpenAi);
    [
        read(&|json| {
            read_generate(json, NativeRoute::Generate, &native).map(|call| call.ignored.header())
        }),
        read(&|json| read_completion(json, &openai, None).map(|call| call.ignored.header())),
        read(&|json| read_chat(json, &openai).map(|call| call.ignored.header())),
        read(&|json| read_tokenize(json, &openai).map(|_| None)),
    ]
}

fn assert_all_refuse(body: &str, problem: &str) {
    for answer in read_everywhere(body) {
        let message = answer.unwrap_err();
        assert!(message.contains(problem), "{message}");
        assert!(message.len() < 1000, "an error shows no long text");
    }
}

#[test]
fn unknown_keys() {
    let key = |count| format!("\"k{count}\":0");
    for (before, after, place) in [
        (r#"{"inputs":"x","prompt":"x","messages":[],"#, "}", ""),
        (r#"{"inputs":"x","parameters":{"#, "}}", "parameters: "),
        (
            r#"{"messages":[{"role":"user","content":"x","#,
            "}]}",
            "messages[0]: ",
        ),
        (
            r#"{"messages":[{"role":"user","content":[{"text":"x","#,
            "}]}]}",
            "messages[0].content[0]: ",
        ),
        (r#"{"prompt":"x","logit_bias":{"#, "}}", "logit_bias: "),
        (
            r#"{"prompt":"x","stream_options":{"#,
            "}}",
            "stream_options: ",
        ),
        (r#"{"prompt":"x","metadata":{"#, "}}", "metadata: "),
    ] {
        assert_all_refuse(
            &body(before, key, after),
            &format!("JSON: {place}more than 4096 keys in one object"),
        );
    }
}

#[test]
fn one_key_again_and_again() {
    for key in ["\"a\":0", "\"\":0", "\"inputs\":\"x\""] {
        assert_all_refuse(
            &body("{", |_| key.to_owned(), "}"),
            "JSON: more than 4096 keys in one object",
        );
    }
}

#[test]
fn unknown_keys_of_many_objects() {
    // 16,000 messages, hundreds of thousands of unknown keys, none too many in one object.
    let message = |count: usize| {
        let keys: Vec<String> = (0..15).map(|key| format!("\"{count:x}{key}\":0")).collect();
        format!(r#"{{"role":"user","content":"x",{}}}"#, keys.join(","))
    };
    let many = body(r#"{"messages":["#, message, "]}");
    let [_, _, chat, _] = read_everywhere(&many);
    let header = chat.unwrap();
    assert!(header.starts_with("messages[0].00, messages[0].01, "));
    assert!(header.ends_with(" more") && header.len() < 1060);

    let part = |count: usize| format!(r#"{{"text":"","{count}":0}}"#);
    let before = r#"{"messages":[{"role":"user","content":["#;
    let [_, _, chat, _] = read_everywhere(&body(before, part, "]}]}"));
    assert!(chat.unwrap().ends_with(" more"));

    let call = |count: usize| {
        let call = format!(r#"{{"function":{{"name":"f","{count}":0}},"{count}":0}}"#);
        let calls = vec![call; 32].join(",");
        format!(r#"{{"role":"assistant","tool_calls":[{calls}]}}"#)
    };
    let [_, _, chat, _] = read_everywhere(&body(r#"{"messages":["#, call, "]}"));
    assert!(chat.unwrap().ends_with(" more"));
}

#[test]
fn long_lists() {
    for (field, item, problem) in [
        ("stop", r#""a""#, "`stop` supports up to 16 stop sequences"),
        ("stop", "1", "stop[0]: invalid type: integer `1`"),
        (
            "stop_token_ids",
            "1",
            "`stop_token_ids` supports up to 128 ids",
        ),
        (
            "stop_token_ids",
            "-1",
            "stop_token_ids[0]: invalid value: integer `-1`",
        ),
        ("tools", "{}", "non-empty `tools` are not supported yet"),
        (
            "bad_words",
            r#""a""#,
            "`bad_words` supports up to 128 words",
        ),
    ] {
        let list = body(
            &format!(r#"{{"prompt":"x","messages":[{{"role":"user","content":"x"}}],"{field}":["#),
            |_| item.to_owned(),
            "]}",
        );
        let [_, completion, chat, _] = read_everywhere(&list);
        for answer in [completion, chat] {
            let message = answer.unwrap_err();
            assert!(message.contains(problem), "{message}");
        }
    }
    for item in ["\"a\"", "[1]", "[]", "{}"] {
        let prompts = body(r#"{"prompt":["#, |_| item.to_owned(), "]}");
        let [_, completion, ..] = read_everywhere(&prompts);
        assert!(completion.unwrap_err().contains("batch size of 64"));
    }
    let ids = body(r#"{"prompt":["#, |_| "1".to_owned(), "]}");
    let [_, completion, ..] = read_everywhere(&ids);
    completion.unwrap();
    let mixed = body(r#"{"prompt":[-1,"#, |_| "1".to_owned(), "]}");
    let [_, completion, ..] = read_everywhere(&mixed);
    assert!(completion.is_err());
    let messages = body(r#"{"messages":["#, |_| "0".to_owned(), "]}");
    let [_, _, chat, _] = read_everywhere(&messages);
    assert!(chat.is_err());
    let messages = body(r#"{"messages":["#, |_| "{}".to_owned(), "]}");
    let [_, _, chat, _] = read_everywhere(&messages);
    assert!(chat.unwrap_err().contains("up to 16384 messages"));
    let before = r#"{"messages":[{"role":"user","content":["#;
    let parts = body(before, |_| r#""a""#.to_owned(), "]}]}");
    let [_, _, chat, _] = read_everywhere(&parts);
    chat.unwrap();
}

#[test]
fn long_names_are_not_shown_whole() {
    let name = "x".repeat(SIZE);
    for (body, index) in [
        (format!(r#"{{"{name}":0}}"#), 0),
        (
            format!(r#"{{"inputs":"x","parameters":{{"adapter_id":"{name}"}}}}"#),
            0,
        ),
        (
            format!(r#"{{"prompt":"x","logit_bias":{{"{name}":0}}}}"#),
            1,
        ),
        (
            format!(r#"{{"prompt":"x","response_format":{{"type":"{name}"}}}}"#),
            1,
        ),
        (format!(r#"{{"prompt":"x","stop":"{name}"}}"#), 1),
        (
            format!(r#"{{"messages":[{{"role":"user","content":[{{"type":"{name}"}}]}}]}}"#),
            2,
        ),
    ] {
        let answers = read_everywhere(&body);
        let message = answers[index].as_ref().unwrap_err();
        assert!(message.len() < 1000, "{} bytes", message.len());
    }
}

/// Found by fuzzing: `response_format` of an unknown type showed a line break as it was.
#[test]
fn what_a_refusal_quotes_is_escaped() {
    let hostile = r"x\nERROR y\u001b[2J\r\u2028";
    let bodies = [
        format!(r#"{{"prompt":"x","messages":[],"response_format":{{"type":"{hostile}"}}}}"#),
        format!(
            r#"{{"prompt":"x","response_format":{{"type":"{hostile}","value":{{}}}},"parameters":{{"grammar":{{"type":"{hostile}","value":""}}}},"inputs":"x"}}"#
        ),
        format!(r#"{{"inputs":"x","parameters":{{"adapter_id":"{hostile}"}}}}"#),
        format!(r#"{{"prompt":"x","logit_bias":{{"{hostile}":0}}}}"#),
        format!(r#"{{"prompt":"{hostile}","stop":{{}}}}"#),
        format!(r#"{{"inputs":"x","parameters":"{hostile}","prompt":"x","stream":"{hostile}"}}"#),
        format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"{hostile}"}}]}}],"prompt":1}}"#
        ),
        body(
            &format!(r#"{{"{hostile}":{{"#),
            |count| format!("\"k{count}\":0"),
            "}}",
        ),
    ];
    let mut quoted = 0;
    for body in bodies {
        for message in read_everywhere(&body).into_iter().filter_map(Result::err) {
            let breaks = |c: char| c.is_control() || c == '\u{2028}';
            assert!(!message.contains(breaks), "{message:?}");
            quoted += usize::from(message.contains(r"x\nERROR y\u{1b}[2J\r"));
        }
    }
    assert!(quoted >= 8, "{quoted} messages show what the client wrote");
}

/// Whatever a message is made of, as a chat template's own words.
#[test]
fn a_refusal_is_one_line_of_a_bounded_length() {
    let long = format!("a\nb{}", "x".repeat(SIZE));
    let refusal = Refusal::new(headrace_dialect::refusal::Cause::Template, long);
    assert!(refusal.message().starts_with(r"a\nbxxx"));
    assert!(refusal.message().ends_with('…') && refusal.message().chars().count() < 1010);
}
