//! Large texts are encoded part by part: the library needs a hundred times the memory of what it encodes at once, and of
//! a text that is cut to its last ids nothing else has to be encoded. Where a text may be cut without changing an id,
//! [`Cuts`](super::cuts::Cuts) knows; where it nowhere may, it is encoded as a whole.

use super::cuts::Cuts;
use super::{Encoding, Ends, SpecialText, Tokenizer};
use crate::added_tokens::Literals;
use crate::error::TextError;
use crate::prompt::RenderedPrompt;
use std::ops::Range;
use tokenizers::Token;

/// Bytes of a part, about.
const PART: usize = 64 << 10;

/// Which ids of an encoding are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All.
    All,
    /// So many from the beginning.
    First(usize),
    /// So many from the end.
    Last(usize),
}

/// How a text is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading<'a> {
    /// As `transformers` reads it.
    Parsed,
    /// With a say in which letters are added tokens.
    Literals(Literals<'a>),
}

impl Tokenizer {
    /// Encodes a text, and keeps what is wanted of it: what [`Self::encode`] gives, cut. Of a large text the rest
    /// is not even encoded, where the tokenizer allows that.
    pub fn encode_wanted(
        &self,
        text: &str,
        add_special_tokens: bool,
        special: SpecialText,
        wanted: Wanted,
    ) -> Result<Encoding, TextError> {
        let reading = match special {
            SpecialText::Parse => Reading::Parsed,
            SpecialText::Plain => Reading::Literals(Literals::AllText),
        };
        self.encode_reading(text, add_special_tokens, reading, wanted)
    }

    /// The same for a rendered chat prompt: what [`Self::encode_chat`] gives, cut.
    pub fn encode_chat_wanted(
        &self,
        prompt: &RenderedPrompt,
        wanted: Wanted,
    ) -> Result<Encoding, TextError> {
        let reading = if prompt.content_marks.is_empty() {
            Reading::Parsed
        } else {
            Reading::Literals(Literals::TextWithin(&prompt.content_marks))
        };
        self.encode_reading(&prompt.text, false, reading, wanted)
    }

    fn encode_reading(
        &self,
        text: &str,
        add_special_tokens: bool,
        reading: Reading<'_>,
        wanted: Wanted,
    ) -> Result<Encoding, TextError> {
        let cuts = self.cuts.as_ref().filter(|_| text.len() > PART);
        let cuts = cuts.and_then(|cuts| Some((cuts, self.ends(add_special_tokens)?)));
        let mut encoding = match cuts {
            Some((cuts, (first, last))) => {
                let mut encoding = self.encode_parts(cuts, text, reading, wanted)?;
                let added = |ids: &[u32]| ids.iter().map(|_| (0, 0)).collect::<Vec<_>>();
                encoding.ids.splice(0..0, first.iter().copied());
                encoding.offsets.splice(0..0, added(&first));
                encoding.offsets.extend(added(&last));
                encoding.ids.extend(last);
                encoding
            }
            None => self.finish(self.encode_part(text, reading, true)?, add_special_tokens)?,
        };
        let length = encoding.ids.len();
        let kept = match wanted {
            Wanted::All => 0..length,
            Wanted::First(count) => 0..count.min(length),
            Wanted::Last(count) => length.saturating_sub(count)..length,
        };
        if kept.len() < length {
            encoding.ids = encoding.ids[kept.clone()].to_vec();
            encoding.offsets = encoding.offsets[kept].to_vec();
        }
        Ok(encoding)
    }

    /// One part of a text, the first or a later one.
    fn encode_part(
        &self,
        text: &str,
        reading: Reading<'_>,
        is_first: bool,
    ) -> Result<tokenizers::Encoding, TextError> {
        match reading {
            Reading::Parsed if is_first => self.encode_parsed(text),
            // As the library reads it, but for the beginning.
            Reading::Parsed => self.encode_split_at(
                text,
                Literals::TextWithin(&[]),
                self.scores.is_some(),
                is_first,
            ),
            Reading::Literals(literals) => self.encode_split_at(text, literals, true, is_first),
        }
    }

