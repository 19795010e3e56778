//! A record as a line for people, in the shape that TGI's logs have.

use super::Level;
use serde_json::{Map, Value};
use std::fmt::Write;

/// `2026-11-29T20:53:10.123456Z  INFO headrace.launcher: message key=value`. Of a trace only the last line is shown
/// unless `with_traces`: that names the fault, and JSON lines have all of it.
pub(super) fn line(
    level: Level,
    record: &Map<String, Value>,
    colour: bool,
    with_traces: bool,
) -> String {
    let text = |key: &str| record.get(key).and_then(Value::as_str).unwrap_or("");
    let (dim, plain, hue) = if colour {
        let hue = match level {
            Level::Error => "\x1b[31m",
            Level::Warn => "\x1b[33m",
            Level::Info => "\x1b[32m",
            Level::Debug => "\x1b[34m",
            Level::Trace => "\x1b[35m",
        };
        ("\x1b[2m", "\x1b[0m", hue)
    } else {
        ("", "", "")
    };
    let mut line = format!(
        "{dim}{}{plain} {hue}{:>5}{plain} {dim}{}:{plain} {}",
        text("timestamp"),
        level.name(),
        text("target"),
        text("message"),
    );
    for (key, value) in record {
        if matches!(key.as_str(), "timestamp" | "level" | "target" | "message") {
            continue;
        }
        let result = match value {
            // A traceback reads better as it is.
            Value::String(text) if text.contains('\n') && with_traces => {
                write!(line, "\n{text}")
            }
            Value::String(text) if text.contains('\n') => {
                let last = text.lines().rev().find(|line| !line.trim().is_empty());
                let last = Value::from(last.unwrap_or("").trim());
                write!(line, " {dim}{key}={plain}{last}")
            }
            Value::String(text) if is_one_word(text) => write!(line, " {dim}{key}={plain}{text}"),
            other => write!(line, " {dim}{key}={plain}{other}"),
        };
        // Writing to a string does not fail.
        debug_assert!(result.is_ok());
    }
    line
}

fn is_one_word(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|character| character.is_ascii_graphic() && character != '"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_follow_the_message() {
        let record = serde_json::json!({
            "timestamp": "2026-01-02T03:04:05Z", "level": "INFO", "target": "headrace.worker",
            "message": "ready", "rank": 1, "device": "cpu", "why": "two words",
        });
        let record = record.as_object().expect("an object");
        assert_eq!(
            line(Level::Info, record, false, false),
            "2026-01-02T03:04:05Z  INFO headrace.worker: ready rank=1 device=cpu why=\"two words\""
        );
        let coloured = line(Level::Error, record, true, false);
        assert!(coloured.contains("\x1b[31mERROR\x1b[0m"), "{coloured:?}");
    }

    #[test]
    fn a_trace_is_one_line_unless_asked_for() {
        let record = serde_json::json!({
            "timestamp": "t", "level": "ERROR", "target": "w", "message": "prepare failed",
            "traceback": "Traceback:\n  File x\nKeyError: 'a b'\n",
        });
        let record = record.as_object().expect("an object");
        assert_eq!(
            line(Level::Error, record, false, false),
            "t ERROR w: prepare failed traceback=\"KeyError: 'a b'\""
        );
        let whole = line(Level::Error, record, false, true);
        assert!(whole.contains("failed\nTraceback:\n  File x\n"), "{whole}");
    }
}
