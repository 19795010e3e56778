//! Unknown fields of requests, told to the operator: each once for a route, and no more of them than a bound, so that no
//! client can fill the log or the memory. Every answer names its own in `x-headrace-ignored`, told here or not.

use headrace_dialect::ignored::Ignored;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Mutex, PoisonError};

/// Names told for each route.
const MOST_NAMES: usize = 64;

/// What was told already.
#[derive(Debug, Default)]
pub(crate) struct UnknownFields {
    /// By the route's pattern: as many as there are routes.
    told: Mutex<FxHashMap<&'static str, FxHashSet<String>>>,
}

impl UnknownFields {
    /// Logs what is new.
    pub(crate) fn tell(&self, route: &'static str, ignored: &Ignored) {
        if ignored.is_empty() {
            return;
        }
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let names = told.entry(route).or_default();
        for (field, meant) in ignored.named() {
            if names.len() >= MOST_NAMES {
                return;
            }
            let field = without_places(field);
            if names.contains(&field) {
                continue;
            }
            if let Some(meant) = meant.map(without_places) {
                tracing::warn!(
                    route,
                    field,
                    meant,
                    "unknown field `{field}` of requests to {route} is ignored: is `{meant}` meant?"
                );
            } else {
                tracing::warn!(
                    route,
                    field,
                    "unknown field `{field}` of requests to {route} is ignored"
                );
            }
            names.insert(field);
            if names.len() == MOST_NAMES {
                tracing::warn!(
                    route,
                    "{MOST_NAMES} unknown fields of requests to {route} are logged; more are only named in the answers"
                );
            }
        }
    }
}

/// `messages[3].x` as `messages[].x`: one name for every place of a list.
fn without_places(field: &str) -> String {
    let mut rest = field;
    let mut name = String::with_capacity(field.len());
    while let Some((before, after)) = rest.split_once('[') {
        name.push_str(before);
        name.push('[');
        rest = match after.split_once(']') {
            Some((place, after)) if place.bytes().all(|byte| byte.is_ascii_digit()) => {
                name.push(']');
                after
            }
            _ => after,
        };
    }
    name.push_str(rest);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_lists_are_one_name() {
        for (field, name) in [
            ("messages[3].x", "messages[].x"),
            (
                "instances[0].messages[12].content[3].y",
                "instances[].messages[].content[].y",
            ),
            ("a[b].c", "a[b].c"),
            ("a[", "a["),
            ("plain", "plain"),
        ] {
            assert_eq!(without_places(field), name);
        }
    }

    #[test]
    fn what_is_kept_is_bounded_for_each_route() {
        let fields = UnknownFields::default();
        for round in 0..1000 {
            let mut ignored = Ignored::default();
            for key in 0..100 {
                ignored.push("", &format!("k{round}-{key}"), || None);
            }
            fields.tell("/generate", &ignored);
        }
        let mut other = Ignored::default();
        other.push("", "max_tokes", || None);
        fields.tell("/v1/completions", &other);
        let told = fields.told.lock().unwrap();
        assert_eq!(told["/generate"].len(), MOST_NAMES);
        assert_eq!(
            told["/v1/completions"].len(),
            1,
            "a full route hides no other"
        );
    }
}
