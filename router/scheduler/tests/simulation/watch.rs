//! Who waits and who runs, from the plans alone, and what the queue's rules forbid.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use headrace_scheduler::{
    NewSequence, QueueOrder, Row, SchedulerConfig, SequenceId, SequenceRequest, Slot, StepPace,
    StepPlan, Time, TokenId,
};

struct Waiting {
    request: SequenceRequest,
    first_passed: Option<Time>,
    returned: bool,
    /// Submitted, if it had never run.
    waits_since: Time,
    admitted: bool,
    paused_since: Option<Time>,
    /// The class that it last entered in; its own before.
    class: i32,
}

struct Running {
    waiting: Waiting,
    ids: Vec<TokenId>,
    /// Leading ids whose KV is complete.
    answered: usize,
    /// A row of it has succeeded.
    established: bool,
    over: bool,
    /// The cache was flushed since it entered: nobody else will find what it computes.
    flushed: bool,
    waited: Duration,
}

/// See the module.
pub(crate) struct Watch {
    config: SchedulerConfig,
    /// With faults, sequences also run alone and out of turn.
    faulty: bool,
    waiting: BTreeMap<SequenceId, Waiting>,
    running: BTreeMap<Slot, Running>,
    paused: BTreeSet<SequenceId>,
    ever_paused: BTreeSet<SequenceId>,
}

impl Watch {
    pub(crate) fn new(config: SchedulerConfig, faulty: bool) -> Self {
        Self {
            config,
            faulty,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            paused: BTreeSet::new(),
            ever_paused: BTreeSet::new(),
        }
    }

    pub(crate) fn submitted(&mut self, now: Time, request: SequenceRequest) {
        let waiting = Waiting {
            first_passed: None,
            returned: false,
            waits_since: now,
            admitted: false,
            paused_since: None,
            class: request.priority,
            request,
        };
        self.waiting.insert(waiting.request.id, waiting);
    }

    pub(crate) fn paused(&mut self, now: Time, id: SequenceId) {
        self.ever_paused.insert(id);
        if self.paused.insert(id)
            && let Some(waiting) = self.waiting.get_mut(&id)
        {
            waiting.paused_since = Some(now);
        }
    }

    /// The time aside does not count, and being passed begins anew.
    pub(crate) fn resumed(&mut self, now: Time, id: SequenceId) {
        self.paused.remove(&id);
        if let Some(waiting) = self.waiting.get_mut(&id)
            && let Some(since) = waiting.paused_since.take()
        {
            waiting.waits_since.0 += now.0.saturating_sub(since.0);
            waiting.first_passed = None;
        }
    }

    /// Cancelled, finished or failed.
    pub(crate) fn over(&mut self, id: SequenceId) {
        self.waiting.remove(&id);
        for running in self.running.values_mut() {
            running.over |= running.waiting.request.id == id;
        }
    }

    /// What never ran and has passed its deadline is out of the queue, before it is told.
    pub(crate) fn drop_late(&mut self, now: Time) {
        self.waiting.retain(|_, waiting| {
            let deadline = waiting.request.deadline.filter(|_| !waiting.admitted);
            deadline.is_none_or(|deadline| deadline > now)
        });
    }

    pub(crate) fn flushed(&mut self) {
        for running in self.running.values_mut() {
            running.flushed = true;
        }
    }

    pub(crate) fn group_down(&mut self, now: Time) {
        for (_, running) in std::mem::take(&mut self.running) {
            self.wait_again(now, running);
        }
    }

    fn wait_again(&mut self, now: Time, running: Running) {
        if !running.over {
            let mut waiting = running.waiting;
            waiting.returned = true;
            waiting.first_passed = None;
            waiting.waits_since = Time(now.0.saturating_sub(running.waited));
            waiting.paused_since = self.paused.contains(&waiting.request.id).then_some(now);
            self.waiting.insert(waiting.request.id, waiting);
        }
    }

