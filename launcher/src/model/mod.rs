//! From `--model-id` to the one document that says where everything is.

mod demo;
mod document;
mod hub;
mod vocabulary;

pub(crate) use demo::demo_model;
pub(crate) use document::{Origin, outline, resolve};
pub(crate) use hub::{
    DownloadLine, DownloadProgress, HubModel, cached_snapshot, download_command, has_cached,
};

use crate::failure::Failure;
use std::path::{Path, PathBuf};

/// Served when nothing is asked for.
pub(crate) const DEFAULT_MODEL: &str = "HuggingFaceTB/SmolLM2-135M-Instruct";

/// Where a model id points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A folder in Hugging Face layout.
    Folder(PathBuf),
    /// A GGUF file.
    Gguf(PathBuf),
    /// An id for the hub.
    Hub(String),
}

/// What exists on disk is a path; what looks like an id goes to the hub.
pub(crate) fn locate(model_id: &str, argument: &str) -> Result<Place, Failure> {
    if model_id.trim().is_empty() {
        return Err(Failure::usage(format!(
            "{argument}: is empty; give a directory, a .gguf file or a hub id"
        )));
    }
    let path = Path::new(model_id);
    if path.is_dir() {
        return Ok(Place::Folder(path.to_owned()));
    }
    let is_gguf = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    if path.is_file() {
        if is_gguf {
            return Ok(Place::Gguf(path.to_owned()));
        }
        let line = format!("{argument} {model_id}: a file that is not a .gguf file");
        return Err(Failure::new(line));
    }
    if !is_gguf && is_hub_id(model_id) {
        return Ok(Place::Hub(model_id.to_owned()));
    }
    Err(Failure::new(format!(
        "{argument} {model_id}: no such file or directory"
    )))
}

/// `name` or `owner/name` in the hub's alphabet.
fn is_hub_id(text: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty()
            && part.len() <= 96
            && !part.starts_with(['.', '-'])
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    match text.split_once('/') {
        Some((owner, name)) => is_name(owner) && is_name(name),
        None => is_name(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_paths() {
        let folder = tempfile::tempdir().expect("a folder");
        let gguf = folder.path().join("m.gguf");
        let text = folder.path().join("m.txt");
        std::fs::write(&gguf, "").expect("written");
        std::fs::write(&text, "").expect("written");
        let at = |path: &Path| locate(path.to_str().expect("UTF-8"), "--model-id");
        assert_eq!(
            at(folder.path()),
            Ok(Place::Folder(folder.path().to_owned()))
        );
        assert_eq!(at(&gguf), Ok(Place::Gguf(gguf.clone())));
        assert!(at(&text).is_err());
        assert_eq!(
            locate(DEFAULT_MODEL, "--model-id"),
            Ok(Place::Hub(DEFAULT_MODEL.to_owned()))
        );
        assert_eq!(
            locate("gpt2", "--model-id"),
            Ok(Place::Hub("gpt2".to_owned()))
        );
        for missing in [
            "/no/such",
            "./no-such",
            "../x",
            "a/b/c",
            "no-such.gguf",
            "a b",
            "~/m",
        ] {
            let failure = locate(missing, "--model-id").expect_err(missing);
            assert!(
                failure.to_string().contains("no such file or directory"),
                "{failure}"
            );
        }
        for empty in ["", " "] {
            let failure = locate(empty, "--model-id").expect_err("no id");
            assert!(failure.to_string().starts_with("--model-id: is empty"));
        }
    }
}
