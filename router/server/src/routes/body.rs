//! Reads request bodies: declared type and size first, then bytes, then JSON.

use crate::app::AppState;
use crate::body_bytes;
use crate::request_log::RequestLog;
use crate::tenant::Tenant;
use axum::extract::Request;
use headrace_dialect::json::Json;
use headrace_dialect::refusal::{Cause, Refusal};
use headrace_text::OneLine;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Extensions, HeaderMap};
use std::sync::Arc;

/// The body of a request that needs a permit. Where there is none, it is neither kept nor parsed: under
/// overload most requests end here. It is read all the same, for a connection that is closed while its client sends may
/// cost the client the answer.
pub(crate) async fn read_call(state: &AppState, request: Request) -> Result<Json, Refusal> {
    let tenant = tenant_of(request.extensions());
    if let Err(refusal) = state.check_room(tenant) {
        body_bytes::forget(request.into_body(), state.config().payload_limit).await;
        return Err(refusal);
    }
    read_json(state, request).await
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
        return Err(body_bytes::too_large(limit));
    }
    let tenant = tenant_of(&parts.extensions);
    Json::parse(&body_bytes::read(body, limit, state.bodies(), tenant).await?)
}

fn tenant_of(extensions: &Extensions) -> Tenant {
    let log = extensions.get::<Arc<RequestLog>>();
    log.map_or(Tenant::NOBODY, |log| log.caller().tenant())
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
