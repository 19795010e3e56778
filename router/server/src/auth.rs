//! API keys.
//!
//! Keys are kept and compared as SHA-256 digests, in constant time, against every configured key, so neither the
//! time nor the number of keys tells anything about them. They are never logged.

use headrace_control::ApiKey;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// What the routes of the open list are: everything else is guarded, unknown paths too.
const OPEN_PATHS: [&str; 6] = ["/", "/health", "/ping", "/ready", "/info", "/metrics"];

/// Whether a request needs no key: pre-flight requests, probes, and what TGI leaves open.
pub(crate) fn is_open(method: &http::Method, path: &str) -> bool {
    if method == http::Method::OPTIONS {
        return true;
    }
    let reads = method == http::Method::GET || method == http::Method::HEAD;
    reads && OPEN_PATHS.contains(&path)
}

/// The configured keys.
#[derive(Clone)]
pub(crate) struct Keys {
    digests: Vec<[u8; 32]>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Keys")
            .field("count", &self.digests.len())
            .finish()
    }
}

impl Keys {
    pub(crate) fn new(keys: &[ApiKey]) -> Self {
        Self {
            digests: keys
                .iter()
                .map(|key| Sha256::digest(key.key.as_bytes()).into())
                .collect(),
        }
    }

    /// No key is asked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Whether the headers carry one of the keys, as `Authorization: Bearer KEY` or `x-api-key: KEY`.
    pub(crate) fn admit(&self, headers: &http::HeaderMap) -> bool {
        let mut admitted = Choice::from(0);
        for candidate in candidates(headers) {
            let digest: [u8; 32] = Sha256::digest(candidate).into();
            for known in &self.digests {
                admitted |= known.ct_eq(&digest);
            }
        }
        admitted.into()
    }
}

/// The keys that a request offers.
fn candidates(headers: &http::HeaderMap) -> impl Iterator<Item = &[u8]> {
    let bearer = headers
        .get(http::header::AUTHORIZATION)
        .and_then(|value| bearer_token(value.as_bytes()));
    let plain = headers.get("x-api-key").map(http::HeaderValue::as_bytes);
    bearer.into_iter().chain(plain)
}

/// The scheme's name is case-insensitive (RFC 9110), the key is not.
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"bearer") || !rest.starts_with(b" ") {
        return None;
    }
    Some(rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, Method};

    fn key(key: &str) -> ApiKey {
        ApiKey {
            name: format!("of {key}"),
            key: key.to_owned(),
            priority: 0,
        }
    }

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn both_header_forms_open_and_case_matters() {
        let keys = Keys::new(&[key("Secret-1"), key("two")]);
        for (name, value, admitted) in [
            ("authorization", "Bearer Secret-1", true),
            ("authorization", "bearer two", true),
            ("authorization", "Bearer secret-1", false),
            ("authorization", "Bearer Secret-1x", false),
            ("authorization", "Secret-1", false),
            ("authorization", "Basic two", false),
            ("authorization", "Bearer ", false),
            ("authorization", "Bearertwo", false),
            ("x-api-key", "two", true),
            ("x-api-key", "Two", false),
        ] {
            assert_eq!(
                keys.admit(&headers(name, value)),
                admitted,
                "{name}: {value}"
            );
        }
        assert!(!keys.admit(&HeaderMap::new()));
    }

    #[test]
    fn the_open_list_is_closed() {
        for path in OPEN_PATHS {
            assert!(is_open(&Method::GET, path));
            assert!(!is_open(&Method::POST, path));
        }
        for path in [
            "/generate",
            "/docs",
            "/v1/models",
            "/health/",
            "//health",
            "/nothing",
        ] {
            assert!(!is_open(&Method::GET, path), "{path}");
        }
        assert!(is_open(&Method::OPTIONS, "/generate"));
    }

    #[test]
    fn debug_output_shows_no_key() {
        let shown = format!("{:?}", Keys::new(&[key("secret")]));
        assert_eq!(shown, "Keys { count: 1 }");
    }
}
