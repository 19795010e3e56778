//! `tokenizer.json`, or one made of another format: made once, kept in the user's cache under the hash of all that
//! went into it.

use crate::failure::Failure;
use crate::log::Log;
use headrace_vocabulary::VocabularyError;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::path::{Path, PathBuf};

/// A part of the hash: what an older launcher made is not taken for what this one makes.
const FORMAT: &str = "headrace tokenizer 3";

/// What a folder's tokenizer is read from.
#[derive(Debug)]
pub(super) struct TokenizerFiles {
    pub(super) tokenizer: PathBuf,
    /// Goes before the folder's `tokenizer_config.json`.
    pub(super) config: Option<PathBuf>,
}

/// Finds the folder's `tokenizer.json`, or makes one.
pub(super) fn tokenizer(folder: &Path, log: &Log) -> Result<TokenizerFiles, Failure> {
    let path = folder.join("tokenizer.json");
    if path.exists() {
        return Ok(TokenizerFiles {
            tokenizer: path,
            config: None,
        });
    }
    let Some(source) = headrace_vocabulary::find(folder) else {
        let hint = if folder.join("vocab.txt").exists() {
            " (vocab.txt is there, but WordPiece vocabularies are not converted)"
        } else {
            ", nor a tokenizer.model, tekken.json, tiktoken list or vocab.json with merges.txt to make it from"
        };
        let line = format!("{}: no such file{hint}", path.display());
        return Err(Failure::new(line));
    };
    let kept = cache()?.join(hash(&source)?);
    if let Some(given) = std::env::var_os("XDG_CACHE_HOME")
        && !given.is_empty()
        && !Path::new(&given).is_absolute()
    {
        log.warn(&format!(
            "XDG_CACHE_HOME {}: is no absolute path; the converted tokenizer is kept in {}",
            given.to_string_lossy(),
            kept.display()
        ));
    }
    let config = kept.join("tokenizer_config.json");
    let mut files = TokenizerFiles {
        tokenizer: kept.join("tokenizer.json"),
        config: config.is_file().then(|| config.clone()),
    };
    if files.tokenizer.is_file() {
        log.info(&format!(
            "{} was converted before: the tokenizer is {}",
            source.display(),
            files.tokenizer.display()
        ));
        return Ok(files);
    }
    let made = headrace_vocabulary::convert(&source).map_err(|error| refused(&error))?;
    keep(&kept, &made).map_err(|error| {
        Failure::new(format!(
            "{}: {error}; the converted tokenizer is kept there: set XDG_CACHE_HOME to a directory that can be written",
            kept.display()
        ))
    })?;
    files.config = made.config.is_some().then_some(config);
    log.info(&format!(
        "{} was converted to {}",
        source.display(),
        files.tokenizer.display()
    ));
    Ok(files)
}

fn refused(error: &VocabularyError) -> Failure {
    Failure::new(error.to_string())
}

/// Of the vocabulary and of every file beside it that has a say.
fn hash(source: &Path) -> Result<String, Failure> {
    let mut hasher = Sha256::new();
    hasher.update(FORMAT);
    for path in headrace_vocabulary::inputs(source) {
        let bytes = std::fs::read(&path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        for part in [name, &bytes] {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
    }
    Ok(format!("{:x}", hasher.finalize()))
}

/// Whole or not at all: another launcher may be making the same.
fn keep(folder: &Path, made: &headrace_vocabulary::Converted) -> std::io::Result<()> {
    let parent = folder.parent().unwrap_or(folder);
    std::fs::create_dir_all(parent)?;
    let new = tempfile::Builder::new()
        .prefix(".new-")
        .tempdir_in(parent)?;
    for (name, bytes) in [
        ("tokenizer.json", Some(&made.tokenizer)),
        ("tokenizer_config.json", made.config.as_ref()),
    ] {
        let Some(bytes) = bytes else { continue };
        let mut file = std::fs::File::create(new.path().join(name))?;
        file.write_all(bytes)?;
        file.sync_all()?;
    }
    match std::fs::rename(new.path(), folder) {
        Ok(()) => {
            // It has another name now; there is nothing left to remove.
            let _ = new.keep();
            Ok(())
        }
        // The other one was first, with the same contents.
        Err(_) if folder.join("tokenizer.json").is_file() => Ok(()),
        Err(error) => Err(error),
    }
}

/// `$XDG_CACHE_HOME/headrace/tokenizers`, else under `$HOME/.cache`.
fn cache() -> Result<PathBuf, Failure> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("headrace/tokenizers")).ok_or_else(|| {
        Failure::new(
            "XDG_CACHE_HOME: not set, nor is HOME; the model has no tokenizer.json, and a converted one is kept there",
        )
    })
}
