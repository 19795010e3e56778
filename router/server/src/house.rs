//! The permits for generation requests: `--max-concurrent-requests`, shared by the keys.

use crate::fair_share;
use crate::tenant::Tenant;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who is in.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Of those that hold any.
    by_tenant: FxHashMap<Tenant, usize>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct House {
    permits: usize,
    taken: Mutex<Taken>,
}

impl House {
    pub(crate) fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            permits,
            taken: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // Whole at every moment.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.lock().all
    }

    fn allows(&self, taken: &Taken, tenant: Tenant) -> bool {
        let held = taken.by_tenant.get(&tenant).copied().unwrap_or(0);
        fair_share::allows(tenant, held, 1, taken.all, self.permits)
    }

    /// Whether there is a permit for this tenant at this moment.
    pub(crate) fn has_room(&self, tenant: Tenant) -> bool {
        self.allows(&self.lock(), tenant)
    }

    /// A permit, if there is one for this tenant.
    pub(crate) fn enter(self: &Arc<Self>, tenant: Tenant) -> Option<Permit> {
        let mut taken = self.lock();
        if !self.allows(&taken, tenant) {
            return None;
        }
        taken.all += 1;
        *taken.by_tenant.entry(tenant).or_default() += 1;
        Some(Permit {
            house: Arc::clone(self),
            tenant,
        })
    }
}

/// One request's permit; given back by being dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    house: Arc<House>,
    tenant: Tenant,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.house.lock();
        taken.all -= 1;
        if let Some(held) = taken.by_tenant.get_mut(&self.tenant) {
            *held -= 1;
            if *held == 0 {
                taken.by_tenant.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_cannot_fill_the_house() {
        let house = House::new(8);
        let (alice, bob) = (Tenant::of("key", "alice"), Tenant::of("key", "bob"));
        let of_alice: Vec<Permit> = std::iter::from_fn(|| house.enter(alice)).collect();
        assert_eq!(of_alice.len(), 6);
        assert!(!house.has_room(alice) && house.has_room(bob));
        let of_bob = house.enter(bob);
        assert!(of_bob.is_some());
        assert_eq!(house.taken(), 7);
        drop((of_alice, of_bob));
        assert_eq!(house.taken(), 0);
        assert!(house.lock().by_tenant.is_empty());
    }

    #[test]
    fn without_keys_all_permits_are_anybodys() {
        let house = House::new(3);
        let all: Vec<Permit> = std::iter::from_fn(|| house.enter(Tenant::NOBODY)).collect();
        assert_eq!(all.len(), 3);
    }
}
