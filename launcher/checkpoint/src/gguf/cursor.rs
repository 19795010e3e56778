//! A forward reader over a file that never believes a length before comparing it with the file's own.

use crate::CheckpointError;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Everything before the tensor data ends within this many bytes. The largest vocabularies known take about
/// 20 MB; a corrupt count in a file of many gigabytes must not fill the memory.
const HEADER_LIMIT: u64 = 1 << 30;

/// Reads little-endian values from the start of a file.
pub(super) struct Cursor {
    path: PathBuf,
    reader: BufReader<File>,
    position: u64,
    file_bytes: u64,
}

impl Cursor {
    pub(super) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let file = File::open(path).map_err(|source| CheckpointError::io(path, source))?;
        let metadata = file
            .metadata()
            .map_err(|source| CheckpointError::io(path, source))?;
        if !metadata.is_file() {
            return Err(CheckpointError::malformed(path, "not a regular file"));
        }
        Ok(Self {
            path: path.to_owned(),
            reader: BufReader::with_capacity(1 << 18, file),
            position: 0,
            file_bytes: metadata.len(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes from the start of the file.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Fails unless `count` items of at least `item_bytes` each can follow in the file. Call it before
    /// allocating for them.
    pub(super) fn reserve(
        &self,
        count: u64,
        item_bytes: u64,
        what: &str,
    ) -> Result<(), CheckpointError> {
        let end = u128::from(self.position) + u128::from(count) * u128::from(item_bytes);
        if end > u128::from(self.file_bytes) {
            return Err(CheckpointError::Truncated {
                path: self.path.clone(),
                what: what.to_owned(),
                end,
                file_bytes: self.file_bytes,
            });
        }
        if end > u128::from(HEADER_LIMIT) {
            return Err(CheckpointError::malformed(
                &self.path,
                format!(
                    "{what} reaches past the first {HEADER_LIMIT} bytes, more than any header needs"
                ),
            ));
        }
        Ok(())
    }

    pub(super) fn bytes<const N: usize>(&mut self, what: &str) -> Result<[u8; N], CheckpointError> {
        self.reserve(N as u64, 1, what)?;
        let mut buffer = [0_u8; N];
        self.fill(&mut buffer)?;
        Ok(buffer)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, CheckpointError> {
        Ok(u32::from_le_bytes(self.bytes(what)?))
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, CheckpointError> {
        Ok(u64::from_le_bytes(self.bytes(what)?))
    }

    /// A length of 8 bytes, then as many bytes of UTF-8.
    pub(super) fn string(&mut self, what: &str) -> Result<String, CheckpointError> {
        let length = self.u64(what)?;
        self.reserve(length, 1, what)?;
        let length = usize::try_from(length)
            .map_err(|_| CheckpointError::malformed(&self.path, format!("{what} is too long")))?;
        let mut buffer = vec![0_u8; length];
        self.fill(&mut buffer)?;
        String::from_utf8(buffer)
            .map_err(|_| CheckpointError::malformed(&self.path, format!("{what} is not UTF-8")))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), CheckpointError> {
        self.reader
            .read_exact(buffer)
            .map_err(|source| CheckpointError::io(&self.path, source))?;
        self.position += buffer.len() as u64;
        Ok(())
    }
}
