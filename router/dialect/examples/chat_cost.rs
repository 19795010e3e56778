//! Where the front's time for a chat goes, stage by stage, on one thread and without sockets:
//! `cargo run -p headrace-dialect --example chat_cost -- GGUF`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "an example prints its figures and ends where something is wrong"
)]

use headrace_dialect::bounds::{Bounds, Flags};
use headrace_dialect::call::Prompt;
use headrace_dialect::choice::{ChoiceText, RawToken};
use headrace_dialect::end::EndReason;
use headrace_dialect::json::Json;
use headrace_dialect::openai::{ChatShown, ChatStream, Identity, StreamShape, read_chat};
use headrace_dialect::refusal::Dialect;
use headrace_text::{ChatTemplate, RenderOptions, StopMode, TemplateSources, Tokenizer};
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often each stage runs; the median counts.
const ROUNDS: usize = 200;

/// Tokens of the streamed answer.
const OUTPUT: u32 = 256;

fn main() {
    let gguf = PathBuf::from(std::env::args().nth(1).expect("chat_cost GGUF"));
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
    let template = ChatTemplate::load(&TemplateSources::default(), &tokenizer).unwrap();
    let flags = Flags::default();
    let bounds = Bounds::of(Dialect::OpenAi, flags);
    println!("| stage | 32 tokens, µs | 1,000 tokens, µs |\n| --- | --- | --- |");
    let columns = [32, 1000].map(|words| stages(&tokenizer, &template, &bounds, words));
    for ((name, short), (_, long)) in columns[0].iter().zip(&columns[1]) {
        println!("| {name} | {:.1} | {:.1} |", micros(*short), micros(*long));
    }
    let token = stream(&tokenizer);
    println!(
        "\nA streamed token (detokenise, stops, chunk, JSON): {:.2} µs",
        micros(token)
    );
}

fn stages(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    bounds: &Bounds,
    words: usize,
) -> Vec<(&'static str, Duration)> {
    let bodies: Vec<Vec<u8>> = (0..ROUNDS).map(|round| body(round, words)).collect();
    let mut rounds = bodies.iter().cycle();
    let parse = median(|| {
        black_box(Json::parse(rounds.next().unwrap()).unwrap());
    });
    let json = Json::parse(&bodies[0]).unwrap();
    let validate = median(|| {
        black_box(read_chat(&json, bounds).unwrap());
    });
    let call = read_chat(&json, bounds).unwrap();
    let Some(Prompt::Chat(chat)) = call.call.prompts.first() else {
        panic!("a chat has a chat prompt")
    };
    let options = RenderOptions {
        add_generation_prompt: true,
        ..RenderOptions::default()
    };
    let render = median(|| {
        black_box(template.render(&chat.messages, &options).unwrap());
    });
    // Different texts, so that no cache of words answers for all of them.
    let rendered: Vec<_> = bodies
        .iter()
        .map(|body| {
            let call = read_chat(&Json::parse(body).unwrap(), bounds).unwrap();
            let Some(Prompt::Chat(chat)) = call.call.prompts.first() else {
                panic!("a chat has a chat prompt")
            };
            template.render(&chat.messages, &options).unwrap()
        })
        .collect();
    let mut rounds = rendered.iter().cycle();
    let tokenise = median(|| {
        black_box(tokenizer.encode_chat(rounds.next().unwrap()).unwrap());
    });
    vec![
        ("read the JSON", parse),
        ("validate", validate),
        ("template", render),
        ("tokenise", tokenise),
        ("all", parse + validate + render + tokenise),
    ]
}

fn body(round: usize, words: usize) -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "time", "year", "people", "way", "day", "man", "thing", "woman",
    ];
    let text: Vec<&str> = (0..words)
        .map(|place| WORDS[(round * 31 + place * place + place * round) % WORDS.len()])
        .collect();
    serde_json::json!({
        "model": "m",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": text.join(" ")},
        ],
        "max_tokens": 1, "temperature": 0.7, "top_p": 0.9, "stop": ["\n\n"],
    })
    .to_string()
    .into_bytes()
}

/// Of one token of a stream.
fn stream(tokenizer: &Arc<Tokenizer>) -> Duration {
    let identity = Identity {
        id: "chatcmpl-0".to_owned(),
        created: 1,
        model: "m".to_owned(),
        system_fingerprint: "v".to_owned(),
        service_tier: None,
    };
    let ids: Vec<u32> = (0..OUTPUT)
        .map(|index| 1000 + index * 37 % 40_000)
        .collect();
    let stops = ["\n\n".to_owned()];
    let all = median(|| {
        let mut text = ChoiceText::new(tokenizer, &[1, 2, 3], &stops, StopMode::CutStop).unwrap();
        let mut chunks = ChatStream::new(
            identity.clone(),
            StreamShape::default(),
            ChatShown::default(),
            &[1, 2, 3],
            1,
        );
        for (place, &id) in ids.iter().enumerate() {
            let raw = RawToken {
                id,
                ..RawToken::default()
            };
            let end = (place + 1 == ids.len()).then_some(EndReason::Length);
            let step = text.push(raw, end);
            if let Some(chunk) = chunks.chunk(0, step, tokenizer) {
                black_box(serde_json::to_string(&chunk).unwrap());
            }
        }
    });
    all / OUTPUT
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            work();
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[ROUNDS / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