    /// At least what is wanted, without what stands at the ends.
    fn encode_parts(
        &self,
        cuts: &Cuts,
        text: &str,
        reading: Reading<'_>,
        wanted: Wanted,
    ) -> Result<Encoding, TextError> {
        let from_end = matches!(wanted, Wanted::Last(_));
        let enough = match wanted {
            Wanted::All => usize::MAX,
            Wanted::First(count) | Wanted::Last(count) => count,
        };
        let mut parts: Vec<Encoding> = Vec::new();
        let mut left = 0..text.len();
        let mut count = 0;
        while !left.is_empty() && (count < enough || parts.is_empty()) {
            let part = if from_end {
                cuts.part_before(text, left.end)..left.end
            } else {
                left.start..cuts.part_after(text, left.start)
            };
            let encoding = self.encode_range(text, reading, part.clone())?;
            count += encoding.ids.len();
            parts.push(encoding);
            left = if from_end {
                left.start..part.start
            } else {
                part.end..left.end
            };
        }
        if from_end {
            parts.reverse();
        }
        let mut whole = Encoding::default();
        whole.ids.reserve_exact(count);
        whole.offsets.reserve_exact(count);
        for part in parts {
            whole.ids.extend(part.ids);
            whole.offsets.extend(part.offsets);
        }
        Ok(whole)
    }

    /// A part of a text, with its places in the whole text.
    pub(super) fn encode_range(
        &self,
        text: &str,
        reading: Reading<'_>,
        part: Range<usize>,
    ) -> Result<Encoding, TextError> {
        let marks;
        let reading = match reading {
            Reading::Literals(Literals::TextWithin(ranges)) => {
                marks = within(ranges, &part);
                Reading::Literals(Literals::TextWithin(&marks))
            }
            other => other,
        };
        let start = part.start;
        let encoding = self.encode_part(&text[part], reading, start == 0)?;
        let mut encoding = self.finish(encoding, false)?;
        for place in &mut encoding.offsets {
            place.0 += start;
            place.1 += start;
        }
        Ok(encoding)
    }

    /// The ids that are put before and behind any text. `None`: the post-processor does something else.
    fn ends(&self, add_special_tokens: bool) -> Option<(Vec<u32>, Vec<u32>)> {
        match self.ends {
            _ if !add_special_tokens => Some((Vec::new(), Vec::new())),
            Ends::Ids { first, last } => {
                Some((first.into_iter().collect(), last.into_iter().collect()))
            }
            Ends::PostProcessor => {
                let one = Token::new(0, String::new(), (0, 0));
                let one = tokenizers::Encoding::from_tokens(vec![one], 0);
                let around = self.library.post_process(one, None, true).ok()?;
                let is_added = around.get_special_tokens_mask();
                let place = is_added.iter().position(|mask| *mask == 0)?;
                let (first, last) = (&around.get_ids()[..place], &around.get_ids()[place + 1..]);
                let is_all = is_added.iter().filter(|mask| **mask == 0).count() == 1;
                is_all.then(|| (first.to_vec(), last.to_vec()))
            }
        }
    }
}

impl Cuts {
    /// Where the part that begins at `start` ends.
    fn part_after(&self, text: &str, start: usize) -> usize {
        let end = text.len();
        if end - start <= PART + PART / 2 {
            return end;
        }
        let near = start + PART;
        let mut places = (start + 1..=near).rev().chain(near + 1..end);
        places.find(|at| self.allows(text, *at)).unwrap_or(end)
    }

    /// Where the part that ends at `end` begins.
    fn part_before(&self, text: &str, end: usize) -> usize {
        if end <= PART + PART / 2 {
            return 0;
        }
        let near = end - PART;
        let mut places = (near..end).chain((1..near).rev());
        places.find(|at| self.allows(text, *at)).unwrap_or(0)
    }
}

/// Those of `ranges` within `part`, from its beginning.
fn within(ranges: &[Range<usize>], part: &Range<usize>) -> Vec<Range<usize>> {
    let first = ranges.partition_point(|range| range.end <= part.start);
    ranges[first..]
        .iter()
        .take_while(|range| range.start < part.end)
        .map(|range| range.start.max(part.start) - part.start..range.end.min(part.end) - part.start)
        .collect()
}
