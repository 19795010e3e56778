//! `x-request-id`: the client's own if it is one that may stand in a header and a log, else a new one. What a body calls
//! its request (`headrace_dialect::request_id`) goes before it in the answer; both find the request.

use headrace_dialect::request_id::is_acceptable;
use http::{HeaderMap, HeaderName};

/// In and out.
pub(crate) const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request.
pub(crate) fn of(headers: &HeaderMap) -> String {
    headers
        .get(HEADER)
        .and_then(|value| value.to_str().ok())
        .filter(|id| is_acceptable(id))
        .map_or_else(fresh, str::to_owned)
}

/// 128 random bits in hexadecimal.
pub(crate) fn fresh() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn of_value(value: &[u8]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(value).unwrap());
        of(&headers)
    }

    #[test]
    fn good_ids_are_kept_and_others_replaced() {
        assert_eq!(of_value(b"req_1-A.b:c"), "req_1-A.b:c");
        for bad in [
            &b""[..],
            b"a b",
            b"a\"b",
            b"\xff",
            b"{x}",
            "x".repeat(129).as_bytes(),
        ] {
            let id = of_value(bad);
            assert_eq!(id.len(), 32);
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        assert_ne!(of(&HeaderMap::new()), of(&HeaderMap::new()));
    }
}
