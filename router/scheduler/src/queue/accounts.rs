//! What each tenant had, in each class: virtual token counters (Sheng et al., "Fairness in Serving Large Language
//! Models", arXiv 2401.00588). The tenant that had least is served next.
//!
//! A tenant that comes back is lifted to those that wait, so idle time earns nothing. Two tenants that wait all
//! the time are apart by at most twice the larger of one prompt's weight and the weight of all output that the
//! running sequences can still have.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::planted::{self, Bug};
use crate::sequence::{SequenceIndex, narrow};

/// Index of a tenant's account in a class.
pub(crate) type AccountIndex = u32;

/// Accounts without sequences that are kept, a class, because they are ahead of the others.
const MOST_DORMANT: usize = 4096;

#[derive(Debug)]
pub(super) struct Account {
    class: i32,
    tenant: u64,
    /// What it had, weighted. Never falls.
    counter: u64,
    /// Where it stands in the class's order, while its line is not empty: the counter of some time ago.
    key: u64,
    /// Waiting, by arrival.
    pub(super) line: BTreeMap<u64, SequenceIndex>,
    /// Ids of the line.
    pub(super) tokens: u64,
    /// Sequences that are not over.
    pub(super) users: u32,
}

#[derive(Debug, Default)]
struct Class {
    /// Accounts with a line. Keys lag behind counters and are put right when they come to the front.
    order: BTreeSet<(u64, AccountIndex)>,
    tenants: FxHashMap<u64, AccountIndex>,
    /// Accounts without sequences.
    dormant: BTreeSet<(u64, AccountIndex)>,
    /// Ids of all lines.
    tokens: u64,
    /// What a tenant that comes back is lifted to.
    floor: u64,
    last_served: Option<AccountIndex>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    classes: BTreeMap<i32, Class>,
    pub(super) entries: Vec<Account>,
    vacant: Vec<AccountIndex>,
}

impl Accounts {
    /// The account of a tenant in a class, for one more sequence.
    pub(super) fn open(&mut self, class: i32, tenant: u64) -> AccountIndex {
        let entry = self.classes.entry(class).or_default();
        if let Some(&account) = entry.tenants.get(&tenant) {
            let known = &mut self.entries[account as usize];
            known.users += 1;
            entry.dormant.remove(&(known.counter, account));
            return account;
        }
        let new = Account {
            class,
            tenant,
            counter: 0,
            key: 0,
            line: BTreeMap::new(),
            tokens: 0,
            users: 1,
        };
        let account = if let Some(account) = self.vacant.pop() {
            self.entries[account as usize] = new;
            account
        } else {
            self.entries.push(new);
            narrow(self.entries.len() - 1)
        };
        entry.tenants.insert(tenant, account);
        account
    }

    /// One of its sequences is over or leaves the class.
    pub(super) fn release(&mut self, account: AccountIndex) {
        let entry = &mut self.entries[account as usize];
        entry.users -= 1;
        if entry.users == 0 {
            let class = entry.class;
            let counter = entry.counter;
            if let Some(entry) = self.classes.get_mut(&class) {
                entry.dormant.insert((counter, account));
            }
            self.close_dormant(class);
        }
    }

    /// Forgets accounts that coming back would lift anyway.
    fn close_dormant(&mut self, class: i32) {
        let Some(entry) = self.classes.get_mut(&class) else {
            return;
        };
        while let Some(&(counter, account)) = entry.dormant.first() {
            if counter > entry.floor && entry.dormant.len() <= MOST_DORMANT {
                break;
            }
            entry.dormant.remove(&(counter, account));
            entry.tenants.remove(&self.entries[account as usize].tenant);
            if entry.last_served == Some(account) {
                entry.last_served = None;
            }
            self.vacant.push(account);
        }
        if entry.tenants.is_empty() {
            self.classes.remove(&class);
        }
    }

    pub(super) fn charge(&mut self, account: AccountIndex, tokens: u64) {
        let counter = &mut self.entries[account as usize].counter;
        *counter = counter.saturating_add(tokens);
    }

