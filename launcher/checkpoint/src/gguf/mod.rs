//! GGUF files, versions 2 and 3, little-endian. Format: the specification in ggml's `docs/gguf.md`.

mod cursor;
mod split;
mod tensor;
mod value;

pub use split::{GgufModel, part_paths};
pub use tensor::{TensorInfo, TensorType};
pub use value::{Array, Value};

use crate::CheckpointError;
use cursor::Cursor;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

/// Used where `general.alignment` is absent.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The header of one GGUF file: metadata and tensor descriptions, all checked against the file's length.
#[derive(Debug)]
pub struct Gguf {
    path: PathBuf,
    version: u32,
    metadata: BTreeMap<String, Value>,
    tensors: Vec<TensorInfo>,
}

impl Gguf {
    /// Reads and checks the header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        let mut cursor = Cursor::open(path)?;
        let magic: [u8; 4] = cursor.bytes("the magic bytes")?;
        if &magic != b"GGUF" {
            return Err(CheckpointError::malformed(
                path,
                "not a GGUF file (wrong magic bytes)",
            ));
        }
        let version = cursor.u32("the version")?;
        if version != 2 && version != 3 {
            let kind = if version.trailing_zeros() >= 16 {
                " (big-endian)"
            } else {
                ""
            };
            return Err(CheckpointError::unsupported(
                path,
                format!("GGUF version {version}{kind}"),
            ));
        }
        let num_tensors = cursor.u64("the tensor count")?;
        let num_keys = cursor.u64("the metadata count")?;
        // Smallest entries: a key is a length and a type and a byte; a tensor is a length, two u32 and an offset.
        cursor.reserve(num_keys, 13, "the metadata")?;
        cursor.reserve(num_tensors, 24, "the tensor list")?;

        let metadata = read_metadata(&mut cursor, num_keys)?;
        let mut tensors = Vec::new();
        for _ in 0..num_tensors {
            tensors.push(TensorInfo::read(&mut cursor)?);
        }
        let mut gguf = Self {
            path: path.to_owned(),
            version,
            metadata,
            tensors,
        };
        gguf.place_tensors(cursor.position(), cursor.file_bytes())?;
        Ok(gguf)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// One value.
    pub fn metadata(&self, key: &str) -> Option<&Value> {
        self.metadata.get(key)
    }

