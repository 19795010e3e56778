//! One log for the launcher and all its children: text for people, JSON lines for collectors.
//!
//! Logs go to standard output, as TGI's; standard error has the progress line of a terminal and, at a bad end, the one
//! line that says why.

mod human;
mod progress;

use crate::failure::Failure;
use indicatif::ProgressBar;
use progress::ProgressState;
use serde_json::{Map, Value};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    /// The name in upper case, as in the records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }

    /// For `--log-level` of the workers.
    pub(crate) fn worker_name(self) -> &'static str {
        match self {
            Self::Trace | Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warning",
            Self::Error => "error",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        [
            Self::Trace,
            Self::Debug,
            Self::Info,
            Self::Warn,
            Self::Error,
        ]
        .into_iter()
        .find(|level| level.name().eq_ignore_ascii_case(name))
        .or_else(|| match name.to_ascii_uppercase().as_str() {
            "WARNING" => Some(Self::Warn),
            "CRITICAL" | "FATAL" => Some(Self::Error),
            _ => None,
        })
    }

    /// `LOG_LEVEL` is a level, or the router's filter directives; then the first bare level in it counts here.
    pub(crate) fn from_variable(value: Option<&str>) -> Self {
        value.and_then(Self::find).unwrap_or(Self::Info)
    }

    /// The first bare level in directives.
    pub(crate) fn find(directives: &str) -> Option<Self> {
        directives
            .split(',')
            .find_map(|directive| Self::parse(directive.trim()))
    }
}

/// Decided from flags and environment before anything else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogFormat {
    pub(crate) json: bool,
    pub(crate) colour: bool,
    pub(crate) level: Level,
    /// Standard error is a terminal that may show one updating line.
    pub(crate) progress_line: bool,
}

/// A handle; clones write to the same place.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    format: LogFormat,
    progress: Arc<Mutex<ProgressState>>,
}

impl Log {
    pub(crate) fn new(format: LogFormat) -> Self {
        let progress = Arc::new(Mutex::new(ProgressState::new(format.progress_line)));
        Self { format, progress }
    }

    /// The same log with another level; `None` if the name is none.
    pub(crate) fn with_level(&self, name: &str) -> Option<Self> {
        let level = Level::parse(name)?;
        Some(Self {
            format: LogFormat {
                level,
                ..self.format
            },
            progress: Arc::clone(&self.progress),
        })
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.format
    }

    pub(crate) fn info(&self, message: &str) {
        self.record(Level::Info, message);
    }

    pub(crate) fn warn(&self, message: &str) {
        self.record(Level::Warn, message);
    }

    pub(crate) fn error(&self, message: &str) {
        self.record(Level::Error, message);
    }

    pub(crate) fn debug(&self, message: &str) {
        self.record(Level::Debug, message);
    }

    /// A line that a child wrote to standard error: a record, or whatever else it prints (debug only).
    pub(crate) fn relay(&self, child: &str, line: &str) {
        match parse_record(line) {
            Some((level, record)) => {
                // What a child says last is told again with its end, in the launcher's own line.
                let is_told_again = record.get("last_words").is_some_and(|told| *told == true);
                let least = if is_told_again { Level::Debug } else { level };
                if least >= self.format.level {
                    self.write(level, &in_order(record));
                }
            }
            None => self.debug(&format!("{child}: {line}")),
        }
    }

    /// How far a long stage is.
    pub(crate) fn progress(&self, stage: &str, done: u64, total: u64, unit: &str) {
        let report = self.progress_state().update(stage, done, total, unit);
        if let Some(line) = report {
            self.info(&line);
        }
    }

    /// The stages are over: the progress line goes.
    pub(crate) fn end_progress(&self) {
        self.progress_state().clear();
    }

    /// Text for a person to read and paste, without the form of a record.
    pub(crate) fn plain(&self, text: &str) {
        self.put(text);
    }

    /// Why it ends, on standard error.
    pub(crate) fn failure(&self, failure: &Failure) {
        self.end_progress();
        let line = if self.format.json {
            let record = record(Level::Error, &failure.to_string());
            Value::Object(record).to_string()
        } else {
            format!("error: {failure}")
        };
        // Nobody is left to tell when standard error is gone.
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }

    fn record(&self, level: Level, message: &str) {
        if level >= self.format.level {
            self.write(level, &record(level, message));
        }
    }

    fn write(&self, level: Level, record: &Map<String, Value>) {
        let line = if self.format.json {
            serde_json::to_string(record).unwrap_or_default()
        } else {
            let with_traces = self.format.level <= Level::Debug;
            human::line(level, record, self.format.colour, with_traces)
        };
        self.put(&line);
    }

    fn put(&self, line: &str) {
        let state = self.progress_state();
        // A log whose reader went away must not end the server.
        let write = || {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        };
        match state.bar() {
            Some(bar) => ProgressBar::suspend(bar, write),
            None => write(),
        }
    }

    fn progress_state(&self) -> MutexGuard<'_, ProgressState> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A record of the launcher's own.
fn record(level: Level, message: &str) -> Map<String, Value> {
    let mut record = Map::new();
    record.insert(
        "timestamp".into(),
        format!("{:.6}", jiff::Timestamp::now()).into(),
    );
    record.insert("level".into(), level.name().into());
    record.insert("target".into(), "headrace.launcher".into());
    record.insert("message".into(), message.into());
    record
}

/// The keys that all records have, first and in one order whoever wrote it.
fn in_order(mut record: Map<String, Value>) -> Map<String, Value> {
    let mut ordered = Map::new();
    for key in ["timestamp", "level", "target", "message"] {
        if let Some((key, value)) = record.shift_remove_entry(key) {
            ordered.insert(key, value);
        }
    }
    ordered.append(&mut record);
    ordered
}

/// A child's record: an object with a level and a message.
pub(crate) fn parse_record(line: &str) -> Option<(Level, Map<String, Value>)> {
    if !line.starts_with('{') {
        return None;
    }
    let record: Map<String, Value> = serde_json::from_str(line).ok()?;
    let level = Level::parse(record.get("level")?.as_str()?)?;
    record.get("message")?.as_str()?;
    Some((level, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_the_variable() {
        for (value, expected) in [
            (None, Level::Info),
            (Some("debug"), Level::Debug),
            (Some("WARNING"), Level::Warn),
            (Some("tower=trace,error"), Level::Error),
            (Some("nonsense"), Level::Info),
        ] {
            assert_eq!(Level::from_variable(value), expected, "{value:?}");
        }
    }

    #[test]
    fn keys_have_one_order() {
        let (_, router) = parse_record(
            r#"{"timestamp":"t","level":"INFO","message":"m","epoch":1,"a":2,"target":"r"}"#,
        )
        .expect("a record");
        assert_eq!(
            Value::Object(in_order(router)).to_string(),
            r#"{"timestamp":"t","level":"INFO","target":"r","message":"m","epoch":1,"a":2}"#
        );
    }

    #[test]
    fn only_records_are_records() {
        let (level, record) =
            parse_record(r#"{"level":"WARNING","message":"m","rank":1}"#).expect("a record");
        assert_eq!((level, &record["rank"]), (Level::Warn, &Value::from(1)));
        for line in [
            "Traceback",
            "{",
            r#"{"message":"m"}"#,
            r#"{"level":"INFO"}"#,
            "[1]",
        ] {
            assert!(parse_record(line).is_none(), "{line}");
        }
    }
}
