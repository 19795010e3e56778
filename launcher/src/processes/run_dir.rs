//! The private directory of one run: sockets, the model document, the ranks' meeting point.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempDir};

/// A socket's path is at most 107 bytes; the names in the directory take up to 24.
const LONGEST_PATH: usize = 80;

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct RunDir {
    directory: TempDir,
}

impl RunDir {
    /// A fresh directory with a random name, readable by nobody else.
    pub(crate) fn create() -> std::io::Result<Self> {
        let parent = std::env::temp_dir();
        // Room for `/headrace-` and six random characters.
        let parent = if parent.as_os_str().len() + 16 > LONGEST_PATH {
            Path::new("/tmp")
        } else {
            &parent
        };
        let directory = Builder::new()
            .prefix("headrace-")
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .map_err(|error| std::io::Error::other(format!("{}: {error}", parent.display())))?;
        Ok(Self { directory })
    }

    /// Where the model document is.
    pub(crate) fn document(&self) -> PathBuf {
        self.directory.path().join("model.json")
    }

    /// A rank's socket in one start of the group.
    pub(crate) fn socket(&self, rank: u32, epoch: u64) -> PathBuf {
        self.directory
            .path()
            .join(format!("rank-{rank}-{epoch}.sock"))
    }

    /// Where the ranks of one start meet.
    pub(crate) fn rendezvous(&self, epoch: u64) -> PathBuf {
        self.directory.path().join(format!("rendezvous-{epoch}"))
    }

    /// Removes it and all that is in it.
    pub(crate) fn remove(self) -> std::io::Result<()> {
        self.directory.close()
    }
}
