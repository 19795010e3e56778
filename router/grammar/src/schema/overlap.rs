//! In how many ways a pattern may go on with one and the same character. Of patterns that hold together the library tries
//! the product of them.

use crate::pattern;
use regex_syntax::hir::{Class, Hir, HirKind};
use rustc_hash::FxHashSet;
use std::hash::{Hash, Hasher};

/// Characters of a class: which of ASCII, and a hash of the others (0: none).
type Set = (u128, u64);

/// At most so many sets of the pattern hold one character; a pattern may begin anywhere in a text, which is one more.
pub(super) fn overlap(source: &str) -> f64 {
    let Ok(hir) = pattern::parse("pattern", source) else {
        return 1.0;
    };
    let mut sets = FxHashSet::default();
    collect(&hir, &mut sets);
    let of = |bit: u32| sets.iter().filter(|set| set.0 >> bit & 1 == 1).count();
    let ascii = (0..128).map(of).max().unwrap_or(0);
    let others = sets.iter().filter(|set| set.1 != 0).count();
    let most = u32::try_from(ascii.max(others)).unwrap_or(u32::MAX);
    1.0 + f64::from(most)
}

fn collect(hir: &Hir, sets: &mut FxHashSet<Set>) {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => {
            for byte in &*literal.0 {
                sets.insert(match byte {
                    0..128 => (1 << byte, 0),
                    _ => (0, u64::from(*byte)),
                });
            }
        }
        HirKind::Class(class) => {
            let ranges: Vec<(u32, u32)> = match class {
                Class::Unicode(class) => {
                    let ranges = class.ranges().iter();
                    ranges
                        .map(|range| (range.start().into(), range.end().into()))
                        .collect()
                }
                Class::Bytes(class) => {
                    let ranges = class.ranges().iter();
                    ranges
                        .map(|range| (range.start().into(), range.end().into()))
                        .collect()
                }
            };
            sets.insert(set_of(&ranges));
        }
        HirKind::Repetition(repetition) => collect(&repetition.sub, sets),
        HirKind::Capture(capture) => collect(&capture.sub, sets),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            for part in parts {
                collect(part, sets);
            }
        }
    }
}

fn set_of(ranges: &[(u32, u32)]) -> Set {
    let mut ascii = 0_u128;
    let mut others = Vec::new();
    for &(first, last) in ranges {
        for character in first..=last.min(127) {
            ascii |= 1 << character;
        }
        if last > 127 {
            others.push((first.max(128), last));
        }
    }
    if others.is_empty() {
        return (ascii, 0);
    }
    let mut hasher = rustc_hash::FxHasher::default();
    others.hash(&mut hasher);
    (ascii, hasher.finish() | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_counted_for_the_worst_character() {
        for (pattern, due) in [
            ("", 1.0),
            ("^a12$", 2.0),
            ("[a-c][b-d][c-e]", 4.0),
            ("[a-c]+[a-c]", 2.0),
            // Each byte of a letter beyond ASCII is one.
            ("é.", 4.0),
            ("(", 1.0),
        ] {
            assert!(
                (overlap(pattern) - due).abs() < 1e-9,
                "{pattern}: {}",
                overlap(pattern)
            );
        }
    }
}
