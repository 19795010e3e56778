//! The waiting sequences, in the order of service: class, then those that ran before, then the tenant that had
//! least, then arrival.
//!
//! Time moves a sequence up: one class for each ageing period that it waited, no higher than the highest class
//! that ageing leads to, and past the overdue age into [`OVERDUE`], which is above all classes and in order of
//! arrival. Every move costs O(log n), and each plan makes a bounded number.

mod accounts;
mod audit;
mod drain;
mod locality;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::planted::{self, Bug};
use crate::policy::{PolicyConfig, QueueOrder};
use crate::sequence::{Sequence, SequenceIndex};
use crate::types::Time;

pub(crate) use accounts::AccountIndex;
use accounts::Accounts;
use drain::DrainRate;
use locality::Locality;

/// The class of what waited past the overdue age.
pub(crate) const OVERDUE: i32 = i32::MIN;

/// Sequences moved up at one plan, at most: the others follow at the next ones.
const MOVES_PER_PLAN: usize = 256;

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue {
    policy: PolicyConfig,
    block_size: usize,
    accounts: Accounts,
    by_arrival: BTreeMap<u64, SequenceIndex>,
    /// Served before all lines of their class: what ran before, and what is overdue.
    first: BTreeMap<(i32, u64), SequenceIndex>,
    /// Their ids, by class.
    first_tokens: BTreeMap<i32, u64>,
    /// When which sequence moves up.
    rises: BTreeSet<(Time, SequenceIndex)>,
    /// Of those that never ran, the parked ones too.
    deadlines: BTreeSet<(Time, SequenceIndex)>,
    /// By arrival: they wait for their owner, not for a slot, and count nowhere else.
    parked: BTreeMap<u64, SequenceIndex>,
    locality: Locality,
    drain: DrainRate,
    tokens: u64,
}

impl Queue {
    pub(crate) fn new(policy: PolicyConfig, block_size: u32) -> Self {
        Self {
            policy,
            block_size: block_size as usize,
            accounts: Accounts::default(),
            by_arrival: BTreeMap::new(),
            first: BTreeMap::new(),
            first_tokens: BTreeMap::new(),
            rises: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            parked: BTreeMap::new(),
            locality: Locality::default(),
            drain: DrainRate::default(),
            tokens: 0,
        }
    }

    /// How many wait for a slot.
    pub(crate) fn len(&self) -> usize {
        self.by_arrival.len()
    }

    /// How many stand aside.
    pub(crate) fn parked_len(&self) -> usize {
        self.parked.len()
    }

    /// Ids of all that waits for a slot.
    pub(crate) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// Those that stand aside, in order of arrival.
    pub(crate) fn parked(&self) -> impl Iterator<Item = SequenceIndex> {
        self.parked.values().copied()
    }

