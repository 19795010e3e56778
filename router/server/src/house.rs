//! What there is so much of, shared by the keys: the permits for generation requests (`--max-concurrent-requests`), and the
//! bytes of bodies that are being read.

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

    fn allows(&self, taken: &Taken, tenant: Tenant, asked: usize) -> bool {
        let held = taken.by_tenant.get(&tenant).copied().unwrap_or(0);
        fair_share::allows(tenant, held, asked, taken.all, self.permits)
    }

    /// Counts so many for a tenant, if there are so many for it.
    fn take(&self, tenant: Tenant, asked: usize) -> bool {
        let mut taken = self.lock();
        let is_allowed = self.allows(&taken, tenant, asked);
        if is_allowed {
            taken.all += asked;
            *taken.by_tenant.entry(tenant).or_default() += asked;
        }
        is_allowed
    }

    /// Whether there is a permit for this tenant at this moment.
    pub(crate) fn has_room(&self, tenant: Tenant) -> bool {
        self.allows(&self.lock(), tenant, 1)
    }

    /// A permit, if there is one for this tenant.
    pub(crate) fn enter(self: &Arc<Self>, tenant: Tenant) -> Option<Permit> {
        self.enter_with(tenant, 1)
    }

    /// So many permits in one, if there are so many for this tenant.
    pub(crate) fn enter_with(self: &Arc<Self>, tenant: Tenant, asked: usize) -> Option<Permit> {
        self.take(tenant, asked).then(|| Permit {
            house: Arc::clone(self),
            tenant,
            held: asked,
        })
    }
}

/// One request's permit; given back by being dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    house: Arc<House>,
    tenant: Tenant,
    held: usize,
}

impl Permit {
    /// Becomes one for so many more, if there are so many.
    pub(crate) fn grow(&mut self, more: usize) -> bool {
        let is_allowed = self.house.take(self.tenant, more);
        if is_allowed {
            self.held += more;
        }
        is_allowed
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.house.lock();
        taken.all -= self.held;
        if let Some(held) = taken.by_tenant.get_mut(&self.tenant) {
            *held -= self.held;
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
    fn a_permit_grows_as_far_as_there_is_something() {
        let house = House::new(10);
        let bob = Tenant::of("key", "bob");
        let mut permit = house.enter_with(bob, 4).unwrap();
        assert!(permit.grow(3));
        assert!(!permit.grow(1), "7 of 10, and a key has three quarters");
        assert_eq!(house.taken(), 7);
        drop(permit);
        assert_eq!(house.taken(), 0);
        assert!(house.enter_with(bob, 11).is_none());
    }

    #[test]
    fn without_keys_all_permits_are_anybodys() {
        let house = House::new(3);
        let all: Vec<Permit> = std::iter::from_fn(|| house.enter(Tenant::NOBODY)).collect();
        assert_eq!(all.len(), 3);
    }
}
