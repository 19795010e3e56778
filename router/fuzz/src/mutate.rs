//! An input from another.

use crate::random::Random;

/// No input grows beyond this, in bytes.
const LONGEST: usize = 16 << 10;

/// Numbers at the edges of their types.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7F,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFF_FFFF,
    0xFFFF_FFFF,
    0x1_0000_0000,
    0x7FFF_FFFF_FFFF_FFFF,
    0xFFFF_FFFF_FFFF_FFF0,
    u64::MAX,
];

/// Changes `input` in one to four places. `other` is a second input to cut from.
pub(crate) fn mutate(random: &mut Random, input: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=random.below(4) {
        once(random, &mut out, other, words);
    }
    out.truncate(LONGEST);
    out
}

fn once(random: &mut Random, out: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    let place = random.below(out.len());
    match random.below(11) {
        0 => {
            if let Some(byte) = out.get_mut(place) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            if let Some(byte) = out.get_mut(place) {
                *byte = random.number().to_le_bytes()[0];
            }
        }
        2 => out.insert(place, random.number().to_le_bytes()[0]),
        3 => {
            let end = (place + 1 + random.below(16)).min(out.len());
            out.drain(place..end);
        }
        4 => {
            // A part once more, and again.
            let end = (place + 1 + random.below(32)).min(out.len());
            let part = out[place..end].to_vec();
            let most = if random.percent(5) { 200 } else { 3 };
            let times = 1 + random.below(most);
            for _ in 0..times {
                insert(out, place, &part);
            }
        }
        5 => {
            let from = random.below(other.len());
            let end = (from + 1 + random.below(64)).min(other.len());
            insert(out, place, &other[from.min(end)..end]);
        }
        6 => {
            // The end of the other one.
            out.truncate(place);
            out.extend(&other[random.below(other.len()).min(other.len())..]);
        }
        7 if !words.is_empty() => insert(out, place, random.pick(words).as_bytes()),
        8 => {
            let edge = random.pick(&EDGES).to_le_bytes();
            let width = *random.pick(&[1, 2, 4, 8]);
            for (byte, new) in out.iter_mut().skip(place).zip(&edge[..width]) {
                *byte = *new;
            }
        }
        9 => {
            // A number in text.
            let edge = random.pick(&EDGES).to_string();
            let digits = out[place..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            out.splice(place..place + digits, edge.bytes());
        }
        _ => {
            let other_place = random.below(out.len());
            if place < out.len() {
                out.swap(place, other_place);
            }
        }
    }
}

fn insert(out: &mut Vec<u8>, place: usize, part: &[u8]) {
    if out.len() + part.len() <= LONGEST {
        out.splice(place..place, part.iter().copied());
    }
}
