//! Tokenizers out of GGUF metadata (`tokenizer.ggml.*`).
//!
//! Two models are built: `gpt2` (byte-level BPE with merges, its pre-tokeniser named by `tokenizer.ggml.pre`) and
//! `llama` (`SentencePiece` BPE: merges by score, with byte fallback). Every other model, and every `pre` that is
//! not in the table, is refused by name: a near-miss would give other ids without a word.

mod pre_tokenizer;
mod scores;
mod vocabulary;

pub(crate) use scores::ScoreModel;
pub use vocabulary::{GgufVocabulary, TokenKind, VocabularyModel};

use crate::error::TextError;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as DecoderSequence;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::BPE;
use tokenizers::models::bpe::Vocab;
use tokenizers::normalizers::{Prepend, Replace, Sequence as NormalizerSequence};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper, Tokenizer as Library};

/// `SentencePiece`'s mark for a space.
const SPACE_MARK: &str = "\u{2581}";

/// What a vocabulary makes.
pub(crate) struct Built {
    pub(crate) library: Library,
    pub(crate) scores: Option<ScoreModel>,
    pub(crate) adds_bos: bool,
    pub(crate) adds_eos: bool,
}

/// Builds the pipeline.
pub(crate) fn build(vocabulary: &GgufVocabulary) -> Result<Built, TextError> {
    vocabulary.check()?;
    let mut built = match vocabulary.model {
        VocabularyModel::Gpt2 => byte_level(vocabulary)?,
        VocabularyModel::Llama => sentence_piece(vocabulary)?,
    };
    let added = vocabulary
        .tokens
        .iter()
        .zip(&vocabulary.kinds)
        .filter(|(_, kind)| kind.is_added())
        .map(|(token, kind)| {
            // Their text is matched as it stands, before any normalising.
            AddedToken::from(token.clone(), kind.is_special()).normalized(false)
        });
    built
        .library
        .add_tokens(added)
        .map_err(|error| TextError::Invalid(format!("special tokens: {error}")))?;
    Ok(built)
}

fn ids(vocabulary: &GgufVocabulary) -> Vocab {
    (0..)
        .zip(&vocabulary.tokens)
        .map(|(id, token)| (token.clone(), id))
        .collect()
}

fn byte_level(vocabulary: &GgufVocabulary) -> Result<Built, TextError> {
    let kind = pre_tokenizer::find(vocabulary.pre.as_deref())?;
    let ids = ids(vocabulary);
    let merges = vocabulary
        .merges
        .iter()
        .enumerate()
        .map(|(index, merge)| {
            let refuse = |why| TextError::Invalid(format!("tokenizer.ggml.merges[{index}] {why}"));
            let (left, right) = merge
                .split_once(' ')
                .ok_or_else(|| refuse("has no space between its two tokens"))?;
            // The library panics on some merges into what is no token.
            if !ids.contains_key(&[left, right].concat()) {
                return Err(refuse("makes a token that is not in tokenizer.ggml.tokens"));
            }
            Ok((left.to_owned(), right.to_owned()))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let model = BPE::builder()
        .vocab_and_merges(ids, merges)
        .ignore_merges(kind.takes_whole_words)
        .build()
        .map_err(|error| TextError::Invalid(format!("tokenizer.ggml.merges: {error}")))?;
    let mut library = Library::new(model);
    library.with_pre_tokenizer(Some(kind.build()?));
    library.with_decoder(Some(ByteLevel::default()));
    Ok(Built {
        library,
        scores: None,
        adds_bos: vocabulary.add_bos.unwrap_or(kind.adds_bos),
        adds_eos: vocabulary.add_eos.unwrap_or(false),
    })
}

/// The library's model only knows the ids here; [`ScoreModel`] does the merging.
fn sentence_piece(vocabulary: &GgufVocabulary) -> Result<Built, TextError> {
    let scores = ScoreModel::new(vocabulary)?;
    let model = BPE::builder()
        .vocab_and_merges(ids(vocabulary), Vec::new())
        .build()
        .map_err(|error| TextError::Invalid(format!("tokenizer.ggml.tokens: {error}")))?;
    let mut library = Library::new(model);
    let invalid = |error: tokenizers::Error| TextError::Invalid(error.to_string());
    let adds_space = vocabulary.add_space_prefix.unwrap_or(true);
    let mut steps: Vec<NormalizerWrapper> = Vec::new();
    if adds_space {
        steps.push(Prepend::new(SPACE_MARK.to_owned()).into());
    }
    steps.push(Replace::new(" ", SPACE_MARK).map_err(invalid)?.into());
    library
        .with_normalizer(Some(NormalizerSequence::new(steps)))
        .map_err(invalid)?;
    let mut chain: Vec<DecoderWrapper> = vec![
        DecoderWrapper::Replace(Replace::new(SPACE_MARK, " ").map_err(invalid)?),
        ByteFallback::new().into(),
        Fuse::new().into(),
    ];
    if adds_space {
        chain.push(Strip::new(' ', 1, 0).into());
    }
    library.with_decoder(Some(DecoderSequence::new(chain)));
    Ok(Built {
        library,
        scores: Some(scores),
        adds_bos: vocabulary.add_bos.unwrap_or(true),
        adds_eos: vocabulary.add_eos.unwrap_or(false),
    })
}
