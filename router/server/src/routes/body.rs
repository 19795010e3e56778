//! Reads request bodies: declared type and size first, then bytes, then JSON.

use crate::app::AppState;
use crate::request_log::RequestLog;
use crate::tenant::Tenant;
use axum::body::Body;
use axum::extract::Request;
use headrace_dialect::json::Json;
use headrace_dialect::refusal::{Cause, Refusal};
use headrace_text::OneLine;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use std::sync::Arc;

/// The body of a request that needs a permit. Where there is none, it is neither kept nor parsed: under
/// overload most requests end here. It is read all the same, for a connection that is closed while its client sends may
/// cost the client the answer.
pub(crate) async fn read_call(state: &AppState, request: Request) -> Result<Json, Refusal> {
    let log = request.extensions().get::<Arc<RequestLog>>();
    let tenant = log.map_or(Tenant::NOBODY, |log| log.caller().tenant());
    if let Err(refusal) = state.check_room(tenant) {
        drop_body(request.into_body(), state.config().payload_limit).await;
        return Err(refusal);
    }
    read_json(state, request).await
}

/// Reads and forgets at most `limit` bytes.
async fn drop_body(mut body: Body, limit: usize) {
    let mut left = limit;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, bytes::Bytes::len);
        if length > left {
            return;
        }
        left -= length;
    }
}

/// The body as JSON, never more than the limit of it in memory.
pub(crate) async fn read_json(state: &AppState, request: Request) -> Result<Json, Refusal> {
    let (parts, body) = request.into_parts();
    if !is_json(&parts.headers) {
        return Err(Refusal::new(
            Cause::MediaType,
            "Expected request with `Content-Type: application/json`",
        ));
    }
    if let Some(encoding) = encoding_of(&parts.headers) {
        return Err(Refusal::new(
            Cause::MediaType,
            format!(
                "`Content-Encoding: {encoding:.32}` is not supported: send the body as plain JSON"
            ),
        ));
    }
    let limit = state.config().payload_limit;
    let declared = parts
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    Json::parse(&read_bytes(body, limit).await?)
}

async fn read_bytes(body: Body, limit: usize) -> Result<bytes::Bytes, Refusal> {
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.downcast_ref::<LengthLimitError>().is_some() => Err(too_large(limit)),
        Err(error) => Err(Refusal::new(
            Cause::MalformedJson,
            format!("Failed to buffer the request body: {error}"),
        )),
    }
}

fn too_large(limit: usize) -> Refusal {
    Refusal::new(
        Cause::PayloadTooLarge,
        format!("Failed to buffer the request body: length limit exceeded ({limit} bytes)"),
    )
}

/// `application/json`, `application/…+json`, with or without parameters.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    let subtype = subtype.to_ascii_lowercase();
    kind.eq_ignore_ascii_case("application") && (subtype == "json" || subtype.ends_with("+json"))
}

/// How the body is packed, if it is.
fn encoding_of(headers: &HeaderMap) -> Option<OneLine<'_>> {
    let mut values = headers.get_all(CONTENT_ENCODING).into_iter();
    let packed = values.find(|value| {
        let value = value.as_bytes().trim_ascii();
        !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")
    })?;
    Some(OneLine(packed.to_str().unwrap_or("?")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_types() {
        for (value, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/problem+json", true),
            ("text/plain", false),
            ("text/json", false),
            ("json", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(is_json(&headers), expected, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn only_what_is_packed_has_an_encoding() {
        for (value, expected) in [
            ("gzip", Some("gzip")),
            ("identity", None),
            (" Identity ", None),
            ("", None),
            ("br, gzip", Some("br, gzip")),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_ENCODING, value.parse().unwrap());
            let found = encoding_of(&headers).map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{value}");
        }
        assert!(encoding_of(&HeaderMap::new()).is_none());
    }
}