    /// In order of arrival.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SequenceIndex> {
        self.by_arrival.values().copied()
    }

    /// A new sequence gets its tenant's account.
    pub(crate) fn open_account(&mut self, sequence: &mut Sequence) {
        sequence.account = self.accounts.open(sequence.rank.0, sequence.tenant);
    }

    /// A sequence is over.
    pub(crate) fn release_account(&mut self, account: AccountIndex) {
        self.accounts.release(account);
    }

    /// Charges sampled ids to a running sequence's tenant.
    pub(crate) fn charge_output(&mut self, account: AccountIndex, tokens: u64) {
        self.accounts
            .charge(account, tokens * u64::from(self.policy.output_weight));
    }

    pub(crate) fn push(&mut self, sequence: &mut Sequence, index: SequenceIndex) {
        let (class, arrival) = sequence.rank;
        let tokens = sequence.ids.len() as u64;
        self.tokens += tokens;
        let before = self.by_arrival.insert(arrival, index);
        assert!(before.is_none(), "two sequences of one arrival");
        if sequence.returned || class == OVERDUE {
            self.first.insert((class, arrival), index);
            *self.first_tokens.entry(class).or_default() += tokens;
        } else {
            self.accounts.push(sequence.account, arrival, index, tokens);
            if self.policy.order == QueueOrder::Lpm {
                self.locality.push(sequence, index, self.block_size);
            }
        }
        sequence.next_rise = self.next_rise(sequence);
        self.rises.extend(sequence.next_rise.map(|at| (at, index)));
        self.list_deadline(sequence, index);
    }

    /// Keeps a sequence that waits for its owner: only its deadline and its end find it.
    pub(crate) fn park(&mut self, sequence: &Sequence, index: SequenceIndex) {
        let before = self.parked.insert(sequence.rank.1, index);
        assert!(before.is_none(), "two sequences of one arrival");
        self.list_deadline(sequence, index);
    }

    fn list_deadline(&mut self, sequence: &Sequence, index: SequenceIndex) {
        if let Some(deadline) = sequence.deadline.filter(|_| !sequence.admitted) {
            self.deadlines.insert((deadline, index));
        }
    }

    pub(crate) fn remove(&mut self, sequence: &mut Sequence, index: SequenceIndex) {
        let (class, arrival) = sequence.rank;
        if let Some(deadline) = sequence.deadline {
            self.deadlines.remove(&(deadline, index));
        }
        if self.parked.remove(&arrival).is_some() {
            return;
        }
        let tokens = sequence.ids.len() as u64;
        self.tokens -= tokens;
        let removed = self.by_arrival.remove(&arrival);
        assert!(removed == Some(index), "a waiting sequence is in the queue");
        if self.first.remove(&(class, arrival)).is_some() {
            let left = self.first_tokens.get(&class).map_or(0, |all| all - tokens);
            if left == 0 {
                self.first_tokens.remove(&class);
            } else {
                self.first_tokens.insert(class, left);
            }
        } else {
            self.accounts
                .remove(sequence.account, arrival, index, tokens);
            if self.policy.order == QueueOrder::Lpm {
                self.locality.remove(sequence, index, self.block_size);
            }
        }
        if let Some(at) = sequence.next_rise.take() {
            self.rises.remove(&(at, index));
        }
    }

    /// A removed sequence enters a slot, with `uncached` prompt ids to compute.
    pub(crate) fn serve(&mut self, sequence: &mut Sequence, uncached: usize) {
        self.drain.add(sequence.ids.len() as u64);
        if self.policy.order == QueueOrder::Lpm {
            self.locality.serve(sequence, self.block_size);
        }
        if !sequence.admitted {
            sequence.admitted = true;
            self.accounts.serve(sequence.account);
            let tokens = uncached as u64 * u64::from(self.policy.input_weight);
            self.accounts.charge(sequence.account, tokens);
        }
    }

    /// Who is served next, and who after that: at most `limit`, into `candidates`. Behind the first one, tenants
    /// take turns.
    pub(crate) fn candidates(&mut self, limit: usize, candidates: &mut Vec<SequenceIndex>) {
        candidates.clear();
        let mut first = self.first.iter().peekable();
        for class in self.accounts.waiting_classes() {
            while let Some((_, &index)) = first.next_if(|((other, _), _)| *other <= class) {
                candidates.push(index);
                if candidates.len() >= limit {
                    return;
                }
            }
            self.accounts.candidates(class, limit, candidates);
            if candidates.len() >= limit {
                return;
            }
        }
        let room = limit - candidates.len();
        candidates.extend(first.map(|(_, &index)| index).take(room));
    }

    /// Waiting sequences of a class that begin as one did that entered lately: the oldest of each such
    /// beginning.
    pub(crate) fn alike(&self, class: i32, candidates: &mut Vec<SequenceIndex>) {
        candidates.clear();
        self.locality.alike(class, candidates);
    }

    /// Whose turn to move up it is, one at a time; the caller moves it.
    pub(crate) fn due_rises(&self, now: Time) -> Vec<SequenceIndex> {
        let due = self.rises.iter().take_while(|(at, _)| *at <= now);
        due.take(MOVES_PER_PLAN).map(|&(_, index)| index).collect()
    }

    /// Moves a sequence into the class that its wait gives it.
    pub(crate) fn rise(&mut self, sequence: &mut Sequence, index: SequenceIndex, now: Time) {
        self.remove(sequence, index);
        self.accounts.release(sequence.account);
        sequence.rank.0 = self.risen_class(sequence, now);
        self.open_account(sequence);
        self.push(sequence, index);
    }

    fn risen_class(&self, sequence: &Sequence, now: Time) -> i32 {
        let waited = now.0.saturating_sub(sequence.waits_since.0);
        if self.overdue_age().is_some_and(|age| waited >= age) {
            return OVERDUE;
        }
        let Some(period) = self.ageing_period() else {
            return sequence.rank.0;
        };
        let periods = waited.as_nanos() / period.as_nanos();
        let periods = i32::try_from(periods).unwrap_or(i32::MAX);
        let risen = sequence.priority.saturating_sub(periods);
        risen.max(self.policy.highest_class).min(sequence.rank.0)
    }

    fn next_rise(&self, sequence: &Sequence) -> Option<Time> {
        let class = sequence.rank.0;
        if class == OVERDUE {
            return None;
        }
        let since = sequence.waits_since.0;
        let overdue = self.overdue_age().map(|age| since + age);
        let ageing = self
            .ageing_period()
            .filter(|_| class > self.policy.highest_class)
            .map(|period| {
                let rises = sequence.priority.abs_diff(class);
                since + period.saturating_mul(rises.saturating_add(1))
            });
        overdue.into_iter().chain(ageing).min().map(Time)
    }

    fn ageing_period(&self) -> Option<Duration> {
        let period = self.policy.ageing_period.filter(|period| !period.is_zero());
        period.filter(|_| !planted::is(Bug::AgeingOff))
    }

    fn overdue_age(&self) -> Option<Duration> {
        let age = self.policy.overdue_age;
        age.filter(|_| !planted::is(Bug::OverdueIgnored))
    }

    /// A sequence that never ran and whose deadline has passed.
    pub(crate) fn expired(&self, now: Time) -> Option<SequenceIndex> {
        let &(deadline, index) = self.deadlines.first()?;
        (deadline <= now && !planted::is(Bug::DeadlineIgnored)).then_some(index)
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// A step is planned or a sequence comes: the estimate of the drain rate takes note.
    pub(crate) fn note_time(&mut self, now: Time) {
        self.drain.note_time(now, self.by_arrival.is_empty());
    }

    /// Ids that leave the queue in a second; 0 while nothing is known.
    pub(crate) fn drain_rate(&self) -> u64 {
        self.drain.tokens_per_second()
    }

    /// How long what is served before a new sequence takes to leave; `None` while nothing is known of late. What runs is
    /// not asked when it ends: it may at any token, and its limit would refuse sequences that were served in time.
    pub(crate) fn predicted_wait(
        &self,
        now: Time,
        class: i32,
        tenant: u64,
        tokens: u64,
    ) -> Option<Duration> {
        let first: u64 = self
            .first_tokens
            .range(..=class)
            .map(|(_, tokens)| tokens)
            .sum();
        let before = first + self.accounts.tokens_before(class, tenant, tokens);
        let milliseconds = (before * 1000).checked_div(self.drain.of_late(now)?)?;
        Some(Duration::from_millis(milliseconds))
    }
}
