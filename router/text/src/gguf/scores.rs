//! `SentencePiece` BPE: of all neighbouring pairs whose joined text is a piece, the one with the best score is
//! merged, the leftmost among equals; what is no piece in the end is spelled in bytes.
//!
//! The library's BPE ranks *pairs*, so two ways to make one piece could never tie; here the score belongs to the
//! piece, as in `SentencePiece`. Control, unknown, user-defined, unused and byte tokens are never made by merging.

use super::vocabulary::{GgufVocabulary, TokenKind};
use crate::error::TextError;
use crate::pieces::byte_token;
use rustc_hash::FxHashMap;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use tokenizers::Token;

/// Pieces with scores.
#[derive(Debug)]
pub(crate) struct ScoreModel {
    pieces: FxHashMap<String, (u32, f32)>,
    bytes: [Option<u32>; 256],
    unknown: Option<(u32, String)>,
    longest_piece: usize,
}

/// A stretch of the text; neighbours are linked, merged ones have length 0.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    length: usize,
    previous: usize,
    next: usize,
}

/// No neighbour.
const NONE: usize = usize::MAX;

/// Two neighbours that could be merged.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Of both together when the pair was found: a pair whose halves have changed is stale.
    length: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score
            .total_cmp(&other.score)
            .then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

impl ScoreModel {
    pub(crate) fn new(vocabulary: &GgufVocabulary) -> Result<Self, TextError> {
        let mut model = Self {
            pieces: FxHashMap::default(),
            bytes: [None; 256],
            unknown: None,
            longest_piece: 0,
        };
        for (id, ((token, &kind), &score)) in (0_u32..).zip(
            vocabulary
                .tokens
                .iter()
                .zip(&vocabulary.kinds)
                .zip(&vocabulary.scores),
        ) {
            if score.is_nan() {
                return Err(TextError::Invalid(format!(
                    "tokenizer.ggml.scores[{id}] is not a number"
                )));
            }
            match kind {
                TokenKind::Normal => {
                    model.longest_piece = model.longest_piece.max(token.len());
                    model.pieces.insert(token.clone(), (id, score));
                }
                TokenKind::Byte => {
                    let byte = byte_token(token).ok_or_else(|| {
                        TextError::Invalid(format!(
                            "tokenizer.ggml.tokens[{id}] is no byte: {token:?}"
                        ))
                    })?;
                    model.bytes[usize::from(byte)] = Some(id);
                }
                TokenKind::Unknown
                | TokenKind::Control
                | TokenKind::UserDefined
                | TokenKind::Unused => {}
            }
        }
        model.unknown = vocabulary
            .unknown_id
            .and_then(|id| Some((id, vocabulary.tokens.get(id as usize)?.clone())));
        let has_all_bytes = model.bytes.iter().all(Option::is_some);
        if !has_all_bytes && model.unknown.is_none() {
            return Err(TextError::Invalid(
                "neither byte tokens nor tokenizer.ggml.unknown_token_id".into(),
            ));
        }
        Ok(model)
    }

    /// Tokens of a normalised text; offsets are into it.
    pub(crate) fn tokenize(&self, text: &str) -> Vec<Token> {
        let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
        for (start, character) in text.char_indices() {
            let index = symbols.len();
            symbols.push(Symbol {
                start,
                length: character.len_utf8(),
                previous: index.checked_sub(1).unwrap_or(NONE),
                next: index + 1,
            });
        }
        if let Some(last) = symbols.last_mut() {
            last.next = NONE;
        }
        let mut queue = BinaryHeap::new();
        for right in 1..symbols.len() {
            self.propose(text, &symbols, right - 1, right, &mut queue);
        }
        while let Some(pair) = queue.pop() {
            let (left, right) = (symbols[pair.left], symbols[pair.right]);
            if left.length == 0 || right.length == 0 || left.length + right.length != pair.length {
                continue;
            }
            symbols[pair.left].length = pair.length;
            symbols[pair.left].next = right.next;
            symbols[pair.right].length = 0;
            if right.next != NONE {
                symbols[right.next].previous = pair.left;
                self.propose(text, &symbols, pair.left, right.next, &mut queue);
            }
            if left.previous != NONE {
                self.propose(text, &symbols, left.previous, pair.left, &mut queue);
            }
        }
        let mut tokens = Vec::new();
        for symbol in symbols.iter().filter(|symbol| symbol.length > 0) {
            self.emit(
                text,
                symbol.start,
                symbol.start + symbol.length,
                &mut tokens,
            );
        }
        tokens
    }

    fn propose(
        &self,
        text: &str,
        symbols: &[Symbol],
        left: usize,
        right: usize,
        queue: &mut BinaryHeap<Pair>,
    ) {
        let length = symbols[left].length + symbols[right].length;
        if length > self.longest_piece {
            return;
        }
        let start = symbols[left].start;
        if let Some(&(_, score)) = self.pieces.get(&text[start..start + length]) {
            queue.push(Pair {
                score,
                left,
                right,
                length,
            });
        }
    }

    fn emit(&self, text: &str, start: usize, end: usize, tokens: &mut Vec<Token>) {
        let piece = &text[start..end];
        if let Some(&(id, _)) = self.pieces.get(piece) {
            tokens.push(Token::new(id, piece.to_owned(), (start, end)));
            return;
        }
        let bytes: Option<Vec<u32>> = piece
            .bytes()
            .map(|byte| self.bytes[usize::from(byte)])
            .collect();
        match (bytes, &self.unknown) {
            (Some(ids), _) => tokens.extend(
                ids.into_iter()
                    .map(|id| Token::new(id, piece.to_owned(), (start, end))),
            ),
            (None, Some((id, unknown))) => {
                tokens.push(Token::new(*id, unknown.clone(), (start, end)));
            }
            (None, None) => {}
        }
    }
}
