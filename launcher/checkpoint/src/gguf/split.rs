//! Models in several GGUF files, named `…-00001-of-0000N.gguf` by `gguf-split`.

use super::{Gguf, TensorInfo};
use crate::CheckpointError;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A GGUF model in one or several files. Its metadata is the first file's.
#[derive(Debug)]
pub struct GgufModel {
    parts: Vec<Gguf>,
}

impl GgufModel {
    /// Opens the model that `path` is a part of: any part finds the others.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        let given = Gguf::open(path)?;
        let count = given.optional_u32("split.count")?.unwrap_or(1);
        if count <= 1 {
            return Ok(Self { parts: vec![given] });
        }
        let paths = part_paths(path).filter(|paths| u32::try_from(paths.len()) == Ok(count));
        let Some(paths) = paths else {
            let problem =
                format!("is {count}, so the file's name must end in -00001-of-{count:05}.gguf");
            return Err(CheckpointError::bad_key(path, "split.count", problem));
        };
        let parts = paths
            .iter()
            .map(Gguf::open)
            .collect::<Result<Vec<_>, _>>()?;
        let model = Self { parts };
        model.check(count)?;
        Ok(model)
    }

    /// The file whose metadata counts.
    pub fn first(&self) -> &Gguf {
        // `open` makes no empty model.
        &self.parts[0]
    }

    /// Every file, in order.
    pub fn parts(&self) -> &[Gguf] {
        &self.parts
    }

    /// Every tensor with the file that holds it.
    pub fn tensors(&self) -> impl Iterator<Item = (&Gguf, &TensorInfo)> {
        self.parts
            .iter()
            .flat_map(|part| part.tensors().iter().map(move |tensor| (part, tensor)))
    }

    /// One tensor by name, with the file that holds it.
    pub fn tensor(&self, name: &str) -> Option<(&Gguf, &TensorInfo)> {
        self.parts
            .iter()
            .find_map(|part| part.tensor(name).map(|tensor| (part, tensor)))
    }

    fn check(&self, count: u32) -> Result<(), CheckpointError> {
        let mut names = HashSet::new();
        for (number, part) in (0_u32..).zip(&self.parts) {
            for (key, expected) in [("split.count", count), ("split.no", number)] {
                let found = part.u32(key)?;
                if found != expected {
                    let problem = format!("is {found}, its name says {expected}");
                    return Err(CheckpointError::bad_key(part.path(), key, problem));
                }
            }
            for tensor in part.tensors() {
                if !names.insert(tensor.name.as_str()) {
                    let problem = format!("tensor `{}` is also in an earlier part", tensor.name);
                    return Err(CheckpointError::malformed(part.path(), problem));
                }
            }
        }
        let first = self.first();
        if let Some(announced) = first.optional_u32("split.tensors.count")?
            && u32::try_from(names.len()) != Ok(announced)
        {
            let problem = format!("is {announced}, the parts hold {}", names.len());
            return Err(CheckpointError::bad_key(
                first.path(),
                "split.tensors.count",
                problem,
            ));
        }
        Ok(())
    }
}

/// The paths of all parts, from the path of any; `None` if the name is not that of a part.
pub fn part_paths(path: &Path) -> Option<Vec<PathBuf>> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    let parse = |digits: &str| {
        let is_plain = digits.len() == 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| digits.parse::<u32>().ok()).flatten()
    };
    let (number, count) = (parse(number)?, parse(count)?);
    (1..=count).contains(&number).then(|| {
        (1..=count)
            .map(|part| path.with_file_name(format!("{prefix}-{part:05}-of-{count:05}.gguf")))
            .collect()
    })
}
