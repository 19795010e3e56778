//! transformers, asked over a pipe.

use headrace_text::TemplateError;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Python with transformers: `HEADRACE_PYTHON`, or the checkout's own; `None` and a line where there is none.
pub fn python() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("HEADRACE_PYTHON") {
        return Some(PathBuf::from(path));
    }
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join(".venv/bin/python"))
        .find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: no .venv/bin/python with transformers (make install)");
    }
    found
}

/// What transformers says to each case (see `oracle/render_chats.py`).
pub fn ask(python: &Path, cases: &[Value]) -> Vec<Value> {
    ask_script(python, "render_chats.py", &Value::from(cases))
}

/// What a script of `oracle/` says.
pub fn ask_script(python: &Path, script: &str, question: &Value) -> Vec<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle")
        .join(script);
    let mut oracle = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let body = serde_json::to_vec(question).unwrap();
    oracle.stdin.take().unwrap().write_all(&body).unwrap();
    let output = oracle.wait_with_output().unwrap();
    assert!(output.status.success(), "the oracle failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Equal texts; or a template's own refusal in its own words. Where the other side fails with an error of Python's,
/// any answer is right.
pub fn is_right(ours: &Result<String, TemplateError>, answer: &Value) -> bool {
    match (ours, answer.get("text")) {
        (Ok(text), Some(right)) => right == text,
        (Err(TemplateError::Raised(text)), None) if answer["raised"] == true => {
            one_line(answer["error"].as_str().unwrap()) == *text
        }
        (_, None) => answer["raised"] == false,
        (Err(_), Some(_)) => false,
    }
}

/// Where the two part.
pub fn difference(name: &str, ours: &Result<String, TemplateError>, answer: &Value) -> String {
    let ours = match ours {
        Ok(text) => text.clone(),
        Err(error) => format!("error: {error}"),
    };
    let right = match (answer["text"].as_str(), answer["error"].as_str()) {
        (Some(text), _) => text.to_owned(),
        (None, error) => format!("error: {}", error.unwrap_or_default()),
    };
    let common = ours
        .chars()
        .zip(right.chars())
        .take_while(|(ours, right)| ours == right)
        .count();
    let from = common.saturating_sub(30);
    let shown = |text: &str| text.chars().skip(from).take(120).collect::<String>();
    format!(
        "{name} (after {common} characters)\n  ours:  {:?}\n  right: {:?}",
        shown(&ours),
        shown(&right)
    )
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
