//! The hub, through `python -m headrace.hub.download`.

use crate::settings::ModelSettings;
use headrace_checkpoint::safetensors::SafetensorsModel;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A line that the downloader prints.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum DownloadLine {
    /// The last one: where the snapshot lies.
    Done {
        /// The snapshot's folder.
        path: PathBuf,
        /// Its commit.
        revision: Option<String>,
        /// The hub's `pipeline_tag`.
        pipeline_tag: Option<String>,
    },
    /// The small files are there, and the weights begin.
    Configured {
        /// The snapshot's folder.
        configured: PathBuf,
    },
    /// How far a file is.
    Progress {
        /// `download`.
        stage: String,
        /// The file's name; all of them together if absent.
        #[serde(default)]
        file: Option<String>,
        /// Bytes.
        done: u64,
        /// Bytes; 0: not known.
        total: u64,
    },
}

/// A model of the hub.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HubModel<'a> {
    pub(crate) id: &'a str,
    pub(crate) revision: Option<&'a str>,
    /// Where downloads are kept, if not where Hugging Face's rules say.
    pub(crate) cache: Option<&'a Path>,
}

impl<'a> From<&'a ModelSettings> for HubModel<'a> {
    fn from(model: &'a ModelSettings) -> Self {
        Self {
            id: &model.model_id,
            revision: model.revision.as_deref(),
            cache: model.hub_cache.as_deref(),
        }
    }
}

/// How far the files of a download are; several come at once.
#[derive(Debug, Default)]
pub(crate) struct DownloadProgress {
    /// Bytes there and expected of each file.
    files: BTreeMap<String, (u64, u64)>,
}

impl DownloadProgress {
    /// Takes what a line says of a file; gives the bytes there and expected of all.
    pub(crate) fn update(&mut self, file: Option<String>, done: u64, total: u64) -> (u64, u64) {
        self.files.insert(file.unwrap_or_default(), (done, total));
        self.files
            .values()
            .fold((0, 0), |sums, file| (sums.0 + file.0, sums.1 + file.1))
    }
}

/// The download of a model; with `offline` it only looks into the cache.
pub(crate) fn download_command(python: &Path, model: HubModel<'_>, offline: bool) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "headrace.hub.download", "--model-id", model.id]);
    if let Some(revision) = model.revision {
        command.args(["--revision", revision]);
    }
    if let Some(cache) = cache_override(model.cache) {
        command.env("HF_HUB_CACHE", cache);
    }
    if offline {
        command.env("HF_HUB_OFFLINE", "1");
    }
    // Older names of the token that TGI's deployments still set.
    if !is_set("HF_TOKEN") {
        let old = ["HUGGING_FACE_HUB_TOKEN", "HF_API_TOKEN"];
        if let Some(token) = old
            .into_iter()
            .find(|name| is_set(name))
            .and_then(std::env::var_os)
        {
            command.env("HF_TOKEN", token);
        }
    }
    command
}

/// Whether the hub's cache has any snapshot of the model. Cheap, so that Python is only asked when it may help.
pub(crate) fn has_cached(model: &ModelSettings) -> bool {
    let folder = format!("models--{}", model.model_id.replace('/', "--"));
    cache_folder(model).is_some_and(|cache| cache.join(folder).join("snapshots").is_dir())
}

/// The snapshot in the hub's cache that is served if all of it is there; `None`: only the downloader can tell.
pub(crate) fn cached_snapshot(model: &ModelSettings) -> Option<PathBuf> {
    let folder = format!("models--{}", model.model_id.replace('/', "--"));
    let repository = cache_folder(model)?.join(folder);
    let revision = model.revision.as_deref().unwrap_or("main");
    let is_commit = |text: &str| text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let commit = if is_commit(revision) {
        revision.to_owned()
    } else {
        let text = std::fs::read_to_string(repository.join("refs").join(revision)).ok()?;
        text.trim().to_owned()
    };
    let snapshot = is_commit(&commit).then(|| repository.join("snapshots").join(commit))?;
    // One that lacks weights may give way to a newer one.
    let has_weights = matches!(SafetensorsModel::open(&snapshot), Ok(Some(_)));
    has_weights.then_some(snapshot)
}

fn cache_override(given: Option<&Path>) -> Option<PathBuf> {
    given.map(Path::to_owned).or_else(|| {
        // huggingface_hub's own old name.
        (!is_set("HF_HUB_CACHE"))
            .then(|| path_variable("HUGGINGFACE_HUB_CACHE"))
            .flatten()
    })
}

/// The rules of `huggingface_hub`.
fn cache_folder(model: &ModelSettings) -> Option<PathBuf> {
    cache_override(model.hub_cache.as_deref())
        .or_else(|| path_variable("HF_HUB_CACHE"))
        .or_else(|| path_variable("HF_HOME").map(|home| home.join("hub")))
        .or_else(|| path_variable("XDG_CACHE_HOME").map(|cache| cache.join("huggingface/hub")))
        .or_else(|| path_variable("HOME").map(|home| home.join(".cache/huggingface/hub")))
}

fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

fn is_set(name: &str) -> bool {
    path_variable(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_downloader() {
        let parse = |line: &str| serde_json::from_str::<DownloadLine>(line).ok();
        assert_eq!(
            parse(r#"{"stage":"download","file":"model.safetensors","done":1,"total":2}"#),
            Some(DownloadLine::Progress {
                stage: "download".into(),
                file: Some("model.safetensors".into()),
                done: 1,
                total: 2
            })
        );
        assert_eq!(
            parse(r#"{"path":"/c/snapshots/abc","revision":"abc","pipeline_tag":null}"#),
            Some(DownloadLine::Done {
                path: "/c/snapshots/abc".into(),
                revision: Some("abc".into()),
                pipeline_tag: None
            })
        );
        assert_eq!(
            parse(r#"{"configured":"/c/snapshots/abc"}"#),
            Some(DownloadLine::Configured {
                configured: "/c/snapshots/abc".into()
            })
        );
        assert_eq!(parse("{}"), None);
    }
}
