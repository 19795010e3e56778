//! Where a text may be cut in two so that the ids of both parts, one after the other, are the ids of the whole.
//!
//! Two kinds of tokenizers have such places. Most cut a text into pieces by regular expressions, and no id reaches over the
//! end of a piece: where no match can hold the two characters around a place one after the other, and one begins with the
//! second, the pieces end there wherever the search began (`expression`). Others (`SentencePiece`'s) merge whole texts, but
//! have no token that holds a space behind a letter: no merge reaches over it.
//!
//! Around such a place stand no letters of an added token, and before it no white space, which an added token might
//! swallow. A tokenizer with anything else in it (a normaliser that reads further, an unknown step) has no such places.

mod expression;
mod symbols;
#[cfg(test)]
mod tests;

use aho_corasick::AhoCorasick;
use expression::Facts;
use rustc_hash::FxHashSet;
use symbols::COUNT;
use tokenizers::normalizers::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior;
use tokenizers::{
    ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    Tokenizer as Library,
};

/// The library's own expression of `ByteLevel`.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// Where texts of one tokenizer may be cut.
#[derive(Debug)]
pub(super) struct Cuts {
    rule: Rule,
    /// Letters of added tokens, and the bytes of the longest.
    added: Option<(AhoCorasick, usize)>,
    /// What normalises the beginning of a part that is not the first: nothing is put in front of it.
    pub(super) later_normalizer: Option<NormalizerWrapper>,
}

#[derive(Debug)]
enum Rule {
    /// By [`COUNT`] times the symbol before, plus the one after.
    Between(Vec<bool>),
    /// Before a space, behind one of these.
    BeforeSpace(FxHashSet<char>),
}

impl Cuts {
    /// `None`: this tokenizer's texts are not cut.
    pub(super) fn new(library: &Library, has_scores: bool) -> Option<Self> {
        let ModelWrapper::BPE(model) = library.get_model() else {
            return None;
        };
        let is_plain = |affix: &Option<String>| affix.as_ref().is_none_or(String::is_empty);
        if model.dropout.is_some() || library.get_post_processor().is_some_and(reads_first) {
            return None;
        }
        let steps = normalizers(library.get_normalizer());
        let added = library.get_added_tokens_decoder();
        // Their letters would have to be looked for in the normalised text.
        if !steps.is_empty() && added.values().any(|token| token.normalized) {
            return None;
        }
        let by_pieces = if has_scores {
            None
        } else {
            by_pieces(library, &steps)
        };
        let rule = match by_pieces {
            Some(rule) => rule,
            None if (has_scores || !model.ignore_merges)
                && is_plain(&model.continuing_subword_prefix)
                && is_plain(&model.end_of_word_suffix) =>
            {
                by_vocabulary(library, &steps)?
            }
            None => return None,
        };
        let texts: Vec<&str> = added
            .values()
            .map(|token| token.content.as_str())
            .filter(|text| !text.is_empty())
            .collect();
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let added = if texts.is_empty() {
            None
        } else {
            Some((AhoCorasick::new(&texts).ok()?, longest))
        };
        let later = steps
            .into_iter()
            .filter(|step| !matches!(step, NormalizerWrapper::Prepend(_)));
        Some(Self {
            rule,
            added,
            later_normalizer: match later.cloned().collect::<Vec<_>>() {
                steps if steps.is_empty() => None,
                steps => Some(Sequence::new(steps).into()),
            },
        })
    }

    /// Whether the ids of `text` are those of its two parts.
    pub(super) fn allows(&self, text: &str, at: usize) -> bool {
        let Some((left, right)) = text.split_at_checked(at) else {
            return false;
        };
        let (Some(before), Some(after)) = (left.chars().next_back(), right.chars().next()) else {
            return false;
        };
        if before.is_whitespace() {
            return false;
        }
        let is_apart = match &self.rule {
            Rule::Between(apart) => match (symbols::of(before), symbols::of(after)) {
                (Some(before), Some(after)) => apart[before * COUNT + after],
                _ => false,
            },
            Rule::BeforeSpace(letters) => after == ' ' && letters.contains(&before),
        };
        is_apart && !self.touches_added(text, at)
    }

    /// Whether an added token's letters end, begin or go on here.
    fn touches_added(&self, text: &str, at: usize) -> bool {
        let Some((automaton, longest)) = &self.added else {
            return false;
        };
        let from = at.saturating_sub(*longest);
        let to = (at + longest).min(text.len());
        let mut found = automaton.find_overlapping_iter(&text.as_bytes()[from..to]);
        found.any(|found| from + found.start() <= at && at <= from + found.end())
    }
}

/// The steps of a normaliser, one after the other.
fn normalizers(normalizer: Option<&NormalizerWrapper>) -> Vec<&NormalizerWrapper> {
    match normalizer {
        None => Vec::new(),
        Some(NormalizerWrapper::Sequence(steps)) => steps
            .as_ref()
            .iter()
            .flat_map(|step| normalizers(Some(step)))
            .collect(),
        Some(step) => vec![step],
    }
}

