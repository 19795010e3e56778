//! Which Python runs the workers, and short questions to it.

use crate::failure::Failure;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The one given, or beside this program (the wheel installs them together), or of the active virtual environment, or
/// on the search path.
pub(crate) fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        if path.is_file() {
            return Ok(path.to_owned());
        }
        return Err(Failure::usage(format!(
            "--python {}: no such file",
            path.display()
        )));
    }
    let beside = own_folder().map(|folder| folder.join("python"));
    let environment =
        std::env::var_os("VIRTUAL_ENV").map(|folder| Path::new(&folder).join("bin/python"));
    let search = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&search).map(|folder| folder.join("python3"));
    beside
        .into_iter()
        .chain(environment)
        .chain(on_path)
        .find(|path| path.is_file())
        .ok_or_else(|| Failure::new("no Python found: give --python"))
}

/// The folder that holds this program.
pub(crate) fn own_folder() -> Option<PathBuf> {
    std::env::current_exe().ok()?.parent().map(Path::to_owned)
}

/// What a script prints, if it ends well in time.
pub(crate) fn ask(python: &Path, script: &str, limit: Duration) -> Option<String> {
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + limit;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() >= deadline {
            // Both fail only if it just ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Answers are a few lines: they fit the pipe, so it could end before it was read.
    let output = child.wait_with_output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
