//! What a request's own terms come to for the one who sends it.

use crate::app::AppState;
use crate::caller::Caller;
use crate::tenant::Tenant;
use headrace_dialect::refusal::Refusal;
use headrace_dialect::terms::{CacheRetention, Terms};
use headrace_scheduler::{Retention, Time};
use std::time::Instant;

/// Retention of a prefix kept for `24h`: all of the default are evicted before it.
const DAY: Retention = Retention(80);

/// Who sends a request, and since when it is here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) arrival: Instant,
}

/// How the scheduler is to treat each of a request's sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Treatment {
    pub(super) priority: i32,
    pub(super) tenant: Tenant,
    pub(super) namespace: u64,
    pub(super) retention: Retention,
    pub(super) deadline: Option<Time>,
}

impl Treatment {
    pub(super) fn of(state: &AppState, terms: &Terms, sender: Sender<'_>) -> Result<Self, Refusal> {
        let caller = sender.caller;
        let namespace = match &terms.cache_salt {
            Some(salt) => state.namespaces().salted(caller, salt),
            None => caller.namespace(),
        };
        let deadline = terms
            .timeout
            .and_then(|timeout| sender.arrival.checked_add(timeout))
            .map(|instant| state.engine().time_of(instant));
        Ok(Self {
            priority: class(terms.priority, caller)?,
            tenant: caller.tenant(),
            namespace,
            retention: match terms.retention {
                CacheRetention::InMemory => Retention::default(),
                CacheRetention::Day => DAY,
            },
            deadline,
        })
    }
}

/// A request may step back behind others of its key, and not in front of what the operator gave the key.
fn class(asked: Option<i32>, caller: &Caller) -> Result<i32, Refusal> {
    let highest = caller.highest_priority();
    match asked {
        None => Ok(caller.priority()),
        Some(class) if class < highest => Err(Refusal::validation(
            "priority",
            format!("`priority` must be >= {highest} with this API key. Given: {class}"),
        )),
        Some(class) => Ok(class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Namespaces;
    use headrace_control::ApiKey;

    #[test]
    fn a_request_steps_back_and_never_in_front_of_its_key() {
        let key = ApiKey {
            name: "batch".to_owned(),
            key: "secret".to_owned(),
            priority: 5,
        };
        let batch = Caller::of_key(&key, 0, &Namespaces::new());
        assert_eq!(class(None, &batch), Ok(5));
        assert_eq!(class(Some(5), &batch), Ok(5));
        assert_eq!(class(Some(6), &batch), Ok(6));
        let refusal = class(Some(4), &batch).unwrap_err();
        assert_eq!(
            refusal.message(),
            "Input validation error: `priority` must be >= 5 with this API key. Given: 4"
        );
        let anyone = Caller::anyone();
        assert_eq!(class(None, &anyone), Ok(0));
        assert_eq!(class(Some(-100), &anyone), Ok(-100));
    }
}