    /// A sequence of `tokens` ids waits.
    pub(super) fn push(
        &mut self,
        account: AccountIndex,
        arrival: u64,
        index: SequenceIndex,
        tokens: u64,
    ) {
        let class = self.entries[account as usize].class;
        if self.entries[account as usize].line.is_empty() {
            let least = self.least(class);
            if let Some(entry) = self.classes.get_mut(&class) {
                let least = least.or(entry.last_served);
                let counter = least.map_or(0, |least| self.entries[least as usize].counter);
                entry.floor = entry.floor.max(counter);
                let returning = &mut self.entries[account as usize];
                if !planted::is(Bug::IdleTenantCredited) {
                    returning.counter = returning.counter.max(entry.floor);
                }
                returning.key = returning.counter;
                entry.order.insert((returning.key, account));
            }
        }
        let entry = &mut self.entries[account as usize];
        entry.line.insert(arrival, index);
        entry.tokens += tokens;
        if let Some(class) = self.classes.get_mut(&class) {
            class.tokens += tokens;
        }
    }

    /// As many ids as `push` was told.
    pub(super) fn remove(
        &mut self,
        account: AccountIndex,
        arrival: u64,
        index: SequenceIndex,
        tokens: u64,
    ) {
        let entry = &mut self.entries[account as usize];
        let removed = entry.line.remove(&arrival);
        assert!(removed == Some(index), "a waiting sequence is in its line");
        entry.tokens -= tokens;
        let is_empty = entry.line.is_empty();
        let (class, key) = (entry.class, entry.key);
        if let Some(class) = self.classes.get_mut(&class) {
            class.tokens -= tokens;
            if is_empty {
                class.order.remove(&(key, account));
            }
        }
    }

    /// Ids of the lines that are served before a new sequence of so many: those of higher classes, its tenant's own, and
    /// of each other tenant in its class no more than its own has then, since they take turns.
    pub(super) fn tokens_before(&self, class: i32, tenant: u64, tokens: u64) -> u64 {
        let higher: u64 = self
            .classes
            .range(..class)
            .map(|(_, entry)| entry.tokens)
            .sum();
        let Some(entry) = self.classes.get(&class) else {
            return higher;
        };
        let own_account = entry.tenants.get(&tenant).copied();
        let own = own_account.map_or(0, |account| self.entries[account as usize].tokens);
        let turns = own.saturating_add(tokens);
        let others: u64 = entry
            .order
            .iter()
            .filter(|(_, account)| Some(*account) != own_account)
            .map(|&(_, account)| self.entries[account as usize].tokens.min(turns))
            .sum();
        higher + own + others
    }

    /// A sequence of the account enters a slot for the first time.
    pub(super) fn serve(&mut self, account: AccountIndex) {
        let class = self.entries[account as usize].class;
        if let Some(entry) = self.classes.get_mut(&class) {
            entry.last_served = Some(account);
        }
        self.close_dormant(class);
    }

    /// Classes in which a line is not empty, highest first.
    pub(super) fn waiting_classes(&self) -> Vec<i32> {
        let waiting = |(&class, entry): (&i32, &Class)| (!entry.order.is_empty()).then_some(class);
        let mut classes: Vec<i32> = self.classes.iter().filter_map(waiting).collect();
        if planted::is(Bug::ClassesInverted) {
            classes.reverse();
        }
        classes
    }

    /// The account with a line that had least, with the order put right up to there.
    fn least(&mut self, class: i32) -> Option<AccountIndex> {
        let entry = self.classes.get_mut(&class)?;
        loop {
            let next = if planted::is(Bug::FairnessInverted) {
                entry.order.last()
            } else {
                entry.order.first()
            };
            let &(key, account) = next?;
            let front = &mut self.entries[account as usize];
            if front.counter == key {
                return Some(account);
            }
            entry.order.remove(&(key, account));
            front.key = front.counter;
            entry.order.insert((front.key, account));
        }
    }

    /// Appends from the lines of a class, one of each tenant by turns, up to `limit` in `candidates`.
    pub(super) fn candidates(
        &mut self,
        class: i32,
        limit: usize,
        candidates: &mut Vec<SequenceIndex>,
    ) {
        let Some(least) = self.least(class) else {
            return;
        };
        let room = limit.saturating_sub(candidates.len());
        if room <= 1 {
            let next = self.entries[least as usize].line.values().next();
            candidates.extend(next.copied().filter(|_| room == 1));
            return;
        }
        let Some(entry) = self.classes.get(&class) else {
            return;
        };
        let fronts = entry.order.iter().take(room);
        let mut lines: Vec<_> = fronts
            .map(|&(_, account)| self.entries[account as usize].line.values())
            .collect();
        while !lines.is_empty() {
            lines.retain_mut(|line| {
                let next = line.next().copied().filter(|_| candidates.len() < limit);
                candidates.extend(next);
                next.is_some()
            });
        }
    }

