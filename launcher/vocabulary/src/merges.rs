//! From ranked pieces to ranked pairs.
//!
//! `SentencePiece` and tiktoken merge the two neighbours whose joined text has the best rank, the leftmost among
//! equals. The library that reads `tokenizer.json` ranks pairs. A piece's pairs stand together in its list, so only one
//! thing can differ: two places that would become the *same* piece by different pairs and share a symbol,
//! `s1 s2 s3` with `s1 + s2 = s2 + s3`. There `s2` both starts and ends the piece; the pair of the left place is put
//! first. (For a piece that is one text several times over both orders are asked for; the longer left half goes first,
//! as merging from the left makes it.)

/// Where a piece can be cut into two pieces, the best first.
pub(crate) fn splits(
    piece: &[u8],
    can_cut: impl Fn(usize) -> bool,
    is_piece: impl Fn(&[u8]) -> bool,
) -> Vec<usize> {
    let length = piece.len();
    let mut cuts: Vec<usize> = (1..length)
        .rev()
        .filter(|&cut| can_cut(cut) && is_piece(&piece[..cut]) && is_piece(&piece[cut..]))
        .collect();
    let is_border = |border: usize| piece[..border] == piece[length - border..];
    for small in 1..length.div_ceil(2) {
        let large = length - small;
        if is_border(large) && !is_border(small) {
            let place = |cut| cuts.iter().position(|&other| other == cut);
            if let (Some(left), Some(right)) = (place(small), place(large)) {
                cuts.swap(left, right);
            }
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_left_of_two_places_that_share_a_symbol_comes_first() {
        let splits = |piece: &str| splits(piece.as_bytes(), |_| true, |_| true);
        // ab|a|ba: `aba` of (ab, a) before `aba` of (a, ba).
        assert_eq!(splits("aba"), [2, 1]);
        // ab|abab|ab: `ababab` of (ab, abab) is at the left, of (abab, ab) at the right; a power: the longer left half.
        assert_eq!(splits("aaa"), [2, 1]);
        // ab|aba|ba: (ab, aba) before (aba, ba).
        assert_eq!(splits("ababa"), [4, 2, 3, 1]);
        assert_eq!(splits("abc"), [2, 1]);
    }

    #[test]
    fn halves_are_pieces_and_cuts_lie_between_characters() {
        let text = "é1";
        let cuts = splits(text.as_bytes(), |cut| text.is_char_boundary(cut), |_| true);
        assert_eq!(cuts, [2]);
        assert!(splits(b"abc", |_| true, |half| half == b"ab").is_empty());
    }
}
