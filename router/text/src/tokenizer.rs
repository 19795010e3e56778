//! Text to ids.

mod apart;
mod chunks;
mod config;
mod cuts;
mod fewest;
mod gguf;
mod letters;
mod probe;
#[cfg(test)]
mod tests;

pub use chunks::Wanted;

use crate::added_tokens::{AddedTokens, Literals};
use crate::error::TextError;
use crate::gguf::ScoreModel;
use crate::pieces::{Piece, PieceTable, VocabularyEntry};
use crate::prompt::RenderedPrompt;
use apart::MadeByModel;
use config::{NamedTokens, TokenizerConfig};
use cuts::Cuts;
use fewest::FewestTokens;
use letters::LetterRules;
use probe::read_library;
use std::collections::BTreeMap;
use std::path::Path;
use tokenizers::{
    Model, Normalizer, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer as Library,
};

/// What an added token's text in the input means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialText {
    /// The token, as `transformers` reads it (raw prompts: their clients apply templates themselves).
    Parse,
    /// The letters.
    Plain,
}

/// Ids and where they came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoding {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Start and end of each id in the input, in bytes; `(0, 0)` for ids that were added.
    pub offsets: Vec<(usize, usize)>,
}

/// Who adds the beginning and the end of a sequence.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// The post-processor of `tokenizer.json`.
    PostProcessor,
    /// These ids: the configuration or the GGUF metadata decides.
    Ids {
        first: Option<u32>,
        last: Option<u32>,
    },
}

