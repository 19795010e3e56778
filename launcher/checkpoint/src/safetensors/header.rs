//! The header of one safetensors file.

use crate::CheckpointError;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The reference implementation's bound on the header's length, in bytes.
const HEADER_LIMIT: u64 = 100_000_000;

/// A number format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[expect(
    missing_docs,
    reason = "the variants are the format's names, one to one"
)]
#[expect(non_camel_case_types, reason = "the format's own spelling")]
pub enum Dtype {
    BOOL,
    F4,
    F6_E2M3,
    F6_E3M2,
    U8,
    I8,
    F8_E5M2,
    F8_E4M3,
    F8_E8M0,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    C64,
    F64,
    I64,
    U64,
}

impl Dtype {
    /// Bits of one number.
    pub fn bits(self) -> u64 {
        match self {
            Self::F4 => 4,
            Self::F6_E2M3 | Self::F6_E3M2 => 6,
            Self::BOOL | Self::U8 | Self::I8 | Self::F8_E5M2 | Self::F8_E4M3 | Self::F8_E8M0 => 8,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 16,
            Self::I32 | Self::U32 | Self::F32 => 32,
            Self::C64 | Self::F64 | Self::I64 | Self::U64 => 64,
        }
    }

    /// Whether the workers take weights in it.
    pub fn is_readable(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16)
    }
}

/// One tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetensorsTensor {
    /// `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Number format.
    pub dtype: Dtype,
    /// The slowest dimension first: a linear weight is `[out, in]`.
    pub shape: Vec<u64>,
    /// First byte, from the start of the file.
    pub start: u64,
    /// Length in bytes.
    pub num_bytes: u64,
}

/// The checked header of one file.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    tensors: Vec<SafetensorsTensor>,
}

impl SafetensorsFile {
    /// Reads and checks the header.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        let io = |source| CheckpointError::io(path, source);
        let mut file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if !metadata.is_file() {
            return Err(CheckpointError::malformed(path, "not a regular file"));
        }
        let file_bytes = metadata.len();
        let truncated = |what: &str, end: u128| CheckpointError::Truncated {
            path: path.to_owned(),
            what: what.to_owned(),
            end,
            file_bytes,
        };
        if file_bytes < 8 {
            return Err(truncated("the header's length", 8));
        }
        let mut length = [0_u8; 8];
        file.read_exact(&mut length).map_err(io)?;
        let header_bytes = u64::from_le_bytes(length);
        if header_bytes > HEADER_LIMIT {
            let problem = format!("not a safetensors file (a header of {header_bytes} bytes)");
            return Err(CheckpointError::malformed(path, problem));
        }
        let data_start = 8 + header_bytes;
        if data_start > file_bytes {
            return Err(truncated("the header", data_start.into()));
        }
        let mut text = Vec::new();
        file.take(header_bytes).read_to_end(&mut text).map_err(io)?;
        let Header(entries) = serde_json::from_slice(&text).map_err(|error| {
            CheckpointError::malformed(path, format!("header is not valid: {error}"))
        })?;
        let tensors = place(path, entries, data_start, file_bytes)?;
        Ok(Self {
            path: path.to_owned(),
            tensors,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Every tensor, in the order of their bytes.
    pub fn tensors(&self) -> &[SafetensorsTensor] {
        &self.tensors
    }
}

#[derive(Deserialize)]
struct Entry {
    dtype: Dtype,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Names and entries; `__metadata__` is skipped and a name given twice is an error, which a map would hide.
struct Header(Vec<(String, Entry)>);

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut names = HashSet::new();
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("`{name}` is given twice")));
                    }
                    if name == "__metadata__" {
                        map.next_value::<serde::de::IgnoredAny>()?;
                    } else {
                        let entry = map
                            .next_value()
                            .map_err(|error| A::Error::custom(format!("`{name}`: {error}")))?;
                        entries.push((name, entry));
                    }
                }
                Ok(Header(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Checks sizes and that the tensors follow each other without gap or overlap up to the end of the file.
fn place(
    path: &Path,
    mut entries: Vec<(String, Entry)>,
    data_start: u64,
    file_bytes: u64,
) -> Result<Vec<SafetensorsTensor>, CheckpointError> {
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut tensors = Vec::with_capacity(entries.len());
    let mut previous_end = 0_u64;
    for (name, entry) in entries {
        let malformed = |problem: String| {
            CheckpointError::malformed(path, format!("tensor `{name}` {problem}"))
        };
        let (begin, end) = entry.data_offsets;
        if begin != previous_end || end < begin {
            let kind = if begin < previous_end {
                "overlaps another"
            } else {
                "leaves a gap"
            };
            return Err(malformed(format!("{kind}: its bytes are {begin} to {end}")));
        }
        let num_bits = entry
            .shape
            .iter()
            .try_fold(entry.dtype.bits(), |product, size| {
                product.checked_mul(*size)
            })
            .filter(|bits| bits % 8 == 0);
        if num_bits.map(|bits| bits / 8) != Some(end - begin) {
            let (dtype, shape, bytes) = (entry.dtype, entry.shape, end - begin);
            return Err(malformed(format!(
                "is {dtype:?} {shape:?} but has {bytes} bytes"
            )));
        }
        let absolute_end = u128::from(data_start) + u128::from(end);
        if absolute_end > u128::from(file_bytes) {
            return Err(CheckpointError::Truncated {
                path: path.to_owned(),
                what: format!("tensor `{name}`"),
                end: absolute_end,
                file_bytes,
            });
        }
        previous_end = end;
        tensors.push(SafetensorsTensor {
            name,
            dtype: entry.dtype,
            shape: entry.shape,
            start: data_start + begin,
            num_bytes: end - begin,
        });
    }
    let expected = data_start + previous_end;
    if expected != file_bytes {
        let problem = format!("has {file_bytes} bytes, its header describes {expected}");
        return Err(CheckpointError::malformed(path, problem));
    }
    Ok(tensors)
}