    pub(crate) fn planned(&mut self, now: Time, plan: &StepPlan) {
        let policy = &self.config.policy;
        let classes_stay = policy.ageing_period.is_none() && policy.overdue_age.is_none();
        if !self.faulty || classes_stay {
            self.check_preempted(&plan.finished_slots);
        }
        for slot in &plan.finished_slots {
            let running = self.running.remove(slot).unwrap();
            self.wait_again(now, running);
        }
        for new in &plan.new_sequences {
            let id = SequenceId(u64::from(new.sampling.suppressed_token_ids[0]));
            let mut waiting = self.waiting.remove(&id).expect("who enters has waited");
            assert!(!self.paused.contains(&id), "{id:?} is paused and enters");
            if !self.faulty {
                self.check_passing(now, &waiting);
                self.check_overdue(now, &waiting);
                self.check_order(now, &waiting);
                self.check_sharing(&waiting, new);
            }
            waiting.class = self.class(now, &waiting);
            waiting.admitted = true;
            let running = Running {
                waited: now.0.saturating_sub(waiting.waits_since.0),
                waiting,
                ids: new.token_ids.clone(),
                answered: new.computed_length as usize,
                established: false,
                over: false,
                flushed: false,
            };
            self.running.insert(new.slot, running);
        }
        for row in &plan.rows {
            let id = self.running[&row.slot].waiting.request.id;
            assert!(!self.paused.contains(&id), "{id:?} is paused and has a row");
        }
    }

    /// The row's KV is complete.
    pub(crate) fn answered(&mut self, row: &Row) {
        if let Some(running) = self.running.get_mut(&row.slot) {
            running.answered += row.num_tokens as usize;
            running.established = true;
        }
    }

    /// Once passed, a sequence is passed for the stated time and no longer; one that ran before never is.
    fn check_passing(&mut self, now: Time, entering: &Waiting) {
        let policy = &self.config.policy;
        let one_order = policy.ageing_period.is_none() && policy.overdue_age.is_none();
        if !policy.share_prefixes.is_zero() || !one_order {
            return;
        }
        let tenant = entering.request.tenant;
        let rank = (entering.request.priority, entering.request.id);
        let passable = |waiting: &&mut Waiting| waiting.paused_since.is_none();
        for waiting in self.waiting.values_mut().filter(passable) {
            let id = waiting.request.id;
            let before = (waiting.request.priority, id) < rank;
            let class = waiting.request.priority == entering.request.priority;
            let first = waiting.returned && (class || before);
            assert!(
                !first || entering.returned,
                "{id:?} ran before and is passed"
            );
            let in_line = policy.order == QueueOrder::Fcfs && waiting.request.tenant == tenant;
            if before && in_line && !entering.returned {
                let since = waiting.first_passed.get_or_insert(now).0;
                assert!(
                    now.0.saturating_sub(since) < policy.skip_ahead,
                    "{id:?} is passed for too long"
                );
            }
        }
    }

    /// The class that its wait has given it.
    fn class(&self, now: Time, waiting: &Waiting) -> i32 {
        let policy = &self.config.policy;
        let waited = now.0.saturating_sub(waiting.waits_since.0);
        if policy.overdue_age.is_some_and(|age| waited >= age) {
            return i32::MIN;
        }
        let Some(period) = policy.ageing_period else {
            return waiting.class;
        };
        let periods = i32::try_from(waited.as_nanos() / period.as_nanos()).unwrap();
        let risen = (waiting.request.priority - periods).max(policy.highest_class);
        risen.min(waiting.class)
    }

    /// Where nobody is passed: by class, then what ran before, then (within a tenant) arrival.
    fn check_order(&self, now: Time, entering: &Waiting) {
        let policy = &self.config.policy;
        let strict = policy.order == QueueOrder::Fcfs
            && policy.skip_ahead.is_zero()
            && policy.share_prefixes.is_zero();
        // When a preempted one left its slot is told with the next step, which may be late: its wait is not known.
        let classes_stay = policy.ageing_period.is_none() && policy.overdue_age.is_none();
        if !strict || (entering.returned && !classes_stay) {
            return;
        }
        let standing = |waiting: &Waiting| {
            let class = self.class(now, waiting);
            // What is overdue stands by arrival alone.
            (class, class != i32::MIN && !waiting.returned)
        };
        let first = standing(entering);
        let passable = |waiting: &&Waiting| waiting.paused_since.is_none();
        for waiting in self.waiting.values().filter(passable) {
            let id = waiting.request.id;
            let second = standing(waiting);
            assert!(
                first <= second,
                "{id:?} is before {:?}",
                entering.request.id
            );
            let in_line = !first.1 || waiting.request.tenant == entering.request.tenant;
            assert!(
                first < second || !in_line || entering.request.id < id,
                "{id:?} came before {:?}",
                entering.request.id
            );
        }
    }