    /// Every key in alphabetical order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.metadata.keys().map(String::as_str)
    }

    /// Every tensor in file order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// One tensor by name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// A string that must be there.
    pub fn string(&self, key: &str) -> Result<&str, CheckpointError> {
        self.required(key, self.optional_string(key)?)
    }

    /// A string, if the key is there.
    pub fn optional_string(&self, key: &str) -> Result<Option<&str>, CheckpointError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A non-negative integer of any width that must be there and fit 32 bits.
    pub fn u32(&self, key: &str) -> Result<u32, CheckpointError> {
        self.required(key, self.optional_u32(key)?)
    }

    /// A non-negative integer of any width that fits 32 bits, if the key is there.
    pub fn optional_u32(&self, key: &str) -> Result<Option<u32>, CheckpointError> {
        self.typed(key, "a non-negative integer below 2^32", |value| {
            value.as_u64().and_then(|number| u32::try_from(number).ok())
        })
    }

    /// A finite float that must be there.
    pub fn f64(&self, key: &str) -> Result<f64, CheckpointError> {
        self.required(key, self.optional_f64(key)?)
    }

    /// A finite float, if the key is there.
    pub fn optional_f64(&self, key: &str) -> Result<Option<f64>, CheckpointError> {
        self.typed(key, "a finite float", |value| {
            value.as_f64().filter(|number| number.is_finite())
        })
    }

    /// A boolean, if the key is there.
    pub fn optional_bool(&self, key: &str) -> Result<Option<bool>, CheckpointError> {
        self.typed(key, "a boolean", Value::as_bool)
    }

    /// An array of strings that must be there (tokens).
    pub fn strings(&self, key: &str) -> Result<&[String], CheckpointError> {
        self.required(key, self.optional_strings(key)?)
    }

    /// An array of strings, if the key is there (merges).
    pub fn optional_strings(&self, key: &str) -> Result<Option<&[String]>, CheckpointError> {
        self.typed(key, "an array of strings", |value| {
            value.as_array()?.as_strings()
        })
    }

    /// An array of floats, if the key is there (scores).
    pub fn optional_f32s(&self, key: &str) -> Result<Option<&[f32]>, CheckpointError> {
        self.typed(key, "an array of f32", |value| value.as_array()?.as_f32s())
    }

    /// An array of integers, if the key is there (token types).
    pub fn optional_i32s(&self, key: &str) -> Result<Option<&[i32]>, CheckpointError> {
        self.typed(key, "an array of i32", |value| value.as_array()?.as_i32s())
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.metadata.get(key) else {
            return Ok(None);
        };
        convert(value).map(Some).ok_or_else(|| {
            let problem = format!("must be {expected}, not {}", describe(value));
            CheckpointError::bad_key(&self.path, key, problem)
        })
    }

    fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, CheckpointError> {
        value.ok_or_else(|| CheckpointError::missing_key(&self.path, key))
    }

    /// Makes the tensors' starts absolute and checks that they are aligned, inside the file and apart.
    fn place_tensors(&mut self, header_end: u64, file_bytes: u64) -> Result<(), CheckpointError> {
        let alignment = match self.optional_u32("general.alignment")? {
            None => DEFAULT_ALIGNMENT,
            Some(alignment) if alignment.is_power_of_two() => alignment.into(),
            Some(alignment) => {
                let problem = format!("must be a power of two, not {alignment}");
                return Err(CheckpointError::bad_key(
                    &self.path,
                    "general.alignment",
                    problem,
                ));
            }
        };
        let data_start = header_end.div_ceil(alignment) * alignment;
        let mut names = HashSet::new();
        let mut spans = Vec::with_capacity(self.tensors.len());
        for tensor in &mut self.tensors {
            if !names.insert(tensor.name.as_str()) {
                let problem = format!("tensor `{}` is listed twice", tensor.name);
                return Err(CheckpointError::malformed(&self.path, problem));
            }
            if tensor.start % alignment != 0 {
                let problem = format!(
                    "tensor `{}` is not aligned to {alignment} bytes",
                    tensor.name
                );
                return Err(CheckpointError::malformed(&self.path, problem));
            }
            let start = u128::from(data_start) + u128::from(tensor.start);
            let end = start + u128::from(tensor.num_bytes);
            if end > u128::from(file_bytes) {
                return Err(CheckpointError::Truncated {
                    path: self.path.clone(),
                    what: format!("tensor `{}`", tensor.name),
                    end,
                    file_bytes,
                });
            }
            // Cannot wrap: the sum was just found to lie inside the file.
            tensor.start += data_start;
            spans.push((
                tensor.start,
                tensor.start + tensor.num_bytes,
                tensor.name.as_str(),
            ));
        }
        spans.sort_unstable();
        for pair in spans.windows(2) {
            if let [(_, end, first), (start, _, second)] = pair
                && start < end
            {
                let problem = format!("tensors `{first}` and `{second}` overlap");
                return Err(CheckpointError::malformed(&self.path, problem));
            }
        }
        Ok(())
    }
}

fn read_metadata(
    cursor: &mut Cursor,
    num_keys: u64,
) -> Result<BTreeMap<String, Value>, CheckpointError> {
    let mut metadata = BTreeMap::new();
    for _ in 0..num_keys {
        let key = cursor.string("a metadata key")?;
        let value = Value::read(cursor, &key)?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(CheckpointError::bad_key(
                cursor.path(),
                &key,
                "is given twice",
            ));
        }
    }
    Ok(metadata)
}

/// Short enough for one line: scalars with their value, the rest by type.
fn describe(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::String(_) => value.type_name().to_owned(),
        scalar => format!("{scalar:?}"),
    }
}
