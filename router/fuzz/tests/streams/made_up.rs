//! Streams of ids as no model would write them, and stops that are somewhere in their text.

use crate::family::Family;
use headrace_fuzz::Random;
use headrace_text::StopMode;

/// Why the last token is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Length,
    Eos,
    StopToken,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The last token of the prompt.
    pub(crate) last: Option<u32>,
    pub(crate) ids: Vec<u32>,
    pub(crate) stops: Vec<String>,
    pub(crate) mode: StopMode,
    pub(crate) end: End,
}

impl Stream {
    pub(crate) fn new(family: &Family, random: &mut Random) -> Self {
        let last = match random.below(10) {
            0 => None,
            1 | 2 => Some(*random.pick(&family.special_ids)),
            _ => Some(any_id(family, random)),
        };
        let mut ids = Vec::new();
        for _ in 0..=random.below(4) {
            segment(family, random, &mut ids);
        }
        if ids.is_empty() {
            ids.push(any_id(family, random));
        }
        let stops = stops(family, random, last, &ids);
        Self {
            last,
            ids,
            stops,
            mode: *random.pick(&[StopMode::CutStop, StopMode::KeepStop]),
            end: *random.pick(&[End::Length, End::Length, End::Eos, End::StopToken]),
        }
    }
}

fn any_id(family: &Family, random: &mut Random) -> u32 {
    // A few lie beyond the vocabulary, as in models whose output is padded.
    u32::try_from(random.below(family.size() + 4)).unwrap()
}

fn segment(family: &Family, random: &mut Random, ids: &mut Vec<u32>) {
    match random.below(9) {
        0 | 1 => {
            let count = 1 + random.below(10);
            ids.extend((0..count).map(|_| any_id(family, random)));
        }
        // A part of a real text, cut inside characters too.
        2 | 3 => {
            let text = random.pick(&family.corpus);
            let start = random.below(text.len());
            let count = random.below(20);
            ids.extend(text[start..].iter().take(count));
        }
        4 => {
            let text = letters(random);
            ids.extend(family.encode(&text));
        }
        // Single bytes: of anything, and of characters cut short.
        5 => {
            let count = 1 + random.below(6);
            let bytes = random.bytes(count);
            ids.extend(bytes.iter().filter_map(|b| family.of_byte[usize::from(*b)]));
        }
        6 => {
            for _ in 0..=random.below(3) {
                let text = character(random).to_string();
                let end = if random.percent(70) {
                    text.len()
                } else {
                    random.below(text.len())
                };
                let bytes = text.bytes().take(end);
                ids.extend(bytes.filter_map(|byte| family.of_byte[usize::from(byte)]));
                if random.percent(20) {
                    ids.push(*random.pick(&family.special_ids));
                }
            }
        }
        7 => ids.push(*random.pick(&family.special_ids)),
        _ => {
            if let Some(&id) = family.visible_added_ids.first() {
                ids.push(id + u32::try_from(random.below(family.visible_added_ids.len())).unwrap());
            }
            ids.extend(family.encode(random.pick::<&str>(&[
                " the",
                "ab",
                "aab",
                "\n\n",
                "</s>",
                "\u{c548}\u{b155}",
            ])));
        }
    }
}

/// Hangul, emoji and anything else, which most vocabularies spell in bytes.
fn letters(random: &mut Random) -> String {
    let count = 1 + random.below(8);
    (0..count).map(|_| character(random)).collect()
}

fn character(random: &mut Random) -> char {
    let (first, count) = *random.pick(&[
        (0xAC00, 11_172),
        (0xAC00, 11_172),
        (0x1F300, 0x2C0),
        (0x4E00, 0x51FF),
        (0x20, 0x5F),
        (0xA0, 0x760),
        (0x900, 0x700),
        (0, 0x11_0000),
    ]);
    let code = first + random.below(count);
    char::from_u32(u32::try_from(code).unwrap()).unwrap_or('\u{FFFD}')
}

/// Out of the raw text, so that they lie inside tokens and across them; some overlap, some start another.
fn stops(family: &Family, random: &mut Random, last: Option<u32>, ids: &[u32]) -> Vec<String> {
    let text = if random.percent(60) {
        String::from_utf8_lossy(&family.text_bytes(last, ids)).into_owned()
    } else {
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|id| family.bytes(*id))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let letters: Vec<char> = text.chars().collect();
    let mut stops: Vec<String> = Vec::new();
    for _ in 0..random.below(5) {
        let start = random.below(letters.len());
        let most = if random.percent(10) { 80 } else { 8 };
        let length = 1 + random.below(most);
        let mut stop: String = letters[start.min(letters.len())..]
            .iter()
            .take(length)
            .collect();
        match random.below(6) {
            // One that will not be completed.
            0 => stop.push(character(random)),
            1 if !stops.is_empty() => {
                let other = random.pick(&stops).clone();
                let whole = other.chars().count();
                stop = if random.percent(50) {
                    other.chars().take(1 + random.below(whole)).collect()
                } else {
                    format!("{other}{}", stop.chars().take(2).collect::<String>())
                };
            }
            2 => stop = self_overlapping(random),
            _ => {}
        }
        if !stop.is_empty() {
            stops.push(stop);
        }
    }
    stops
}

fn self_overlapping(random: &mut Random) -> String {
    let count = 1 + random.below(5);
    (0..count).map(|_| *random.pick(&['a', 'b', ' '])).collect()
}