    /// The oldest of the highest class stays, unless all give their blocks up or its first step failed.
    fn check_preempted(&self, slots: &[Slot]) {
        let rank = |running: &Running| (running.waiting.class, running.waiting.request.id);
        let alive = self.running.iter().filter(|(_, running)| !running.over);
        let stays = |slot: &Slot| !slots.contains(slot);
        // What is paused goes before, and may be resumed before its slot is told.
        let paused = |running: &Running| self.ever_paused.contains(&running.waiting.request.id);
        let oldest = alive.clone().min_by_key(|(_, running)| rank(running));
        if let Some((slot, running)) = oldest.filter(|(_, running)| !paused(running)) {
            let id = running.waiting.request.id;
            let all = !alive
                .clone()
                .any(|(slot, other)| stays(slot) && !paused(other));
            let gone = running.established && !all && !stays(slot);
            assert!(!gone, "{id:?} is the oldest and preempted");
        }
    }

    /// Not all that wait wait for nothing: one at least for a slot, tokens, blocks, or what another in a slot computes.
    pub(crate) fn check_waiting(&self, plan: &StepPlan, available_blocks: usize) {
        let tokens: usize = plan.rows.iter().map(|row| row.num_tokens as usize).sum();
        let room = tokens < self.config.max_batch_tokens as usize
            && self.running.len() < self.config.max_sequences as usize
            && self.config.policy.pace == StepPace::Unbounded;
        let mut passable = self
            .waiting
            .values()
            .filter(|waiting| waiting.paused_since.is_none());
        let preempted = self.waiting.values().any(|waiting| waiting.returned);
        if self.faulty || !room || preempted || passable.clone().next().is_none() {
            return;
        }
        let block_size = self.config.block_size as usize;
        let waits_for_nothing = |waiting: &Waiting| {
            let prompt = &waiting.request.prompt;
            let computes = |running: &Running| {
                !running.over
                    && !running.flushed
                    && !self.paused.contains(&running.waiting.request.id)
                    && running.waiting.request.namespace == waiting.request.namespace
                    && running.ids.len() >= block_size
                    && prompt.len() > block_size
                    && running.ids[..block_size] == prompt[..block_size]
            };
            prompt.len().div_ceil(block_size) + self.running.len() < available_blocks
                && !self.running.values().any(computes)
        };
        assert!(
            !passable.all(waits_for_nothing),
            "{:?} wait for nothing",
            self.waiting.keys()
        );
    }

    /// Nothing is admitted before what waited past the overdue age and came first.
    fn check_overdue(&self, now: Time, entering: &Waiting) {
        let Some(age) = self.config.policy.overdue_age else {
            return;
        };
        let passable = |waiting: &&Waiting| waiting.paused_since.is_none();
        for waiting in self.waiting.values().filter(passable) {
            let id = waiting.request.id;
            let overdue = now.0.saturating_sub(waiting.waits_since.0) >= age;
            assert!(
                !overdue || entering.request.id < id,
                "{id:?} is overdue and passed by {:?}",
                entering.request.id
            );
        }
    }

    /// Nobody computes the block that another in a slot computes next.
    fn check_sharing(&self, entering: &Waiting, new: &NewSequence) {
        let policy = &self.config.policy;
        let strict = self.config.prefix_caching && policy.share_prefixes.as_secs() > 100;
        let overdue = policy.overdue_age.is_some();
        if !strict || overdue || entering.request.prompt_logprobs {
            return;
        }
        let block_size = self.config.block_size as usize;
        let cached = new.computed_length as usize / block_size;
        let end = (cached + 1) * block_size;
        for running in self.running.values() {
            let same = !running.over
                && !running.flushed
                && !self.paused.contains(&running.waiting.request.id)
                && running.waiting.request.namespace == entering.request.namespace
                && running.answered / block_size == cached
                && running.ids.len() >= end
                && new.token_ids.len() > end
                && running.ids[..end] == new.token_ids[..end];
            assert!(
                !same,
                "{:?} computes what {:?} computes",
                entering.request.id, running.waiting.request.id
            );
        }
    }
}
