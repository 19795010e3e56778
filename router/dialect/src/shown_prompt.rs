//! A prompt as answers show it: its ids and, for `echo`, its text and where in it each id begins.

use headrace_text::{Detokenizer, Tokenizer};
use std::sync::Arc;

/// One prompt of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownPrompt {
    /// Its ids.
    pub ids: Arc<[u32]>,
    /// Its text, where the answer begins with it.
    pub echo: Option<Arc<EchoText>>,
}

/// The text of a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EchoText {
    /// As it was sent; for ids, as output is decoded.
    pub text: String,
    /// Characters of `text` before each id's.
    pub offsets: Vec<usize>,
    /// Characters of `text`.
    pub characters: usize,
}

impl EchoText {
    /// Of a prompt that was sent as `text`; `places` are the bytes that each id came from, `(0, 0)` for ids that were
    /// added.
    pub fn of_text(
        tokenizer: &Arc<Tokenizer>,
        text: &str,
        ids: &[u32],
        places: &[(usize, usize)],
    ) -> Self {
        let was_added = |index: usize| places.get(index).is_none_or(|place| *place == (0, 0));
        let walked = Self::walk(tokenizer, ids, |index| !was_added(index));
        if walked.text == text {
            return walked;
        }
        // The ids say something else than was sent: a normaliser changed it, or a space was put in front.
        let mut offsets = Vec::with_capacity(ids.len());
        let mut before = Characters::of(text);
        let mut end = 0;
        for index in 0..ids.len() {
            let place = places.get(index).copied().unwrap_or_default();
            // Places may leave white space out, and parts of one character share its place.
            let start = if was_added(index) {
                end
            } else {
                place.0.min(end)
            };
            offsets.push(before.up_to(start));
            end = end.max(place.1);
        }
        Self {
            text: text.to_owned(),
            offsets,
            characters: text.chars().count(),
        }
    }

    /// Of a prompt that was sent as ids.
    pub fn of_ids(tokenizer: &Arc<Tokenizer>, ids: &[u32], shows_special: bool) -> Self {
        Self::walk(tokenizer, ids, |_| shows_special)
    }

    /// Without all but the first `keep` ids and what they stand for.
    #[must_use]
    pub fn keep_first(mut self, keep: usize) -> Self {
        if let Some(&kept) = self.offsets.get(keep) {
            self.text = self.text.chars().take(kept).collect();
            self.offsets.truncate(keep);
            self.characters = kept;
        }
        self
    }

    /// Without all but the last `keep` ids and what they stand for.
    #[must_use]
    pub fn keep_last(self, keep: usize) -> Self {
        let dropped = self.offsets.len().saturating_sub(keep);
        if dropped == 0 {
            return self;
        }
        let gone = self
            .offsets
            .get(dropped)
            .copied()
            .unwrap_or(self.characters);
        Self {
            text: self.text.chars().skip(gone).collect(),
            offsets: self
                .offsets
                .iter()
                .skip(dropped)
                .map(|offset| offset - gone)
                .collect(),
            characters: self.characters - gone,
        }
    }

    fn walk(
        tokenizer: &Arc<Tokenizer>,
        ids: &[u32],
        shows_special: impl Fn(usize) -> bool,
    ) -> Self {
        let mut detokenizer = Detokenizer::new(Arc::clone(tokenizer), &[]);
        let mut walked = Self::default();
        for (index, id) in ids.iter().enumerate() {
            walked.offsets.push(walked.characters);
            if tokenizer.is_special(*id) {
                if shows_special(index) {
                    walked.push(&detokenizer.finish());
                    walked.push(&detokenizer.push(*id).token_text);
                }
            } else {
                walked.push(&detokenizer.push(*id).text);
            }
        }
        walked.push(&detokenizer.finish());
        walked
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.characters += text.chars().count();
    }
}

/// Counts characters up to places that mostly grow.
struct Characters<'a> {
    text: &'a str,
    byte: usize,
    count: usize,
}

impl<'a> Characters<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            text,
            byte: 0,
            count: 0,
        }
    }

    /// Whole characters before a byte.
    fn up_to(&mut self, byte: usize) -> usize {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        if byte < self.byte {
            (self.byte, self.count) = (0, 0);
        }
        self.count += self.text[self.byte..byte].chars().count();
        self.byte = byte;
        self.count
    }
}
