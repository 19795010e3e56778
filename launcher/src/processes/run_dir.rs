//! The private directory of one run: sockets, the model document, the ranks' meeting point.
//!
//! A launcher that was killed leaves its directory behind; the next one removes it. A lock that the launcher holds as long
//! as it lives tells the dead ones from the living.

use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use std::fs::{DirEntry, File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempDir};

/// A socket's path is at most 107 bytes; the names in the directory take up to 24.
const LONGEST_PATH: usize = 80;
const PREFIX: &str = "headrace-";
/// Random characters after it.
const RANDOM: usize = 6;
/// Nobody else may even look.
const MODE: u32 = 0o700;
/// The file whose lock says that the launcher lives.
const LOCK: &str = "lock";

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct RunDir {
    directory: TempDir,
    /// Held, not read. `None` where the file system knows no locks: such a directory is never swept.
    _lock: Option<File>,
}

impl RunDir {
    /// A fresh directory with a random name, readable by nobody else.
    pub(crate) fn create() -> std::io::Result<Self> {
        let parent = parent();
        let name = if std::env::var_os("TMPDIR").is_some_and(|path| parent.as_os_str() == path) {
            "TMPDIR "
        } else {
            ""
        };
        let cannot = |error: std::io::Error| {
            std::io::Error::other(format!("{name}{}: {error}", parent.display()))
        };
        // What `tempfile` says names a path that nobody knows.
        let found = parent.metadata().map_err(cannot)?;
        if !found.is_dir() {
            return Err(cannot(std::io::ErrorKind::NotADirectory.into()));
        }
        let directory = Builder::new()
            .prefix(PREFIX)
            .rand_bytes(RANDOM)
            .permissions(std::fs::Permissions::from_mode(MODE))
            .tempdir_in(&parent)
            .map_err(|error| cannot(error.kind().into()))?;
        let lock = lock(directory.path())?;
        Ok(Self {
            directory,
            _lock: lock,
        })
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

/// Removes the directories of this user's launchers that were killed; returns which.
pub(crate) fn sweep_run_dirs() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(parent()) else {
        return Vec::new();
    };
    let entries = entries.flatten().filter(is_ours);
    entries
        .map(|entry| entry.path())
        .filter(|path| sweep(path))
        .collect()
}

fn parent() -> PathBuf {
    let parent = std::env::temp_dir();
    let is_short = parent.as_os_str().len() + 1 + PREFIX.len() + RANDOM <= LONGEST_PATH;
    if is_short { parent } else { "/tmp".into() }
}

/// The lock has its name only once it is held, so that nobody takes a directory that is being made for a dead one.
fn lock(directory: &Path) -> std::io::Result<Option<File>> {
    let unheld = directory.join("lock.new");
    let file = File::create(&unheld)?;
    if file.try_lock().is_err() {
        return Ok(None);
    }
    std::fs::rename(unheld, directory.join(LOCK))?;
    Ok(Some(file))
}

/// By name, kind, owner and mode: a directory that a launcher of this user made.
fn is_ours(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let random = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    let is_name = random.is_some_and(|random| {
        random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    // Of the entry itself: a link to a directory is none.
    is_name
        && entry.metadata().is_ok_and(|metadata| {
            metadata.is_dir()
                && metadata.uid() == geteuid().as_raw()
                && metadata.mode() & 0o7777 == MODE
        })
}

/// `false`: its launcher lives, or it has no lock to tell by, or it cannot be removed.
fn sweep(directory: &Path) -> bool {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(directory.join(LOCK));
    let Ok(lock) = opened else {
        return false;
    };
    match lock.try_lock() {
        // Held to the end: two launchers that start together do not both remove it.
        Ok(()) => std::fs::remove_dir_all(directory).is_ok(),
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}
