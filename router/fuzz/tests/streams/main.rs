//! Streams over three real tokenizers: whatever the ids, the stops and the splits, what a client sees is the one-shot
//! decode cut at the stop, and where the bytes are valid it is what `transformers` decodes.
//!
//! `HEADRACE_STREAMS` says how many (a million in `make streams`), `HEADRACE_STREAM` runs one again by its number,
//! `HEADRACE_STREAMS_DUMP` names a file for `transformers_streams.py`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it did"
)]

mod family;
mod made_up;
mod reference;

use family::Family;
use headrace_dialect::choice::{ChoiceText, RawToken};
use headrace_dialect::end::EndReason;
use headrace_fuzz::Random;
use headrace_text::{Detokenizer, StopMatcher, StopMode};
use made_up::{End, Stream};
use reference::{Push, complete_text, pushes, shown};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Rows for the Python oracle.
const DUMPED: u64 = 20_000;

/// What was met, so that a test of nothing would show.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    streams: u64,
    ids: u64,
    with_stops: u64,
    stopped: u64,
    ill_formed: u64,
    as_the_library: u64,
}

impl Met {
    fn add(&mut self, other: Self) {
        self.streams += other.streams;
        self.ids += other.ids;
        self.with_stops += other.with_stops;
        self.stopped += other.stopped;
        self.ill_formed += other.ill_formed;
        self.as_the_library += other.as_the_library;
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
fn streams_are_the_one_shot_decode_cut_at_the_stop() {
    let families = Family::all();
    if let Some(only) = number("HEADRACE_STREAM") {
        check(&families, only);
        return;
    }
    let count = number("HEADRACE_STREAMS").unwrap_or(100_000);
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut met = Met::default();
    std::thread::scope(|scope| {
        let work = || {
            let mut met = Met::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return met;
                }
                // The number is all that a failure needs to be seen again.
                let outcome = std::panic::catch_unwind(|| check(&families, number));
                let Ok(of_stream) = outcome else {
                    next.store(count, Ordering::Relaxed);
                    panic!("HEADRACE_STREAM={number} shows it again");
                };
                met.add(of_stream);
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            met.add(worker.join().unwrap());
        }
    });
    println!("{met:?} in {:.1} s", started.elapsed().as_secs_f64());
    assert_eq!(met.streams, count);
    assert!(met.stopped > count / 5, "{met:?}");
    assert!(met.ill_formed > count / 5, "{met:?}");
    assert!(met.as_the_library > count / 5, "{met:?}");
    dump(&families, count);
}

fn made_up(families: &[Family], number: u64) -> (&Family, Random, Stream) {
    let mut random = Random::new(number);
    let family = random.pick(families);
    let stream = Stream::new(family, &mut random);
    (family, random, stream)
}

fn check(families: &[Family], number: u64) -> Met {
    let (family, mut random, stream) = made_up(families, number);
    let bytes = family.text_bytes(stream.last, &stream.ids);
    let whole = String::from_utf8_lossy(&bytes).into_owned();
    check_detokenizer(family, &stream, &bytes, &whole);
    let is_compared = library_text(family, &stream).inspect(|text| assert_eq!(&whole, text));
    let pushes = pushes(family, &stream);
    let stopped = check_choice(family, &stream, &pushes);
    check_split(&whole, &stream, &mut random);
    Met {
        streams: 1,
        ids: stream.ids.len() as u64,
        with_stops: (!stream.stops.is_empty()).into(),
        stopped: stopped.into(),
        ill_formed: std::str::from_utf8(&bytes).is_err().into(),
        as_the_library: is_compared.is_some().into(),
    }
}

/// Token by token and at once: the reference's text.
fn check_detokenizer(family: &Family, stream: &Stream, bytes: &[u8], whole: &str) {
    let prompt: Vec<u32> = stream.last.into_iter().collect();
    let tokenizer = &family.tokenizer;
    let at_once = Detokenizer::decode(Arc::clone(tokenizer), &prompt, &stream.ids);
    assert_eq!(at_once, whole, "{}: {stream:?}", family.name);
    let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer), &prompt);
    let mut text = String::new();
    for (index, &id) in stream.ids.iter().enumerate() {
        text.push_str(&detokenizer.push(id).text);
        if index + 1 == stream.ids.len() {
            assert_eq!(text, complete_text(bytes), "{}: {stream:?}", family.name);
        }
    }
    text.push_str(&detokenizer.finish());
    assert_eq!(text, whole, "{}: {stream:?}", family.name);
}

