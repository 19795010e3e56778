//! Answers, byte for byte, against files under `golden/`.

use super::Answer;
use std::fmt::Write;
use std::path::PathBuf;

/// Headers whose values are part of the contract.
const SHOWN: [&str; 13] = [
    "cache-control",
    "connection",
    "content-type",
    "retry-after",
    "www-authenticate",
    "x-accel-buffering",
    "x-compute-characters",
    "x-compute-type",
    "x-generated-tokens",
    "x-headrace-ignored",
    "x-prompt-tokens",
    "x-request-id",
    "x-should-retry",
];

/// Headers whose values are times: only that they are there counts.
const TIMES: [&str; 6] = [
    "x-compute-time",
    "x-inference-time",
    "x-queue-time",
    "x-time-per-token",
    "x-total-time",
    "x-validation-time",
];

/// Request and answer as a golden file has them.
pub fn show(request: &str, answer: &Answer) -> String {
    let mut text = format!("{request}\n\n{}\n", answer.status.as_u16());
    for name in SHOWN {
        if let Some(value) = answer.headers.get(name) {
            writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
        }
    }
    for name in TIMES {
        if let Some(value) = answer.headers.get(name) {
            assert!(value.to_str().unwrap().parse::<f64>().is_ok(), "{name}");
            writeln!(text, "{name}: (a number)").unwrap();
        }
    }
    writeln!(text, "\n{}", normalise(&answer.body)).unwrap();
    text
}

/// Replaces what differs from run to run: ids, times, and seeds that nobody chose (those have many digits).
fn normalise(body: &str) -> String {
    let body = replace_after(body, "cmpl-", char::is_ascii_hexdigit, 32, "ID");
    let body = replace_after(&body, "\"created\":", char::is_ascii_digit, 10, "TIME");
    replace_after(&body, "\"seed\":", char::is_ascii_digit, 6, "SEED")
}

/// Replaces values of at least `length` characters that follow `word`.
fn replace_after(
    body: &str,
    word: &str,
    belongs: fn(&char) -> bool,
    length: usize,
    by: &str,
) -> String {
    let mut parts = body.split(word);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let value = part.chars().take_while(&belongs).count();
        out.push_str(word);
        if value >= length {
            out.push_str(by);
            out.push_str(&part[value..]);
        } else {
            out.push_str(part);
        }
    }
    out
}

/// Against `golden/NAME.txt`; `UPDATE_GOLDEN=1` writes it.
pub fn check(name: &str, shown: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, shown).unwrap();
    }
    let expected = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(shown, expected, "{name} differs from {}", path.display());
}
