//! The safetensors files of one model folder.

use super::{SafetensorsFile, SafetensorsTensor};
use crate::CheckpointError;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Every shard of a model, each header checked, and together holding what the index promises.
#[derive(Debug)]
pub struct SafetensorsModel {
    folder: PathBuf,
    files: Vec<SafetensorsFile>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl SafetensorsModel {
    /// Opens a folder in Hugging Face layout: `model.safetensors`, or the shards that
    /// `model.safetensors.index.json` names, or the only `*.safetensors` there is. `None`: it has none.
    pub fn open(folder: impl AsRef<Path>) -> Result<Option<Self>, CheckpointError> {
        let folder = folder.as_ref();
        let model = |files| {
            Some(Self {
                folder: folder.to_owned(),
                files,
            })
        };
        let single = folder.join(SINGLE);
        if single.exists() {
            return Ok(model(vec![SafetensorsFile::open(single)?]));
        }
        let index = folder.join(INDEX);
        if index.exists() {
            return Ok(model(open_shards(folder, &index)?));
        }
        let mut found = Vec::new();
        let io = |source| CheckpointError::io(folder, source);
        for entry in std::fs::read_dir(folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "safetensors")
            {
                found.push(path);
            }
        }
        match found.as_slice() {
            [] => Ok(None),
            [only] => Ok(model(vec![SafetensorsFile::open(only)?])),
            several => {
                let problem = format!("{} safetensors files and no {INDEX}", several.len());
                Err(CheckpointError::malformed(folder, problem))
            }
        }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every shard, in the order of their names.
    pub fn files(&self) -> &[SafetensorsFile] {
        &self.files
    }

    /// Every tensor with the file that holds it.
    pub fn tensors(&self) -> impl Iterator<Item = (&SafetensorsFile, &SafetensorsTensor)> {
        self.files
            .iter()
            .flat_map(|file| file.tensors().iter().map(move |tensor| (file, tensor)))
    }
}

fn open_shards(folder: &Path, index: &Path) -> Result<Vec<SafetensorsFile>, CheckpointError> {
    let text = std::fs::read(index).map_err(|source| CheckpointError::io(index, source))?;
    let Index { weight_map } = serde_json::from_slice(&text)
        .map_err(|error| CheckpointError::malformed(index, format!("is not valid: {error}")))?;
    let names: BTreeSet<&String> = weight_map.values().collect();
    if names.is_empty() {
        return Err(CheckpointError::bad_key(index, "weight_map", "is empty"));
    }
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let mut components = Path::new(name).components();
        if !matches!(
            (components.next(), components.next()),
            (Some(Component::Normal(_)), None)
        ) {
            let problem = format!("names `{name}`, which is not a file of this folder");
            return Err(CheckpointError::bad_key(index, "weight_map", problem));
        }
        files.push(SafetensorsFile::open(folder.join(name))?);
    }
    let mut places = HashMap::new();
    for file in &files {
        for tensor in file.tensors() {
            if let Some(other) = places.insert(tensor.name.as_str(), file.path()) {
                let problem = format!("tensor `{}` is also in {}", tensor.name, other.display());
                return Err(CheckpointError::malformed(file.path(), problem));
            }
        }
    }
    for (tensor, name) in &weight_map {
        if places
            .get(tensor.as_str())
            .is_none_or(|path| *path != folder.join(name))
        {
            let problem = format!("says that tensor `{tensor}` is in {name}, but it is not");
            return Err(CheckpointError::bad_key(index, "weight_map", problem));
        }
    }
    Ok(files)
}
