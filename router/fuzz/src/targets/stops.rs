//! The stop matcher against a search in the whole text, for every way to cut the text into pieces.

use crate::Target;
use crate::input::Choices;
use crate::random::{Random, mix};
use headrace_text::{StopMatcher, StopMode};
use std::cmp::Reverse;

pub(super) const TARGET: Target = Target {
    name: "stops",
    seeds: || vec![b"\x02\x03ab\x02ba\x00aabab".to_vec()],
    fresh,
    run,
    words: &["ab", "aab", "é", "\u{1f600}"],
    short: 100_000,
};

fn fresh(random: &mut Random) -> Vec<u8> {
    let count = random.below(120);
    random.bytes(count)
}

/// Few letters, so that stops begin and break off often.
fn letter(byte: u8) -> char {
    ['a', 'a', 'a', 'b', 'b', 'é', '\u{1f600}', '|'][usize::from(byte) % 8]
}

fn run(input: &[u8]) -> u64 {
    let mut choices = Choices::of(input);
    let stops: Vec<String> = (0..choices.below(5))
        .map(|_| {
            let most = if choices.percent(10) { 60 } else { 5 };
            let length = 1 + choices.below(most);
            (0..length).map(|_| letter(choices.byte())).collect()
        })
        .collect();
    let mode = choices.pick(&[StopMode::CutStop, StopMode::KeepStop]);
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let mut hidden = false;
    while !choices.is_over() {
        let byte = choices.byte();
        piece.push(letter(byte));
        if byte & 0x18 == 0 {
            pieces.push((std::mem::take(&mut piece), hidden));
            hidden = byte & 0xE0 == 0;
        }
    }
    pieces.push((piece, hidden));
    let (text, matched) = matcher(&pieces, &stops, mode);
    assert_eq!((text.clone(), matched), naive(&pieces, &stops, mode));
    if stops.len() <= 1 {
        // With one stop nothing hangs on where the pieces end.
        let letters: Vec<(String, bool)> = pieces
            .iter()
            .flat_map(|(piece, hidden)| piece.chars().map(|letter| (letter.to_string(), *hidden)))
            .collect();
        assert_eq!(matcher(&letters, &stops, mode), (text.clone(), matched));
    }
    mix(
        matched.map_or(9, |index| index as u64),
        text.len().min(24) as u64,
    )
}

fn matcher(pieces: &[(String, bool)], stops: &[String], mode: StopMode) -> (String, Option<usize>) {
    let mut matcher = StopMatcher::new(stops, mode).expect("no stop is empty");
    let mut text = String::new();
    for (piece, hidden) in pieces {
        let step = if *hidden {
            matcher.push_hidden(piece)
        } else {
            matcher.push(piece)
        };
        text.push_str(&step.released);
        if step.matched.is_some() {
            assert!(matcher.is_over());
            assert_eq!(matcher.push("more").released, "");
            assert_eq!(matcher.finish(), "");
            return (text, step.matched);
        }
    }
    text.push_str(&matcher.finish());
    (text, None)
}

/// The first piece after which any stop is complete; of those complete, the earliest start, then the longest.
fn naive(pieces: &[(String, bool)], stops: &[String], mode: StopMode) -> (String, Option<usize>) {
    let mut whole = String::new();
    let mut shown = Vec::new();
    for (piece, hidden) in pieces {
        whole.push_str(piece);
        shown.extend(std::iter::repeat_n(!hidden, piece.len()));
        let found = stops
            .iter()
            .enumerate()
            .filter_map(|(index, stop)| {
                let start = whole.find(stop.as_str())?;
                Some((start, Reverse(stop.len()), index))
            })
            .min();
        if let Some((start, length, index)) = found {
            let end = match mode {
                StopMode::KeepStop => start + length.0,
                StopMode::CutStop => start,
            };
            return (visible(&whole, &shown, end), Some(index));
        }
    }
    (visible(&whole, &shown, whole.len()), None)
}

fn visible(whole: &str, shown: &[bool], end: usize) -> String {
    let bytes = whole.bytes().zip(shown).take(end);
    let bytes = bytes.filter(|(_, shown)| **shown).map(|(byte, _)| byte);
    String::from_utf8(bytes.collect()).expect("pieces and stops end between characters")
}
