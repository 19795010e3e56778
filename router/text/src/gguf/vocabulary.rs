//! The tokenizer's part of GGUF metadata.

use crate::error::TextError;
use headrace_checkpoint::CheckpointError;
use headrace_checkpoint::gguf::Gguf;
use std::path::Path;

/// `tokenizer.ggml.model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VocabularyModel {
    /// Byte-level BPE with merges.
    Gpt2,
    /// `SentencePiece` BPE with scores and byte fallback.
    Llama,
}

/// `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// Stands for what has no token.
    Unknown,
    /// A control token: skipped in decoded text.
    Control,
    /// Added by hand; its text is always this token.
    UserDefined,
    /// In the table only.
    Unused,
    /// One byte.
    Byte,
}

impl TokenKind {
    fn from_code(code: i32) -> Option<Self> {
        Some(match code {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Skipped in decoded text.
    pub(crate) fn is_special(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }

    /// Found in the text before the model's own tokenising.
    pub(crate) fn is_added(self) -> bool {
        matches!(self, Self::Control | Self::Unknown | Self::UserDefined)
    }
}

/// All that the metadata says about ids and text.
#[derive(Clone, Debug)]
pub struct GgufVocabulary {
    /// `tokenizer.ggml.model`.
    pub model: VocabularyModel,
    /// `tokenizer.ggml.pre`.
    pub pre: Option<String>,
    /// `tokenizer.ggml.tokens`: id is the place.
    pub tokens: Vec<String>,
    /// `tokenizer.ggml.token_type`, one a token.
    pub kinds: Vec<TokenKind>,
    /// `tokenizer.ggml.scores`, one a token (`llama`).
    pub scores: Vec<f32>,
    /// `tokenizer.ggml.merges`: `left right`, best first (`gpt2`).
    pub merges: Vec<String>,
    /// `tokenizer.ggml.bos_token_id`.
    pub bos_id: Option<u32>,
    /// `tokenizer.ggml.eos_token_id`.
    pub eos_id: Option<u32>,
    /// `tokenizer.ggml.eot_token_id`.
    pub end_of_turn_id: Option<u32>,
    /// `tokenizer.ggml.unknown_token_id`.
    pub unknown_id: Option<u32>,
    /// `tokenizer.ggml.padding_token_id`.
    pub padding_id: Option<u32>,
    /// `tokenizer.ggml.add_bos_token`; absent: the model's kind decides.
    pub add_bos: Option<bool>,
    /// `tokenizer.ggml.add_eos_token`.
    pub add_eos: Option<bool>,
    /// `tokenizer.ggml.add_space_prefix`.
    pub add_space_prefix: Option<bool>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
}

impl GgufVocabulary {
    /// Reads the metadata of a GGUF file (the first part of a split one).
    pub fn open(path: &Path) -> Result<Self, TextError> {
        let gguf = Gguf::open(path).map_err(|error| checkpoint_error(path, &error))?;
        Self::read(&gguf).map_err(|error| match error {
            ReadError::Checkpoint(error) => checkpoint_error(path, &error),
            ReadError::Text(error) => error.in_file(path),
        })
    }

    fn read(gguf: &Gguf) -> Result<Self, ReadError> {
        let model = match gguf.string("tokenizer.ggml.model")? {
            "gpt2" => VocabularyModel::Gpt2,
            "llama" => VocabularyModel::Llama,
            other => {
                return Err(
                    TextError::Unsupported(format!("tokenizer.ggml.model {other:?}")).into(),
                );
            }
        };
        let tokens = gguf.strings("tokenizer.ggml.tokens")?.to_vec();
        let kinds = match gguf.optional_i32s("tokenizer.ggml.token_type")? {
            None => vec![TokenKind::Normal; tokens.len()],
            Some(codes) => (0..)
                .zip(codes)
                .map(|(id, &code): (usize, _)| {
                    TokenKind::from_code(code).ok_or_else(|| {
                        TextError::Unsupported(format!("tokenizer.ggml.token_type[{id}] = {code}"))
                    })
                })
                .collect::<Result<_, _>>()?,
        };
        let id = |name: &str| gguf.optional_u32(&format!("tokenizer.ggml.{name}_token_id"));
        let flag = |name: &str| gguf.optional_bool(&format!("tokenizer.ggml.{name}"));
        Ok(Self {
            model,
            pre: gguf
                .optional_string("tokenizer.ggml.pre")?
                .map(str::to_owned),
            tokens,
            kinds,
            scores: gguf
                .optional_f32s("tokenizer.ggml.scores")?
                .unwrap_or_default()
                .to_vec(),
            merges: gguf
                .optional_strings("tokenizer.ggml.merges")?
                .unwrap_or_default()
                .to_vec(),
            bos_id: id("bos")?,
            eos_id: id("eos")?,
            end_of_turn_id: id("eot")?,
            unknown_id: id("unknown")?,
            padding_id: id("padding")?,
            add_bos: flag("add_bos_token")?,
            add_eos: flag("add_eos_token")?,
            add_space_prefix: flag("add_space_prefix")?,
            chat_template: gguf
                .optional_string("tokenizer.chat_template")?
                .map(str::to_owned),
        })
    }

    /// Lengths that must agree and ids that must exist.
    pub(crate) fn check(&self) -> Result<(), TextError> {
        let size = self.tokens.len();
        let invalid = |what: String| Err(TextError::Invalid(what));
        if size == 0 {
            return invalid("tokenizer.ggml.tokens is empty".into());
        }
        if u32::try_from(size).is_err() {
            return invalid(format!("tokenizer.ggml.tokens has {size} entries"));
        }
        if self.kinds.len() != size {
            return invalid(format!(
                "tokenizer.ggml.token_type has {} entries for {size} tokens",
                self.kinds.len()
            ));
        }
        match self.model {
            VocabularyModel::Llama if self.scores.len() != size => invalid(format!(
                "tokenizer.ggml.scores has {} entries for {size} tokens",
                self.scores.len()
            )),
            VocabularyModel::Gpt2 if self.merges.is_empty() => {
                invalid("tokenizer.ggml.merges is missing or empty".into())
            }
            VocabularyModel::Llama | VocabularyModel::Gpt2 => {
                for (name, id) in [
                    ("bos", self.bos_id),
                    ("eos", self.eos_id),
                    ("eot", self.end_of_turn_id),
                    ("unknown", self.unknown_id),
                ] {
                    if id.is_some_and(|id| id as usize >= size) {
                        return invalid(format!(
                            "tokenizer.ggml.{name}_token_id is outside the vocabulary of {size}"
                        ));
                    }
                }
                Ok(())
            }
        }
    }
}

enum ReadError {
    Checkpoint(CheckpointError),
    Text(TextError),
}

impl From<CheckpointError> for ReadError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

impl From<TextError> for ReadError {
    fn from(error: TextError) -> Self {
        Self::Text(error)
    }
}

fn checkpoint_error(path: &Path, error: &CheckpointError) -> TextError {
    // Its message names the file itself.
    let text = error.to_string();
    let prefix = format!("{}: ", path.display());
    let reason = text
        .strip_prefix(&prefix)
        .map_or_else(|| text.clone(), str::to_owned);
    TextError::Malformed {
        path: path.to_path_buf(),
        reason,
    }
}