/// Whether a post-processor treats the first id's place differently.
fn reads_first(processor: &PostProcessorWrapper) -> bool {
    fn trims(value: &serde_json::Value) -> bool {
        let flag = |key: &str| value.get(key).and_then(serde_json::Value::as_bool) == Some(true);
        let parts = value
            .get("processors")
            .and_then(serde_json::Value::as_array);
        (flag("trim_offsets") && flag("add_prefix_space"))
            || parts.is_some_and(|parts| parts.iter().any(trims))
    }
    serde_json::to_value(processor).map_or(true, |value| trims(&value))
}

/// For tokenizers whose pre-tokenizer cuts by expressions.
fn by_pieces(library: &Library, normalizers: &[&NormalizerWrapper]) -> Option<Rule> {
    let is_local = |step: &&NormalizerWrapper| matches!(step, NormalizerWrapper::NFC(_));
    if !normalizers.iter().all(is_local) {
        return None;
    }
    let mut facts = Facts::none();
    let mut only_spaces = false;
    let steps = match library.get_pre_tokenizer()? {
        PreTokenizerWrapper::Sequence(steps) => steps.as_ref(),
        step => std::slice::from_ref(step),
    };
    let (last, before) = steps.split_last()?;
    for step in before {
        facts.and(&step_facts(step)?);
    }
    match last {
        // It maps bytes to letters: what comes after it would have to be read in these.
        PreTokenizerWrapper::ByteLevel(last) => {
            only_spaces = last.add_prefix_space;
            if last.use_regex {
                facts.and(&Facts::of(GPT2)?);
            }
        }
        last => facts.and(&step_facts(last)?),
    }
    let mut apart = vec![false; COUNT * COUNT];
    for before in (0..COUNT).filter(|before| !facts.asks_behind[*before]) {
        for after in (0..COUNT).filter(|after| facts.starts[*after]) {
            let place = before * COUNT + after;
            apart[place] = !facts.joined[place] && (!only_spaces || after == usize::from(b' '));
        }
    }
    apart.contains(&true).then_some(Rule::Between(apart))
}

/// What is known of a step that cuts.
fn step_facts(step: &PreTokenizerWrapper) -> Option<Facts> {
    match step {
        PreTokenizerWrapper::Split(Split {
            pattern: SplitPattern::Regex(expression),
            behavior,
            invert,
            ..
        }) => match (behavior, invert) {
            // The second drops what is not matched; the places between matches are the same.
            (SplitDelimiterBehavior::Isolated, false) | (SplitDelimiterBehavior::Removed, true) => {
                Facts::of(expression)
            }
            _ => None,
        },
        PreTokenizerWrapper::Digits(digits) => Facts::of(if digits.individual_digits {
            r"\p{N}"
        } else {
            r"\p{N}+"
        }),
        _ => None,
    }
}

/// For tokenizers that merge whole texts with the spaces replaced.
fn by_vocabulary(library: &Library, normalizers: &[&NormalizerWrapper]) -> Option<Rule> {
    let mut mark: Option<char> = None;
    for step in normalizers {
        match step {
            NormalizerWrapper::Prepend(_) => {}
            NormalizerWrapper::Replace(step) if mark.is_none() => {
                let value = serde_json::to_value(step).ok()?;
                if value["pattern"]["String"].as_str() != Some(" ") {
                    return None;
                }
                mark = Some(single(&step.content)?);
            }
            _ => return None,
        }
    }
    match library.get_pre_tokenizer() {
        None => {}
        // Where no space is left it splits nothing.
        Some(PreTokenizerWrapper::Split(Split {
            pattern: SplitPattern::String(text),
            ..
        })) if mark.is_some() && text == " " => {}
        Some(PreTokenizerWrapper::Metaspace(step))
            if mark.is_none_or(|mark| mark == step.get_replacement()) =>
        {
            mark = Some(step.get_replacement());
        }
        Some(_) => return None,
    }
    let mark = mark?;
    let vocabulary = library.get_vocab(false);
    if !vocabulary.contains_key(mark.encode_utf8(&mut [0; 4])) {
        return None;
    }
    let mut letters: FxHashSet<char> = vocabulary.keys().filter_map(|it| single(it)).collect();
    letters.remove(&mark);
    for token in vocabulary.keys() {
        for (place, _) in token.match_indices(mark) {
            if let Some(before) = token[..place].chars().next_back() {
                letters.remove(&before);
            }
        }
    }
    (!letters.is_empty()).then_some(Rule::BeforeSpace(letters))
}

/// The character of a text that is one.
fn single(text: &str) -> Option<char> {
    let mut letters = text.chars();
    letters.next().filter(|_| letters.next().is_none())
}