    /// Panics unless lines, orders and counts agree; `users` are the sequences of each account, and `tokens` the ids of its
    /// line.
    pub(super) fn audit(
        &self,
        users: &FxHashMap<AccountIndex, u32>,
        tokens: &FxHashMap<AccountIndex, u64>,
    ) {
        let mut known = 0;
        for (class, entry) in &self.classes {
            known += entry.tenants.len();
            let of_tenants = entry.tenants.values();
            let in_lines: u64 = of_tenants
                .map(|&account| self.entries[account as usize].tokens)
                .sum();
            assert!(entry.tokens == in_lines, "class {class} counts its ids");
            for (&tenant, &account) in &entry.tenants {
                let found = &self.entries[account as usize];
                assert!(
                    found.tenant == tenant && found.class == *class,
                    "account {account} is another's"
                );
                let ids = tokens.get(&account).copied().unwrap_or(0);
                assert!(found.tokens == ids, "account {account} counts its ids");
                let due = users.get(&account).copied().unwrap_or(0);
                assert!(found.users == due, "account {account} counts its sequences");
                let dormant = entry.dormant.contains(&(found.counter, account));
                assert!(dormant == (due == 0), "account {account} sleeps or not");
                let listed = entry.order.contains(&(found.key, account));
                assert!(
                    listed != found.line.is_empty(),
                    "account {account} has a line"
                );
                assert!(found.key <= found.counter || !listed, "a counter fell");
            }
            assert!(
                entry.order.len() <= entry.tenants.len(),
                "an order without accounts"
            );
        }
        assert!(
            known + self.vacant.len() == self.entries.len(),
            "an account is lost"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Accounts, MOST_DORMANT};

    /// A tenant that is ahead of the others is remembered, for coming back would forgive it; the rest are not.
    #[test]
    fn tenants_without_sequences_are_forgotten() {
        let mut accounts = Accounts::default();
        for tenant in 0..3 * MOST_DORMANT as u64 {
            let account = accounts.open(0, tenant);
            accounts.release(account);
        }
        assert_eq!(accounts.entries.len(), 1, "one that had nothing");
        assert!(accounts.classes.is_empty());
        for tenant in 0..3 * MOST_DORMANT as u64 {
            let account = accounts.open(0, tenant);
            accounts.charge(account, tenant + 1);
            accounts.release(account);
        }
        assert_eq!(accounts.classes[&0].tenants.len(), MOST_DORMANT);
        assert!(accounts.entries.len() <= MOST_DORMANT + 1);
        // Those that had most are remembered.
        let most = 3 * MOST_DORMANT as u64 - 1;
        let account = accounts.open(0, most);
        assert_eq!(accounts.entries[account as usize].counter, most + 1);
        let account = accounts.open(0, 0);
        assert_eq!(accounts.entries[account as usize].counter, 0);
    }

    /// Its place is another tenant's by then, whose counter says nothing about what idle ones are lifted to.
    #[test]
    fn a_forgotten_tenant_is_no_longer_the_one_served_last() {
        let mut accounts = Accounts::default();
        let first = accounts.open(0, 1);
        accounts.charge(first, 10);
        accounts.serve(first);
        let second = accounts.open(0, 2);
        accounts.push(second, 1, 0, 5);
        accounts.remove(second, 1, 0, 5);
        accounts.release(first);
        assert_eq!(accounts.classes[&0].last_served, None);
        let third = accounts.open(0, 3);
        assert_eq!(third, first, "the vacant place");
        accounts.charge(third, 1000);
        let fourth = accounts.open(0, 4);
        accounts.push(fourth, 2, 1, 5);
        assert_eq!(accounts.entries[fourth as usize].counter, 10);
    }

    #[test]
    fn the_tenant_served_last_counts_when_another_is_forgotten() {
        let mut accounts = Accounts::default();
        let first = accounts.open(0, 1);
        accounts.charge(first, 10);
        accounts.serve(first);
        let idle = accounts.open(0, 2);
        accounts.release(idle);
        assert_eq!(accounts.classes[&0].last_served, Some(first));
    }
}
