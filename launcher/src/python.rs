//! Which Python runs the workers, and short questions to it.

use crate::failure::Failure;
use headrace_checkpoint::OneLine;
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
        let fault = if path.exists() {
            "not a file; it must be the Python program itself"
        } else {
            "no such file"
        };
        return Err(Failure::usage(format!(
            "--python {}: {fault}",
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

/// A virtual environment that is active and has no Python to take.
pub(crate) fn empty_environment(chosen: &Path) -> Option<String> {
    let folder = std::env::var_os("VIRTUAL_ENV").filter(|folder| !folder.is_empty())?;
    let folder = Path::new(&folder);
    let is_beside = chosen.parent() == own_folder().as_deref();
    (!is_beside && !folder.join("bin/python").is_file()).then(|| {
        format!(
            "VIRTUAL_ENV {}: there is no bin/python in it; {} is used",
            folder.display(),
            chosen.display()
        )
    })
}

/// The folder that holds this program.
pub(crate) fn own_folder() -> Option<PathBuf> {
    std::env::current_exe().ok()?.parent().map(Path::to_owned)
}

/// For a script to end. A machine that has just started reads slowly.
const CHECK_LIMIT: Duration = Duration::from_secs(30);

/// Before the answer, which tells it from whatever else a program prints.
const MARK: &str = "headrace-python";

/// The version, then the packages that are missing. It imports none of them, and every Python can read it.
const CHECK: &str = "\
import sys
print('headrace-python %d.%d' % sys.version_info[:2])
import importlib.util
for name in ('headrace', 'torch', 'numpy', 'safetensors', 'grpc', 'huggingface_hub'):
    if importlib.util.find_spec(name) is None:
        print(name)
";

/// The oldest Python that the workers run on.
const OLDEST: (u32, u32) = (3, 11);

/// Whether a Python can run the workers, before anything depends on it. `is_given`: by `--python`.
pub(crate) fn check(python: &Path, is_given: bool) -> Result<(), Failure> {
    let fault = match question(python, CHECK, CHECK_LIMIT) {
        Ok(answer) => judge(&answer),
        Err(fault) => Some(fault),
    };
    let Some(fault) = fault else { return Ok(()) };
    let path = python.display();
    Err(if is_given {
        Failure::usage(format!("--python {path}: {fault}"))
    } else {
        Failure::new(format!("{path}: {fault}; --python names another one"))
    })
}

/// What is wrong, by the answer.
fn judge(answer: &str) -> Option<String> {
    let mut lines = answer.lines();
    let version = lines.next().and_then(|line| line.strip_prefix(MARK));
    let Some(version) = version.map(str::trim) else {
        return Some("it does not answer as a Python does".to_owned());
    };
    let number = |part: Option<&str>| part?.parse::<u32>().ok();
    let mut parts = version.split('.');
    let known = number(parts.next()).zip(number(parts.next()));
    let (major, minor) = OLDEST;
    if known.is_none_or(|version| version < OLDEST) {
        return Some(format!(
            "it is Python {version}, and the workers need {major}.{minor} or a later one"
        ));
    }
    let missing: Vec<&str> = lines.collect();
    (!missing.is_empty()).then(|| format!("it lacks {}", missing.join(", ")))
}

/// What a script prints, if it ends well in time.
pub(crate) fn ask(python: &Path, script: &str, limit: Duration) -> Option<String> {
    question(python, script, limit).ok()
}

/// What a script prints, or why it printed nothing.
fn question(python: &Path, script: &str, limit: Duration) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("it cannot be run: {error}");
    let mut child = Command::new(python)
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(cannot)?;
    let deadline = Instant::now() + limit;
    while child.try_wait().map_err(cannot)?.is_none() {
        if Instant::now() >= deadline {
            // Both fail only if it just ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("it did not answer within {} s", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Answers are a few lines: they fit the pipe, so it could end before it was read.
    let output = child.wait_with_output().map_err(cannot)?;
    let answer = String::from_utf8_lossy(&output.stdout).into_owned();
    // One that is too old says its version before it fails.
    if output.status.success() || answer.starts_with(MARK) {
        return Ok(answer);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    let last = last.map_or_else(String::new, |line| format!(" ({:.200})", OneLine(line)));
    Err(format!(
        "it ended with {} instead of answering{last}",
        output.status
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged() {
        for (answer, fault) in [
            ("headrace-python 3.11\n", None),
            ("headrace-python 3.14\n", None),
            ("headrace-python 4.0\n", None),
            ("", Some("it does not answer as a Python does")),
            ("hello\n", Some("it does not answer as a Python does")),
            (
                "headrace-python 2.7\n",
                Some("it is Python 2.7, and the workers need 3.11 or a later one"),
            ),
            (
                "headrace-python 3.10\ntorch\n",
                Some("it is Python 3.10, and the workers need 3.11 or a later one"),
            ),
            (
                "headrace-python 3.12\nheadrace\ntorch\n",
                Some("it lacks headrace, torch"),
            ),
        ] {
            assert_eq!(judge(answer).as_deref(), fault, "{answer}");
        }
    }

    #[test]
    fn a_program_that_is_no_python_is_told_by_how_it_ends() {
        for (program, words) in [
            ("/bin/false", "it ended with exit status: 1"),
            ("/bin/true", "it does not answer as a Python does"),
            ("/etc/passwd", "it cannot be run: "),
        ] {
            let line = check(Path::new(program), true)
                .expect_err(program)
                .to_string();
            assert!(
                line.starts_with(&format!("--python {program}: {words}")),
                "{line}"
            );
        }
        let line = check(Path::new("/bin/false"), false)
            .expect_err("found")
            .to_string();
        assert!(line.ends_with("; --python names another one"), "{line}");
    }
}