/// What `transformers` makes of the ids, where that is defined.
fn library_text(family: &Family, stream: &Stream) -> Option<String> {
    let last = family.text_bytes(None, stream.last.as_slice());
    let bytes = family.text_bytes(stream.last, &stream.ids);
    std::str::from_utf8(&last).ok()?;
    std::str::from_utf8(&bytes).ok()?;
    let decode = |ids: &[u32]| family.library.decode(ids, true).unwrap();
    let before = decode(stream.last.as_slice());
    let ids: Vec<u32> = stream.last.iter().chain(&stream.ids).copied().collect();
    let whole = decode(&ids);
    let after = whole.strip_prefix(&before);
    Some(after.unwrap_or_else(|| panic!("{stream:?}")).to_owned())
}

/// A choice as every route has it; whether a stop ended it.
fn check_choice(family: &Family, stream: &Stream, pushes: &[Vec<Push>]) -> bool {
    let prompt: Vec<u32> = stream.last.into_iter().collect();
    let mut choice =
        ChoiceText::new(&family.tokenizer, &prompt, &stream.stops, stream.mode).unwrap();
    let (mut text, mut token_texts) = (String::new(), String::new());
    let mut so_far: Vec<&Push> = Vec::new();
    for (index, &id) in stream.ids.iter().enumerate() {
        let is_last = index + 1 == stream.ids.len();
        let end = is_last.then_some(match stream.end {
            End::Length => EndReason::Length,
            End::Eos => EndReason::Eos,
            End::StopToken => EndReason::StopToken(id),
        });
        let step = choice.push(raw_token(id), end);
        let characters = so_far.iter().filter(|push| !push.is_hidden);
        let characters: usize = characters.map(|push| push.text.chars().count()).sum();
        assert_eq!(step.text_offset, characters, "{}: {stream:?}", family.name);
        so_far.extend(&pushes[index]);
        let expected = shown(&so_far, &stream.stops, stream.mode, is_last);
        text.push_str(&step.released);
        assert_eq!(
            text, expected.text,
            "{} token {index}: {stream:?}",
            family.name
        );
        if !family.is_special(id) {
            token_texts.push_str(&step.text);
            if stream.mode == StopMode::KeepStop && !so_far.iter().any(|push| push.is_hidden) {
                assert_eq!(
                    token_texts, text,
                    "{} token {index}: {stream:?}",
                    family.name
                );
            }
        }
        let expected_end = expected.matched.map(EndReason::StopString).or(end);
        assert_eq!(
            step.end, expected_end,
            "{} token {index}: {stream:?}",
            family.name
        );
        assert_eq!(choice.has_ended(), expected_end.is_some());
        if expected_end.is_some() {
            // Nothing follows an end.
            assert_eq!(choice.push(raw_token(id), None).released, "");
            return expected.matched.is_some();
        }
    }
    false
}

fn raw_token(id: u32) -> RawToken {
    RawToken {
        id,
        logprob: None,
        top: Vec::new(),
    }
}

/// The same text cut anywhere between two characters, as no tokenizer would.
fn check_split(whole: &str, stream: &Stream, random: &mut Random) {
    let mut pushes = vec![Push {
        text: String::new(),
        is_hidden: false,
    }];
    for character in whole.chars() {
        if random.percent(30) {
            pushes.push(Push {
                text: String::new(),
                is_hidden: random.percent(5),
            });
        }
        pushes.last_mut().unwrap().text.push(character);
    }
    let mut matcher = StopMatcher::new(&stream.stops, stream.mode).unwrap();
    let mut text = String::new();
    for count in 1..=pushes.len() {
        let push = &pushes[count - 1];
        let step = if push.is_hidden {
            matcher.push_hidden(&push.text)
        } else {
            matcher.push(&push.text)
        };
        text.push_str(&step.released);
        let so_far: Vec<&Push> = pushes[..count].iter().collect();
        let expected = shown(&so_far, &stream.stops, stream.mode, false);
        assert_eq!((&text, step.matched), (&expected.text, expected.matched));
        if step.matched.is_some() {
            assert_eq!(matcher.finish(), "");
            return;
        }
    }
    text.push_str(&matcher.finish());
    let all: Vec<&Push> = pushes.iter().collect();
    assert_eq!(text, shown(&all, &stream.stops, stream.mode, true).text);
}

/// Rows of JSON for the script beside this file.
fn dump(families: &[Family], count: u64) {
    let Some(path) = std::env::var_os("HEADRACE_STREAMS_DUMP") else {
        return;
    };
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    let mut written = 0;
    for number in 0..count {
        let (family, _, stream) = made_up(families, number);
        let Some(text) = library_text(family, &stream) else {
            continue;
        };
        let row = serde_json::json!({
            "number": number, "family": family.name, "last": stream.last, "ids": stream.ids, "text": text,
        });
        writeln!(file, "{row}").unwrap();
        written += 1;
        if written == DUMPED {
            return;
        }
    }
}
