//! Vocabularies of other formats to `tokenizer.json`: `SentencePiece` models (`tokenizer.model`), Mistral's `tekken.json`,
//! tiktoken's lists of ranks, and `vocab.json` with `merges.txt`.
//!
//! What it is: readers of these files and of what stands beside them (`tokenizer_config.json`, `special_tokens_map.json`,
//! `added_tokens.json`, `config.json`), and one writer.
//!
//! What it lacks on purpose: encoding and decoding (the router's), caching (the launcher's).
//!
//! Invariants:
//! - Ids are those of the format's own library (`SentencePiece`, mistral-common, tiktoken; `transformers` for
//!   `vocab.json`); what is not known to give the same ids is refused by name.
//! - Nothing in a file is trusted: lengths, ids and counts are bounded before anything of their size is made.

mod beside;
mod byte_level;
mod error;
mod merges;
mod sentence_piece;
mod tekken;
mod tiktoken;
mod vocab_merges;
mod write;

pub use error::VocabularyError;

use beside::Beside;
use std::path::{Path, PathBuf};

/// Larger files are no vocabularies. The largest known has 30 MB.
const LARGEST_FILE: u64 = 128 << 20;

/// Tokens of a vocabulary at most.
pub(crate) const MOST_TOKENS: usize = 1 << 21;

/// Bytes of a token at most; the longest known are lines of a few hundred signs.
pub(crate) const LONGEST_TOKEN: usize = 2048;

/// Ids of tokens, with [`MERGES`] beside it.
const VOCAB: &str = "vocab.json";
const MERGES: &str = "merges.txt";

/// What a vocabulary becomes.
#[derive(Debug)]
pub struct Converted {
    /// Contents of `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// Contents of `tokenizer_config.json`, where the folder has none or its own lacks what another file or the
    /// vocabulary's family says.
    pub config: Option<Vec<u8>>,
}

/// The folder's vocabulary in one of the formats that can be converted.
pub fn find(folder: &Path) -> Option<PathBuf> {
    let known = ["tokenizer.model", "tekken.json", "tiktoken.model"];
    if let Some(name) = known.iter().find(|name| folder.join(name).is_file()) {
        return Some(folder.join(name));
    }
    // `tokenizer.model.v3`, `qwen.tiktoken`; the last of several is the newest.
    let names = std::fs::read_dir(folder).ok()?.flatten();
    let newest = names
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| {
                name.starts_with("tokenizer.model.v") || name.ends_with(".tiktoken")
            }) && path.is_file()
        })
        .max();
    newest.or_else(|| Some(folder.join(VOCAB)).filter(|path| path.is_file()))
}

/// Every file that [`convert`] reads.
pub fn inputs(path: &Path) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut inputs = vec![path.to_path_buf()];
    if path.ends_with(VOCAB) {
        inputs.push(folder.join(MERGES));
    }
    inputs.extend(beside::NAMES.iter().map(|name| folder.join(name)));
    inputs.retain(|path| path.is_file());
    inputs
}

/// Converts a vocabulary; what stands beside it says which tokens are special.
pub fn convert(path: &Path) -> Result<Converted, VocabularyError> {
    let bytes = read(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let beside = Beside::read(folder)?;
    let refuse = |reason: String| VocabularyError::Refused {
        path: path.to_path_buf(),
        reason,
    };
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(refuse("is a Git LFS pointer, not the file itself".into()));
    }
    let is_json = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    if path.ends_with(VOCAB) {
        let merges = folder.join(MERGES);
        if !merges.is_file() {
            return Err(refuse(format!("{MERGES} is not beside it")));
        }
        vocab_merges::convert(&bytes, &read(&merges)?, &beside).map_err(refuse)
    } else if is_json {
        tekken::convert(&bytes, &beside).map_err(refuse)
    } else if sentence_piece::is_one(&bytes) {
        sentence_piece::convert(&bytes, &beside).map_err(refuse)
    } else {
        let name = path.file_name().and_then(|name| name.to_str());
        tiktoken::convert(&bytes, name.unwrap_or_default(), &beside).map_err(refuse)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, VocabularyError> {
    let failed = |reason: String| VocabularyError::Read {
        path: path.to_path_buf(),
        reason,
    };
    let length = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if length.len() > LARGEST_FILE {
        return Err(failed(format!("has {} bytes", length.len())));
    }
    std::fs::read(path).map_err(|error| failed(error.to_string()))
}
