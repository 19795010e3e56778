//! Why an admitted request ended with an error: one set for all dialects. On native routes each is a generation error
//! (424, or an event); on `/v1` its code is the error's `code` (500, or an event).

use crate::refusal::{Cause, Refusal};
use std::fmt;

/// Why an admitted request ended with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The model's output for it has NaN or infinity.
    Numeric,
    /// Its memory cannot be had even with nothing else running.
    OutOfMemory,
    /// It had not begun to run when its `timeout` was over.
    Deadline,
    /// No token may follow under its grammar; why.
    GrammarDeadEnd(String),
    /// The workers died with it, twice, with nothing else running.
    WorkerCrash,
    /// Its client had not read for too long.
    Stalled,
    /// Somebody who may end it did (`/abort`).
    Aborted,
    /// The grace time of a drain was over.
    Draining,
    /// The workers are gone for good; why.
    WorkersLost(String),
    /// The worker's own words.
    Worker(String),
}

impl Failure {
    /// For programs; `None` where there are only the worker's words.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Numeric => Some("numeric_error"),
            Self::OutOfMemory => Some("out_of_memory"),
            Self::Deadline => Some("deadline_exceeded"),
            Self::GrammarDeadEnd(_) => Some("grammar_dead_end"),
            Self::WorkerCrash => Some("worker_crash"),
            Self::Stalled => Some("client_stalled"),
            Self::Aborted => Some("aborted"),
            Self::Draining => Some("shutting_down"),
            Self::WorkersLost(_) => Some("workers_lost"),
            Self::Worker(_) => None,
        }
    }

    /// The same request would fail again, or is not wanted: a client that repeats it by itself only adds load. A deadline
    /// that passed in the queue says nothing of the next try.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Numeric
            | Self::OutOfMemory
            | Self::GrammarDeadEnd(_)
            | Self::WorkerCrash
            | Self::Stalled
            | Self::Aborted => true,
            Self::Deadline | Self::Draining | Self::WorkersLost(_) | Self::Worker(_) => false,
        }
    }

    /// As an error of the request.
    pub fn refusal(&self) -> Refusal {
        let refusal = Refusal::generation(&self.to_string());
        let refusal = match self {
            Self::Aborted => refusal.because(Cause::Aborted),
            _ => refusal,
        };
        let refusal = match self.code() {
            Some(code) => refusal.with_code(code),
            None => refusal,
        };
        if self.is_final() {
            refusal.not_to_be_repeated()
        } else {
            refusal
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Numeric => "the model's output for this request is not finite",
            Self::OutOfMemory => "out of memory, even with nothing else running",
            Self::Deadline => "its `timeout` was over before it could run",
            Self::WorkerCrash => "the model worker died twice while it ran this request alone",
            Self::Stalled => "its answer had not been read for too long",
            Self::Aborted => "the request was aborted",
            Self::Draining => "the server is shutting down and the grace time is over",
            Self::GrammarDeadEnd(words) => {
                return write!(
                    formatter,
                    "the grammar allows no further token: {words} (grammar_dead_end)"
                );
            }
            Self::WorkersLost(cause) => {
                return write!(
                    formatter,
                    "the model workers are gone: {cause} (workers_lost)"
                );
            }
            Self::Worker(words) => return formatter.write_str(words),
        };
        write!(formatter, "{words} ({})", self.code().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Dialect;

    #[test]
    fn every_failure_has_its_status_code_and_words() {
        let cases = [
            (Failure::Numeric, "numeric_error", true),
            (Failure::OutOfMemory, "out_of_memory", true),
            (Failure::Deadline, "deadline_exceeded", false),
            (
                Failure::GrammarDeadEnd("x".to_owned()),
                "grammar_dead_end",
                true,
            ),
            (Failure::WorkerCrash, "worker_crash", true),
            (Failure::Stalled, "client_stalled", true),
            (Failure::Aborted, "aborted", true),
            (Failure::Draining, "shutting_down", false),
            (Failure::WorkersLost("x".to_owned()), "workers_lost", false),
        ];
        for (failure, code, is_final) in cases {
            let refusal = failure.refusal();
            assert_eq!(refusal.status(Dialect::Native), 424, "{code}");
            assert_eq!(refusal.status(Dialect::OpenAi), 500, "{code}");
            assert_eq!(refusal.error_type(), "generation", "{code}");
            assert_eq!(refusal.may_be_repeated(), !is_final, "{code}");
            assert!(refusal.message().ends_with(&format!(" ({code})")), "{code}");
            let body: serde_json::Value =
                serde_json::from_str(&refusal.stream_body(Dialect::OpenAi)).unwrap();
            assert_eq!(body["error"]["code"], code);
            assert_eq!(body["error"]["type"], "server_error");
            assert_eq!(body["error"]["http_status_code"], 500);
        }
        let words = Failure::Worker("slot 3: bad".to_owned()).refusal();
        assert_eq!(
            words.message(),
            "Request failed during generation: slot 3: bad"
        );
        assert!(words.body(Dialect::OpenAi).contains("\"code\":null"));
        assert!(words.may_be_repeated());
    }
}
