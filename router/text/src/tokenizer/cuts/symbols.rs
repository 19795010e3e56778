//! Characters as the places of cuts know them: each of ASCII, and some ranges whose characters no Unicode version since
//! the first treated differently from each other. Whatever engine reads a class holds all of a range or nothing of it, and
//! they neither compose with what stands before them nor change when a text is normalised to NFC.

const ASCII: usize = 128;

/// First and last character.
const RANGES: [(char, char); 15] = [
    // Cyrillic, large and small.
    ('\u{410}', '\u{42F}'),
    ('\u{430}', '\u{44F}'),
    // Hebrew, Arabic, Devanagari, Thai: letters alone.
    ('\u{5D0}', '\u{5EA}'),
    ('\u{627}', '\u{63A}'),
    ('\u{641}', '\u{64A}'),
    ('\u{905}', '\u{928}'),
    ('\u{E01}', '\u{E30}'),
    // Ideographic comma and full stop, kana, ideographs, Hangul.
    ('\u{3001}', '\u{3002}'),
    ('\u{3041}', '\u{3094}'),
    ('\u{30A1}', '\u{30FA}'),
    ('\u{4E00}', '\u{9FA5}'),
    ('\u{AC00}', '\u{D7A3}'),
    // Full-width `!`, `,`, `?`.
    ('\u{FF01}', '\u{FF01}'),
    ('\u{FF0C}', '\u{FF0C}'),
    ('\u{FF1F}', '\u{FF1F}'),
];

/// How many symbols there are.
pub(super) const COUNT: usize = ASCII + RANGES.len();

/// The symbol of a character, if it has one.
pub(super) fn of(character: char) -> Option<usize> {
    if character.is_ascii() {
        return Some(character as usize);
    }
    let range = RANGES
        .iter()
        .position(|(first, last)| (*first..=*last).contains(&character))?;
    Some(ASCII + range)
}

/// First and last character of each symbol.
pub(super) fn all() -> impl Iterator<Item = (char, char)> {
    let ascii = ('\0'..='\u{7F}').map(|character| (character, character));
    ascii.chain(RANGES)
}
