//! Finds added tokens in a text before the model's own tokenising, as the library does, but with a say in which
//! occurrences count.
//!
//! The library can only switch special tokens off for a whole text. Chat prompts need it per occurrence: a
//! control token that the template wrote is a token, the same letters inside a user's content are text. So the
//! search is done here (leftmost-longest, first the tokens that match raw text, then those that match
//! normalised text) and everything after it (normaliser, pre-tokeniser, model) is the library's, on the same
//! splits. With nothing vetoed the result equals the library's; a property test holds that.

use aho_corasick::{AhoCorasick, Input, MatchKind};
use regex_syntax::is_word_character;
use std::ops::Range;
use tokenizers::tokenizer::normalizer::Range as StringRange;
use tokenizers::{AddedToken, NormalizedString, Normalizer, NormalizerWrapper, Token};

use crate::error::TextError;

/// Which occurrences of added tokens' text are tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Literals<'a> {
    /// None, but for runs of white space.
    AllText,
    /// All but those that start or end in one of these byte ranges of the text (sorted, disjoint).
    TextWithin(&'a [Range<usize>]),
}

impl Literals<'_> {
    fn is_text(self, first: usize, last: usize) -> bool {
        match self {
            Self::AllText => true,
            Self::TextWithin(ranges) => holds(ranges, first) || holds(ranges, last),
        }
    }
}

fn holds(ranges: &[Range<usize>], position: usize) -> bool {
    let next = ranges.partition_point(|range| range.start <= position);
    next > 0 && position < ranges[next - 1].end
}

/// One added token's way of matching.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the independent flags of an added token"
)]
struct Entry {
    id: u32,
    is_single_word: bool,
    takes_left_space: bool,
    takes_right_space: bool,
    /// Runs of white space carry no control: they are matched in contents too, as the model was trained.
    is_space: bool,
}

#[derive(Debug)]
struct Matcher {
    automaton: AhoCorasick,
    entries: Vec<Entry>,
}

/// All added tokens of a tokenizer.
#[derive(Debug)]
pub(crate) struct AddedTokens {
    raw: Option<Matcher>,
    normalized: Option<Matcher>,
    /// Text of all that are not white space.
    literals: Vec<String>,
}

type Splits = Vec<(NormalizedString, Option<Vec<Token>>)>;

impl AddedTokens {
    pub(crate) fn new(
        tokens: impl Iterator<Item = (u32, AddedToken)>,
        normalizer: Option<&NormalizerWrapper>,
    ) -> Result<Self, TextError> {
        let mut in_raw_text = Vec::new();
        let mut in_normalized_text = Vec::new();
        let mut literals = Vec::new();
        for (id, token) in tokens {
            let is_space = token.content.chars().all(char::is_whitespace);
            if !is_space {
                literals.push(token.content.clone());
            }
            let entry = Entry {
                id,
                is_single_word: token.single_word,
                takes_left_space: token.lstrip,
                takes_right_space: token.rstrip,
                is_space,
            };
            if token.normalized {
                let mut text = NormalizedString::from(token.content.as_str());
                if let Some(normalizer) = normalizer {
                    normalizer
                        .normalize(&mut text)
                        .map_err(|error| TextError::Invalid(format!("normalizer: {error}")))?;
                }
                in_normalized_text.push((text.get().to_owned(), entry));
            } else {
                in_raw_text.push((token.content, entry));
            }
        }
        literals.sort_unstable();
        Ok(Self {
            raw: Matcher::new(in_raw_text)?,
            normalized: Matcher::new(in_normalized_text)?,
            literals,
        })
    }

    /// The text of every added token that is not white space.
    pub(crate) fn literals(&self) -> &[String] {
        &self.literals
    }

    /// Whether any token matches normalised text.
    pub(crate) fn has_normalized(&self) -> bool {
        self.normalized.is_some()
    }

    /// First pass: tokens that match the raw text.
    pub(crate) fn split_raw(&self, text: &NormalizedString, literals: Literals<'_>) -> Splits {
        split(self.raw.as_ref(), text, literals)
    }

    /// Second pass, on what the first left over, after the normaliser.
    pub(crate) fn split_normalized(
        &self,
        text: &NormalizedString,
        literals: Literals<'_>,
    ) -> Splits {
        split(self.normalized.as_ref(), text, literals)
    }
}

impl Matcher {
    fn new(tokens: Vec<(String, Entry)>) -> Result<Option<Self>, TextError> {
        let (texts, entries): (Vec<String>, Vec<Entry>) = tokens
            .into_iter()
            .filter(|(text, _)| !text.is_empty())
            .unzip();
        if texts.is_empty() {
            return Ok(None);
        }
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&texts)
            .map_err(|error| TextError::Invalid(format!("added tokens: {error}")))?;
        Ok(Some(Self { automaton, entries }))
    }
}

fn split(matcher: Option<&Matcher>, text: &NormalizedString, literals: Literals<'_>) -> Splits {
    let Some(matcher) = matcher else {
        return vec![(text.clone(), None)];
    };
    let sentence = text.get();
    let mut splits = Vec::new();
    let mut piece = |range: Range<usize>, id: Option<u32>| {
        let Some(slice) = text.slice(StringRange::Normalized(range)) else {
            return;
        };
        let tokens = id.map(|id| {
            let value = slice.get().to_owned();
            let end = value.len();
            vec![Token::new(id, value, (0, end))]
        });
        splits.push((slice, tokens));
    };
    let mut from = 0;
    let mut done = 0;
    while let Some(found) = matcher
        .automaton
        .find(Input::new(sentence).span(from..sentence.len()))
    {
        let entry = &matcher.entries[found.pattern().as_usize()];
        let (mut start, mut end) = (found.start(), found.end());
        if !entry.is_space && is_vetoed(text, start..end, literals) {
            // What starts inside the broken occurrence may still be the template's.
            from = start + sentence[start..].chars().next().map_or(1, char::len_utf8);
            continue;
        }
        from = end;
        if entry.is_single_word
            && (sentence[..start]
                .chars()
                .next_back()
                .is_some_and(is_word_character)
                || sentence[end..]
                    .chars()
                    .next()
                    .is_some_and(is_word_character))
        {
            continue;
        }
        if entry.takes_left_space {
            start = sentence[..start].trim_end().len().max(done);
        }
        // As in the library, a token of white space that a neighbour has taken already still counts.
        if entry.takes_right_space {
            end = sentence.len() - sentence[end..].trim_start().len();
        }
        if done < start {
            piece(done..start, None);
        }
        piece(start..end, Some(entry.id));
        done = end;
    }
    if done < sentence.len() {
        piece(done..sentence.len(), None);
    }
    splits
}

fn is_vetoed(text: &NormalizedString, found: Range<usize>, literals: Literals<'_>) -> bool {
    let shift = text.offsets_original().0;
    match text.convert_offsets(StringRange::Normalized(found)) {
        Some(original) => literals.is_text(
            shift + original.start,
            shift + original.end.saturating_sub(1),
        ),
        None => false,
    }
}