/// A model's tokenizer. Immutable; share it in an `Arc`.
pub struct Tokenizer {
    library: Library,
    /// `SentencePiece`'s way of merging, which the library's model does not do exactly.
    scores: Option<ScoreModel>,
    /// Rules for letters that go before the library's normalizer.
    letters: Option<LetterRules>,
    added: AddedTokens,
    made_by_model: MadeByModel,
    pieces: PieceTable,
    ends: Ends,
    named: NamedTokens,
    fewest: Option<FewestTokens>,
    /// Where large texts may be cut, if anywhere.
    cuts: Option<Cuts>,
    /// `tokenizer.chat_template` of GGUF metadata.
    gguf_template: Option<String>,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Tokenizer")
            .field("vocab_size", &self.vocab_size())
            .field("ends", &self.ends)
            .finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// From `tokenizer.json` and, where there is one, `tokenizer_config.json` (named tokens, tokens that the
    /// first lacks, `add_bos_token`, `add_eos_token`).
    pub fn from_file(path: &Path, config: Option<&Path>) -> Result<Self, TextError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|error| TextError::Read {
                path: path.to_path_buf(),
                reason: error.to_string(),
            })
        };
        let json = read(path)?;
        let config = match config {
            Some(config_path) => TokenizerConfig::from_json(&read(config_path)?)
                .map_err(|error| error.in_file(config_path))?,
            None => TokenizerConfig::default(),
        };
        Self::from_json(&json, &config).map_err(|error| error.in_file(path))
    }

    /// From the contents of `tokenizer.json` alone.
    pub fn from_bytes(json: &[u8]) -> Result<Self, TextError> {
        Self::from_json(json, &TokenizerConfig::default())
    }

    fn from_json(json: &[u8], config: &TokenizerConfig) -> Result<Self, TextError> {
        let (letters, rest) = LetterRules::take_out(json)?.unzip();
        let json = rest.as_deref().unwrap_or(json);
        let mut library = read_library(json)?;
        // Lengths are the validation's business, not the tokenizer's.
        library.with_padding(None);
        library
            .with_truncation(None)
            .map_err(|error| TextError::Invalid(error.to_string()))?;
        library.set_encode_special_tokens(false);
        config.add_missing_tokens(&mut library)?;

        let vocabulary_end = library
            .get_vocab(true)
            .into_values()
            .max()
            .map_or(0, |last| last.saturating_add(1));
        if vocabulary_end as usize > json.len() {
            return Err(TextError::Invalid(format!(
                "an id as large as {}",
                vocabulary_end - 1
            )));
        }
        let pieces = {
            let added = library.get_added_vocabulary();
            let entries = (0..vocabulary_end).map(|id| {
                let token = added
                    .simple_id_to_token(id)
                    .or_else(|| library.get_model().id_to_token(id))?;
                Some(VocabularyEntry {
                    is_special: added.is_special_token(&token),
                    token,
                })
            });
            PieceTable::new(entries, library.get_decoder())?
        };
        let names = config.named_tokens(&library);
        let ends = match config.ends {
            None => Ends::PostProcessor,
            Some(adds) => Ends::Ids {
                first: names.bos_id.filter(|_| adds.bos),
                last: names.eos_ids.first().copied().filter(|_| adds.eos),
            },
        };
        let tokenizer = Self {
            fewest: if letters.is_none() {
                FewestTokens::new(&library, &pieces)
            } else {
                None
            },
            cuts: if letters.is_none() {
                Cuts::new(&library, false)
            } else {
                None
            },
            added: added_tokens(&library)?,
            made_by_model: MadeByModel::new(&library),
            library,
            scores: None,
            letters,
            pieces,
            ends,
            named: names,
            gguf_template: None,
        };
        tokenizer.probe()?;
        Ok(tokenizer)
    }

    /// Encodes a text.
    pub fn encode(
        &self,
        text: &str,
        add_special_tokens: bool,
        special: SpecialText,
    ) -> Result<Encoding, TextError> {
        self.encode_wanted(text, add_special_tokens, special, Wanted::All)
    }

    fn encode_unfinished(
        &self,
        text: &str,
        special: SpecialText,
    ) -> Result<tokenizers::Encoding, TextError> {
        match special {
            SpecialText::Parse => self.encode_parsed(text),
            SpecialText::Plain => self.encode_split(text, Literals::AllText),
        }
    }

    /// A number of ids that encoding `text` yields at least, for next to nothing. 0 where the tokenizer allows no
    /// such bound.
    pub fn fewest_tokens(&self, text: &str) -> usize {
        self.fewest.as_ref().map_or(0, |fewest| fewest.of(text))
    }

    /// Encodes a rendered chat prompt. Nothing is added: templates write the beginning themselves. An added
    /// token's text that came out of a content stays text; everything else is encoded as by [`Self::encode`].
    pub fn encode_chat(&self, prompt: &RenderedPrompt) -> Result<Encoding, TextError> {
        self.encode_chat_wanted(prompt, Wanted::All)
    }

    fn encode_parsed(&self, text: &str) -> Result<tokenizers::Encoding, TextError> {
        if self.scores.is_some() || self.letters.is_some() {
            return self.encode_split(text, Literals::TextWithin(&[]));
        }
        // Post-processing is left to `finish`, but for what the post-processor does to offsets.
        self.library_encoding(text)
    }

    fn library_encoding(&self, text: &str) -> Result<tokenizers::Encoding, TextError> {
        let splits = self
            .library
            .get_added_vocabulary()
            .extract_and_normalize(self.library.get_normalizer(), text);
        self.encode_splits(splits, false)
    }

    /// The library's pipeline with our own search for added tokens in front.
    pub(crate) fn encode_split(
        &self,
        text: &str,
        literals: Literals<'_>,
    ) -> Result<tokenizers::Encoding, TextError> {
        self.encode_split_at(text, literals, true, true)
    }

    /// The same of a text, or of a later part of one. `breaks`: an added token that the model makes of letters is broken
    /// apart.
    fn encode_split_at(
        &self,
        text: &str,
        literals: Literals<'_>,
        breaks: bool,
        is_first: bool,
    ) -> Result<tokenizers::Encoding, TextError> {
        let mut splits = PreTokenizedString::from(text);
        let normalizer = self.library.get_normalizer();
        let later = self.cuts.as_ref().map(|cuts| &cuts.later_normalizer);
        splits
            .split(|_, part| Ok(self.added.split_raw(&part, literals)))
            .and_then(|()| {
                splits.split(|index, mut part| {
                    if let Some(letters) = &self.letters {
                        letters.normalize(&mut part);
                    }
                    let normalizer = match later {
                        Some(later) if index == 0 && !is_first => later.as_ref(),
                        _ => normalizer,
                    };
                    if let Some(normalizer) = normalizer {
                        normalizer.normalize(&mut part)?;
                    }
                    Ok(self.added.split_normalized(&part, literals))
                })
            })
            .map_err(|error| TextError::Encode(error.to_string()))?;
        self.encode_splits(splits, breaks && !self.made_by_model.is_empty())
    }

    /// `breaks`: what is not split off already is text, even where the model would make an added token of it.
    fn encode_splits(
        &self,
        mut splits: PreTokenizedString,
        breaks: bool,
    ) -> Result<tokenizers::Encoding, TextError> {
        let encode = || {
            if let Some(pre_tokenizer) = self.library.get_pre_tokenizer() {
                pre_tokenizer.pre_tokenize(&mut splits)?;
            }
            match &self.scores {
                Some(model) => splits.tokenize(|part| Ok(model.tokenize(part.get())))?,
                None if breaks => {
                    splits
                        .tokenize(|part| self.made_by_model.tokenize(&self.library, part.get()))?;
                }
                None => self
                    .library
                    .get_model()
                    .tokenize_in_pretokenized(&mut splits, None)?,
            }
            splits.into_encoding(None, 0, OffsetType::Byte)
        };
        encode().map_err(|error: tokenizers::Error| TextError::Encode(error.to_string()))
    }

    fn finish(
        &self,
        encoding: tokenizers::Encoding,
        add_special_tokens: bool,
    ) -> Result<Encoding, TextError> {
        let uses_processor = matches!(self.ends, Ends::PostProcessor);
        // Without additions the post-processor still trims offsets.
        let encoding = self
            .library
            .post_process(encoding, None, add_special_tokens && uses_processor)
            .map_err(|error| TextError::Encode(error.to_string()))?;
        let mut out = Encoding {
            ids: encoding.get_ids().to_vec(),
            offsets: encoding.get_offsets().to_vec(),
        };
        if add_special_tokens && let Ends::Ids { first, last } = self.ends {
            if let Some(first) = first {
                out.ids.insert(0, first);
                out.offsets.insert(0, (0, 0));
            }
            if let Some(last) = last {
                out.ids.push(last);
                out.offsets.push((0, 0));
            }
        }
        Ok(out)
    }

    /// One more than the largest id. The model's output may be wider (padding); such ids have no text.
    pub fn vocab_size(&self) -> u32 {
        u32::try_from(self.pieces.len()).unwrap_or(u32::MAX)
    }

    /// Whether decoded text skips this id.
    pub fn is_special(&self, id: u32) -> bool {
        self.pieces.is_special(id)
    }

    /// What an id stands for in the middle of a text.
    pub fn piece(&self, id: u32) -> Piece<'_> {
        self.pieces.piece(id)
    }

    /// The bytes of an id in the middle of a text, special tokens' text included (`bytes` of logprobs).
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.pieces.bytes(id)
    }

    /// What goes before every id's bytes in the middle of a text: nothing, but for a tokenizer without a decoder.
    pub fn separator(&self) -> &[u8] {
        self.pieces.separator()
    }

    /// The text of one id by itself, for logprobs, top tokens and prompt tokens: a leading space is kept, special
    /// tokens are shown, half a character is U+FFFD.
    pub fn token_text(&self, id: u32) -> String {
        String::from_utf8_lossy(self.pieces.bytes(id)).into_owned()
    }

    /// The id of a token, given as the vocabulary spells it.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.library.token_to_id(token)
    }

    /// The token of an id, as the vocabulary spells it.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.library.id_to_token(id)
    }

    /// Beginning of sequence.
    pub fn bos_id(&self) -> Option<u32> {
        self.named.bos_id
    }

    /// End of sequence and, in GGUF files, end of turn. `generation_config.json` goes before these.
    pub fn eos_ids(&self) -> &[u32] {
        &self.named.eos_ids
    }

    /// Texts of the named tokens (`bos_token`, `eos_token` …).
    pub fn named_tokens(&self) -> &BTreeMap<String, String> {
        &self.named.texts
    }

    /// The template in the GGUF metadata.
    pub(crate) fn gguf_template(&self) -> Option<&str> {
        self.gguf_template.as_deref()
    }

    pub(crate) fn pieces(&self) -> &PieceTable {
        &self.pieces
    }

    /// The text of every added token that is not white space.
    pub(crate) fn added_literals(&self) -> &[String] {
        self.added.literals()
    }

    /// Whether normalising can turn other letters into an added token's.
    pub(crate) fn normalizes_added_tokens(&self) -> bool {
        let normalizes = self.library.get_normalizer().is_some() || self.letters.is_some();
        self.added.has_normalized() && normalizes
    }
}

fn added_tokens(library: &Library) -> Result<AddedTokens, TextError> {
    AddedTokens::new(
        library.get_added_tokens_decoder().into_iter(),
        library.get_normalizer(),
    )
}
