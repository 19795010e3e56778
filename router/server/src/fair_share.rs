//! How much of something scarce one key may hold, so that there is always some for another.
//!
//! A key may hold up to three times what it leaves free: alone three quarters of all, beside another key three sevenths,
//! and so on (dynamic thresholds: Choudhury and Hahne, 1998). What it holds first is always its own. Where no keys are
//! asked for there is one holder, and no share.

use crate::tenant::Tenant;

/// A key may hold so many times what is free.
const TIMES_FREE: usize = 3;

/// Whether `tenant`, which holds `held`, may take `asked` more of `bound`, of which all together have `taken`.
pub(crate) fn allows(
    tenant: Tenant,
    held: usize,
    asked: usize,
    taken: usize,
    bound: usize,
) -> bool {
    let Some(free) = bound.checked_sub(taken.saturating_add(asked)) else {
        return false;
    };
    tenant == Tenant::NOBODY
        || held == 0
        || held.saturating_add(asked) <= free.saturating_mul(TIMES_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of so many keys gets when all take one by one for as long as they may.
    fn shares(keys: usize, bound: usize) -> Vec<usize> {
        let somebody = Tenant::of("key", "any");
        let mut held = vec![0; keys];
        loop {
            let before = held.clone();
            for key in 0..keys {
                let taken = held.iter().sum();
                if allows(somebody, held[key], 1, taken, bound) {
                    held[key] += 1;
                }
            }
            if held == before {
                return held;
            }
        }
    }

    #[test]
    fn a_key_leaves_some_for_another_however_many_there_are() {
        assert_eq!(shares(1, 128), [96]);
        assert_eq!(shares(2, 128), [55, 54]);
        for bound in 2..200 {
            for keys in 1..bound {
                let held = shares(keys, bound);
                let taken: usize = held.iter().sum();
                assert!(held.iter().all(|held| *held > 0), "{keys} of {bound}");
                assert!(
                    allows(Tenant::of("key", "new"), 0, 1, taken, bound),
                    "{keys} of {bound}"
                );
            }
        }
        assert_eq!(shares(1, 1), [1]);
    }

    #[test]
    fn without_keys_all_is_one_share() {
        assert!(allows(Tenant::NOBODY, 127, 1, 127, 128));
        assert!(!allows(Tenant::NOBODY, 128, 1, 128, 128));
        assert!(!allows(Tenant::of("key", "any"), 0, usize::MAX, 1, 128));
    }
}
