//! Who a request is charged to, and whose cached prefixes it may see.

use crate::tenant::{Tenant, first_bytes};
use headrace_control::ApiKey;
use headrace_dialect::terms::MOST_PRIORITY;
use sha2::{Digest, Sha256};

/// The holder of a key, or everybody where no key is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The key's name; `None`: no key is asked for.
    name: Option<String>,
    /// Whom the scheduler charges.
    tenant: Tenant,
    /// Class of requests that name none.
    priority: i32,
    /// The highest (smallest) class that a request may name.
    highest_priority: i32,
    /// Requests without a salt share cached prefixes within it.
    namespace: u64,
    /// Place in the list of keys, for the metrics; the admin's is behind them.
    index: Option<usize>,
    /// Holds the admin key.
    is_admin: bool,
}

impl Caller {
    /// Everybody: one tenant, one namespace, any class in bounds.
    pub(crate) fn anyone() -> Self {
        Self {
            name: None,
            tenant: Tenant::NOBODY,
            priority: 0,
            highest_priority: -MOST_PRIORITY,
            namespace: 0,
            index: None,
            is_admin: false,
        }
    }

    /// The holder of the key at `index` of the list. Its requests may name its class or lower (greater) ones: a key
    /// that wants to run before others is given that by the operator.
    pub(crate) fn of_key(key: &ApiKey, index: usize, namespaces: &Namespaces) -> Self {
        Self {
            name: Some(key.name.clone()),
            tenant: Tenant::of("key", &key.name),
            priority: key.priority,
            highest_priority: key.priority,
            namespace: namespaces.of(0, "key", &key.name),
            index: Some(index),
            is_admin: false,
        }
    }

    /// The holder of the admin key: any class in bounds.
    pub(crate) fn admin(index: usize, namespaces: &Namespaces) -> Self {
        Self {
            name: Some("admin".to_owned()),
            tenant: Tenant::of("admin", ""),
            priority: 0,
            highest_priority: -MOST_PRIORITY,
            namespace: namespaces.of(0, "admin", ""),
            index: Some(index),
            is_admin: true,
        }
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Holds the admin key.
    pub(crate) fn is_admin(&self) -> bool {
        self.is_admin
    }

    pub(crate) fn tenant(&self) -> Tenant {
        self.tenant
    }

    pub(crate) fn priority(&self) -> i32 {
        self.priority
    }

    pub(crate) fn highest_priority(&self) -> i32 {
        self.highest_priority
    }

    pub(crate) fn namespace(&self) -> u64 {
        self.namespace
    }

    /// `None`: there is nothing to count.
    pub(crate) fn index(&self) -> Option<usize> {
        self.index
    }
}

/// Derives namespaces from names and salts. With a secret of the process, so that nobody can look for a salt whose
/// namespace is another one's; the cache does not outlive the process either.
#[derive(Clone)]
pub(crate) struct Namespaces {
    secret: [u8; 32],
}

impl std::fmt::Debug for Namespaces {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Namespaces").finish_non_exhaustive()
    }
}

impl Namespaces {
    pub(crate) fn new() -> Self {
        Self {
            secret: rand::random(),
        }
    }

    /// The part of a caller's namespace that belongs to a salt.
    pub(crate) fn salted(&self, caller: &Caller, salt: &str) -> u64 {
        self.of(caller.namespace(), "salt", salt)
    }

    /// `kind` is without zero bytes and `within` of fixed length: no two triples are hashed from the same bytes.
    fn of(&self, within: u64, kind: &str, name: &str) -> u64 {
        let digest = Sha256::new()
            .chain_update(self.secret)
            .chain_update(within.to_le_bytes())
            .chain_update(kind)
            .chain_update([0])
            .chain_update(name);
        // 0 is everybody's.
        first_bytes(digest).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, priority: i32) -> ApiKey {
        ApiKey {
            name: name.to_owned(),
            key: format!("secret of {name}"),
            priority,
        }
    }

    #[test]
    fn a_tenant_is_its_name_wherever_the_key_stands() {
        let first = Caller::of_key(&key("a", 3), 0, &Namespaces::new());
        let second = Caller::of_key(&key("a", 3), 7, &Namespaces::new());
        let other = Caller::of_key(&key("b", 3), 0, &Namespaces::new());
        assert_eq!(first.tenant(), second.tenant());
        assert_ne!(first.tenant(), other.tenant());
        assert_ne!(first.tenant(), Caller::anyone().tenant());
        assert_eq!((first.priority(), first.highest_priority()), (3, 3));
    }

    #[test]
    fn namespaces_differ_by_key_salt_and_process() {
        let namespaces = Namespaces::new();
        let admin = key("admin", 0);
        let callers = [
            Caller::anyone(),
            Caller::of_key(&key("a", 0), 0, &namespaces),
            Caller::of_key(&key("b", 0), 1, &namespaces),
            Caller::of_key(&admin, 2, &namespaces),
            Caller::admin(3, &namespaces),
        ];
        let mut seen = std::collections::HashSet::new();
        for caller in &callers {
            assert!(seen.insert(caller.namespace()), "{caller:?}");
            for salt in ["a", "b", "admin"] {
                let salted = namespaces.salted(caller, salt);
                assert!(seen.insert(salted), "{caller:?} {salt}");
                assert_eq!(salted, namespaces.salted(caller, salt));
            }
        }
        let elsewhere = Namespaces::new();
        assert_ne!(
            namespaces.salted(&callers[0], "a"),
            elsewhere.salted(&callers[0], "a")
        );
        assert!(!format!("{namespaces:?}").contains(&format!("{:?}", namespaces.secret[0])));
    }
}
