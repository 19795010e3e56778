//! Answers: JSON, errors, and TGI's headers.

use super::generation::Generation;
use super::table;
use crate::app::AppState;
use crate::request_log::{Counts, RequestLog, Times};
use crate::sse::{self, FrameWriter};
use axum::body::Body;
use axum::response::Response;
use headrace_dialect::ignored::Ignored;
use headrace_dialect::refusal::{Cause, Dialect, Refusal, to_json};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// Keys that nothing knows, in a request that was answered all the same.
const IGNORED: HeaderName = HeaderName::from_static("x-headrace-ignored");

/// `false`: `OpenAI`'s clients repeat errors from 500 on by themselves, and this one they would meet again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A JSON body with a status.
pub(crate) fn json_text(status: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// 200 and one of our wire types.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> Response {
    json_text(StatusCode::OK, to_json(value))
}

/// One of our wire types with a status.
pub(crate) fn json_with<T: serde::Serialize>(status: StatusCode, value: &T) -> Response {
    json_text(status, to_json(value))
}

/// An error's whole answer.
pub(crate) fn refused(state: &AppState, dialect: Dialect, refusal: &Refusal) -> Response {
    let status =
        StatusCode::from_u16(refusal.status(dialect)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_text(status, refusal.body(dialect));
    let headers = response.headers_mut();
    if !refusal.may_be_repeated() {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    }
    let wait = || {
        let of_all = || state.engine().retry_after();
        retry_after(refusal.retry_after().unwrap_or_else(of_all))
    };
    match refusal.cause() {
        Cause::Overloaded => insert(headers, RETRY_AFTER, wait()),
        Cause::Unavailable => {
            insert(headers, RETRY_AFTER, wait());
            // Some clients repeat at once on 503: make that cost them a connection.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Cause::Unauthorized => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        _ => {}
    }
    response
}

/// Whole seconds from 1 to 120: clients ignore 0 and give up above 120.
fn retry_after(wait: Duration) -> String {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    seconds.clamp(1, 120).to_string()
}

/// A handler's answer; an error goes to the log first.
pub(crate) fn finish(
    state: &AppState,
    log: &Arc<RequestLog>,
    dialect: Dialect,
    result: Result<Response, Refusal>,
) -> Response {
    result.unwrap_or_else(|refusal| {
        log.fail(&refusal);
        refused(state, dialect, &refusal)
    })
}

/// Names the ignored keys, to the client and once to the operator.
pub(crate) fn add_ignored(
    state: &AppState,
    log: &RequestLog,
    response: &mut Response,
    ignored: &Ignored,
) {
    if ignored.is_empty() {
        return;
    }
    state
        .unknown_fields()
        .tell(table::pattern_of(log.route()), ignored);
    insert_ignored(response.headers_mut(), ignored);
}

fn insert_ignored(headers: &mut HeaderMap, ignored: &Ignored) {
    if let Some(line) = ignored.header() {
        insert(headers, IGNORED, line);
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

fn insert_static(headers: &mut HeaderMap, name: &'static str, value: String) {
    insert(headers, HeaderName::from_static(name), value);
}

/// What TGI's headers tell of a request, besides its counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// Characters of the prompts.
    pub(crate) characters: usize,
    /// `x-compute-time` is given (TGI leaves it out of `/v1/completions`).
    pub(crate) compute_time: bool,
}

/// TGI's headers of an answer that is not streamed.
fn add_timing(state: &AppState, log: &RequestLog, measure: Measure, response: &mut Response) {
    let total = log.elapsed();
    let times: Times = log.times();
    let counts: Counts = log.counts();
    let headers = response.headers_mut();
    add_compute(state, measure.characters, headers);
    if measure.compute_time {
        let seconds = format!("{:.3}", total.as_secs_f64());
        insert_static(headers, "x-compute-time", seconds);
    }
    let milliseconds = |duration: Duration| duration.as_millis().to_string();
    insert_static(headers, "x-total-time", milliseconds(total));
    insert_static(
        headers,
        "x-validation-time",
        milliseconds(times.validation()),
    );
    insert_static(headers, "x-queue-time", milliseconds(times.queue()));
    insert_static(headers, "x-inference-time", milliseconds(times.inference()));
    let per_token = times
        .inference()
        .checked_div(counts.generated)
        .unwrap_or_default();
    insert_static(headers, "x-time-per-token", milliseconds(per_token));
    insert_static(headers, "x-prompt-tokens", counts.prompt.to_string());
    insert_static(headers, "x-generated-tokens", counts.generated.to_string());
}

/// 200, one of our wire types, and TGI's headers.
pub(crate) fn timed_json<T: serde::Serialize>(
    state: &AppState,
    log: &RequestLog,
    measure: Measure,
    value: &T,
) -> Response {
    let mut response = json(value);
    add_timing(state, log, measure, &mut response);
    response
}

/// A generation as an event stream, with TGI's headers.
pub(crate) fn stream(
    state: &AppState,
    generation: Generation,
    writer: impl FrameWriter,
    dialect: Dialect,
    characters: usize,
) -> Response {
    let mut response = sse::respond(generation, writer, dialect);
    add_stream_headers(state, characters, &mut response);
    response
}

/// TGI's headers of a stream.
fn add_stream_headers(state: &AppState, characters: usize, response: &mut Response) {
    let headers = response.headers_mut();
    add_compute(state, characters, headers);
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
}

fn add_compute(state: &AppState, characters: usize, headers: &mut HeaderMap) {
    insert_static(
        headers,
        "x-compute-type",
        state.config().compute_type.clone(),
    );
    insert_static(headers, "x-compute-characters", characters.to_string());
}

/// `VERSION-LABEL`, as in TGI.
pub(crate) fn system_fingerprint(state: &AppState) -> String {
    format!(
        "{}-{}",
        env!("CARGO_PKG_VERSION"),
        state.config().docker_label.as_deref().unwrap_or("native")
    )
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_an_integer_from_1_to_120() {
        for (wait, expected) in [
            (Duration::ZERO, "1"),
            (Duration::from_millis(1), "1"),
            (Duration::from_millis(1500), "2"),
            (Duration::from_secs(500), "120"),
        ] {
            assert_eq!(retry_after(wait), expected);
        }
    }

    #[test]
    fn ignored_keys_cannot_break_the_header() {
        let mut response = Response::new(Body::empty());
        let mut ignored = Ignored::default();
        for key in ["a\r\nx: y", "b,c", &"x".repeat(5000)] {
            ignored.push("", key, || None);
        }
        insert_ignored(response.headers_mut(), &ignored);
        let value = response.headers()[IGNORED].to_str().unwrap().to_owned();
        assert_eq!(value, format!("a%0D%0Ax:%20y, b%2Cc, {}", "x".repeat(100)));
    }
}
