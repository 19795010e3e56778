//! API keys.
//!
//! Keys are kept and compared as SHA-256 digests, in constant time, against every configured key, so neither the
//! time nor the number of keys tells anything about them. They are never logged.

use crate::caller::{Caller, Namespaces};
use headrace_control::ApiKey;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Whose key a request carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The admin key's.
    Admin(Arc<Caller>),
    /// One of the others'.
    Key(Arc<Caller>),
    /// None, or one that is not known.
    Nobody,
}

/// The configured keys.
#[derive(Clone)]
pub(crate) struct Keys {
    /// In the order of the list.
    listed: Vec<([u8; 32], Arc<Caller>)>,
    admin: Option<([u8; 32], Arc<Caller>)>,
    anyone: Arc<Caller>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Keys")
            .field("count", &self.listed.len())
            .field("has_admin", &self.admin.is_some())
            .finish_non_exhaustive()
    }
}

impl Keys {
    pub(crate) fn new(keys: &[ApiKey], admin: Option<&str>, namespaces: &Namespaces) -> Self {
        let digest = |key: &str| -> [u8; 32] { Sha256::digest(key.as_bytes()).into() };
        Self {
            listed: keys
                .iter()
                .enumerate()
                .map(|(index, key)| {
                    let caller = Caller::of_key(key, index, namespaces);
                    (digest(&key.key), Arc::new(caller))
                })
                .collect(),
            admin: admin.map(|key| (digest(key), Arc::new(Caller::admin(keys.len(), namespaces)))),
            anyone: Arc::new(Caller::anyone()),
        }
    }

    /// No key is asked for, but on control routes.
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// There are control routes.
    pub(crate) fn has_admin(&self) -> bool {
        self.admin.is_some()
    }

    /// What the keys are called, in the order of [`Caller::index`].
    pub(crate) fn names(&self) -> Vec<String> {
        let held = self.listed.iter().chain(&self.admin);
        held.filter_map(|(_, caller)| caller.name().map(str::to_owned))
            .collect()
    }

    /// Whoever sends no key where none is asked for.
    pub(crate) fn anyone(&self) -> &Arc<Caller> {
        &self.anyone
    }

    /// Whose key the headers carry, as `Authorization: Bearer KEY` or `x-api-key: KEY`. With two, the admin's counts,
    /// else the first of the list.
    pub(crate) fn holder(&self, headers: &http::HeaderMap) -> Holder {
        // 0 is the admin, then the list. Every digest is compared; which one was equal shows first at the end, to
        // somebody who has it.
        let mut found = NO_KEY;
        for candidate in candidates(headers) {
            let digest: [u8; 32] = Sha256::digest(candidate).into();
            let mut held = NO_KEY;
            for (number, (known, _)) in (1_u64..).zip(&self.listed) {
                held.conditional_assign(&number, known.ct_eq(&digest));
            }
            if let Some((known, _)) = &self.admin {
                held.conditional_assign(&0, known.ct_eq(&digest));
            }
            found = found.min(held);
        }
        match (found, &self.admin) {
            (NO_KEY, _) => Holder::Nobody,
            (0, Some((_, admin))) => Holder::Admin(Arc::clone(admin)),
            (number, _) => usize::try_from(number)
                .ok()
                .and_then(|number| self.listed.get(number.checked_sub(1)?))
                .map_or(Holder::Nobody, |(_, caller)| {
                    Holder::Key(Arc::clone(caller))
                }),
        }
    }
}

/// No key of ours.
const NO_KEY: u64 = u64::MAX;

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
    use http::{HeaderMap, HeaderValue};

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

    fn keys(list: &[&str], admin: Option<&str>) -> Keys {
        let list: Vec<ApiKey> = list.iter().map(|text| key(text)).collect();
        Keys::new(&list, admin, &Namespaces::new())
    }

    /// The name of the holder.
    fn name(holder: Holder) -> Option<String> {
        match holder {
            Holder::Nobody => None,
            Holder::Key(caller) => caller.name().map(str::to_owned),
            Holder::Admin(caller) => Some(format!("the {}", caller.name().unwrap())),
        }
    }

    #[test]
    fn both_header_forms_open_and_case_matters() {
        let keys = keys(&["Secret-1", "two"], Some("Boss"));
        for (header, value, holder) in [
            ("authorization", "Bearer Secret-1", Some("of Secret-1")),
            ("authorization", "bearer two", Some("of two")),
            ("authorization", "Bearer secret-1", None),
            ("authorization", "Bearer Secret-1x", None),
            ("authorization", "Secret-1", None),
            ("authorization", "Basic two", None),
            ("authorization", "Bearer ", None),
            ("authorization", "Bearertwo", None),
            ("authorization", "Bearer Boss", Some("the admin")),
            ("authorization", "Bearer boss", None),
            ("x-api-key", "two", Some("of two")),
            ("x-api-key", "Two", None),
            ("x-api-key", "Boss", Some("the admin")),
        ] {
            assert_eq!(
                name(keys.holder(&headers(header, value))).as_deref(),
                holder,
                "{header}: {value}"
            );
        }
        assert_eq!(keys.holder(&HeaderMap::new()), Holder::Nobody);
    }

    #[test]
    fn of_two_keys_the_admins_counts_then_the_first() {
        let keys = keys(&["one", "two"], Some("Boss"));
        for (bearer, plain, holder) in [
            ("one", "Boss", Some("the admin")),
            ("Boss", "one", Some("the admin")),
            ("two", "one", Some("of one")),
            ("wrong", "two", Some("of two")),
            ("two", "wrong", Some("of two")),
            ("wrong", "bad", None),
        ] {
            let mut both = headers("authorization", &format!("Bearer {bearer}"));
            both.insert("x-api-key", HeaderValue::from_str(plain).unwrap());
            assert_eq!(name(keys.holder(&both)).as_deref(), holder);
        }
    }

    #[test]
    fn without_an_admin_key_nothing_is_the_admins() {
        let keys = keys(&["one"], None);
        assert!(!keys.has_admin());
        assert_eq!(keys.holder(&headers("x-api-key", "")), Holder::Nobody);
        assert_eq!(keys.holder(&headers("x-api-key", "admin")), Holder::Nobody);
    }

    #[test]
    fn debug_output_shows_no_key() {
        let shown = format!("{:?}", keys(&["secret"], Some("boss")));
        assert_eq!(shown, "Keys { count: 1, has_admin: true, .. }");
    }
}
