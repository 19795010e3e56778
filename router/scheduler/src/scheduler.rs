//! The scheduler's interface.

use std::collections::BTreeMap;

use crate::config::{ProtocolViolation, SchedulerConfig, Stats};
use crate::crash::CrashedRows;
use crate::dispatcher::Dispatcher;
use crate::group::Group;
use crate::sequence::{Phase, Sequence};
use crate::types::{
    Event, GroupId, SequenceId, SequenceRequest, StepPlan, StepResult, SubmitError, Time, TokenId,
};

/// Every so many steps the full check runs, in release builds too.
const AUDIT_PERIOD: u64 = 4096;

/// Decides which tokens of which sequences run next and which KV blocks hold them. See the crate.
#[derive(Debug)]
pub struct Scheduler {
    dispatcher: Dispatcher,
    groups: BTreeMap<GroupId, Group>,
    /// Of the smallest pool that was ever up; the configured limit before.
    max_total_tokens: u32,
}

impl Scheduler {
    /// A scheduler without groups: sequences may be submitted and wait.
    ///
    /// # Panics
    /// If a size or limit of `config` is 0.
    pub fn new(config: SchedulerConfig) -> Self {
        assert!(
            config.block_size > 0 && config.max_sequences > 0,
            "a block and a slot at least"
        );
        assert!(
            config.max_batch_tokens > 0 && config.max_steps_in_flight > 0,
            "a token and a step"
        );
        assert!(
            config.policy.skip_ahead_window > 0,
            "the queue's front at least"
        );
        let max_total_tokens = config.max_total_tokens;
        Self {
            dispatcher: Dispatcher::new(config),
            groups: BTreeMap::new(),
            max_total_tokens,
        }
    }

    /// A worker group is ready: an empty pool of `num_blocks` blocks and empty slots; step ids start at 1
    /// again. If the group was up, it goes down first.
    ///
    /// Waiting sequences longer than a smaller pool than before fail; the next answer carries that.
    pub fn group_up(&mut self, now: Time, group: GroupId, num_blocks: u32) {
        self.group_down(now, group);
        self.dispatcher.pass_time();
        let new = Group::new(group, &self.dispatcher.config, num_blocks);
        self.max_total_tokens = self.max_total_tokens.min(new.capacity());
        self.dispatcher.fail_longer_than(self.max_total_tokens);
        self.groups.insert(group, new);
        self.check(group);
    }

    /// A worker group is gone. Its sequences go back to the queue's front, in order; the answers of its
    /// steps will not come.
    pub fn group_down(&mut self, now: Time, group: GroupId) {
        self.dispatcher.now = now;
        if let Some(group) = self.groups.remove(&group) {
            group.disband(&mut self.dispatcher);
        }
    }

    /// As [`Scheduler::group_down`], when the workers died by themselves or hung: what their unanswered steps
    /// carried is suspected. After two crashes with the same sequence, steps carry a part of the suspects only,
    /// until the one that crashes the workers alone has failed or all are past the token where they crashed; what
    /// fails is told by [`Scheduler::expire`] or the next answer.
    pub fn group_crashed(&mut self, now: Time, group: GroupId) {
        self.dispatcher.now = now;
        let mut crashed = CrashedRows::default();
        if let Some(group) = self.groups.remove(&group) {
            crashed = group.note_crash(&mut self.dispatcher);
            group.disband(&mut self.dispatcher);
        }
        self.dispatcher.isolate_after_crash(group, &crashed);
    }

    /// Queues a sequence.
    pub fn submit(&mut self, now: Time, request: SequenceRequest) -> Result<(), SubmitError> {
        self.dispatcher.now = now;
        self.dispatcher.submit(request, self.max_total_tokens)
    }

    /// Ends a sequence in any state; no event follows for it. Its blocks are free or cached once the steps
    /// already sent have answered. `false`: it is over or was never known.
    pub fn cancel(&mut self, now: Time, id: SequenceId) -> bool {
        self.dispatcher.now = now;
        let Some(index) = self.dispatcher.find(id) else {
            return self.dispatcher.hush(id);
        };
        // Its start may be untold.
        self.dispatcher.hush(id);
        let sequence = &self.dispatcher.sequences[index];
        let id = sequence.group;
        let waiting = sequence.phase == Phase::Waiting;
        if let Some(group) = self.groups.get_mut(&id) {
            if waiting {
                group.end_retry(&mut self.dispatcher, index);
            } else {
                group.cancel(&mut self.dispatcher, index);
            }
        }
        if waiting {
            self.dispatcher.discard(index);
        }
        self.check(id);
        true
    }

    /// From the next step on, the sequence is in none until it is resumed. Its blocks are taken before those of
    /// others, and it holds nobody back. What steps already sent give is still told. Pausing twice is pausing once.
    /// `false`: it is over or was never known.
    pub fn pause(&mut self, now: Time, id: SequenceId) -> bool {
        self.set_paused(now, id, true)
    }

    /// The sequence goes on; one that ran before and lost its blocks comes first within its class, as after a
    /// preemption. `false`: it is over or was never known.
    pub fn resume(&mut self, now: Time, id: SequenceId) -> bool {
        self.set_paused(now, id, false)
    }

    fn set_paused(&mut self, now: Time, id: SequenceId, paused: bool) -> bool {
        self.dispatcher.now = now;
        let Some(index) = self.dispatcher.find(id) else {
            return false;
        };
        let sequence = &self.dispatcher.sequences[index];
        if sequence.paused == paused {
            return true;
        }
        if sequence.phase == Phase::Waiting {
            let change = |sequence: &mut Sequence| sequence.paused = paused;
            self.dispatcher.requeue(index, change);
        } else if let Some(group) = self.groups.get_mut(&sequence.group) {
            group.set_paused(&mut self.dispatcher, index, paused);
        }
        true
    }

    /// The next step of a group; `None` when there is nothing to do or too many steps are unanswered.
    pub fn plan(&mut self, now: Time, group: GroupId) -> Option<StepPlan> {
        self.dispatcher.now = now;
        self.dispatcher.pass_time();
        self.dispatcher.queue.note_time(now);
        let isolation = &mut self.dispatcher.isolation;
        if !self.groups.contains_key(&isolation.group) {
            isolation.group = group;
        }
        let plan = self.groups.get_mut(&group)?.plan(&mut self.dispatcher);
        self.check(group);
        if self.dispatcher.counters.steps.is_multiple_of(AUDIT_PERIOD) && plan.is_some() {
            self.audit();
        }
        plan
    }

    /// Takes in the answer to the oldest unanswered step.
    ///
    /// # Errors
    /// The answer does not fit the plan. Nothing was changed; the caller ends the group and calls
    /// [`Scheduler::group_down`].
    pub fn complete(
        &mut self,
        now: Time,
        result: StepResult,
    ) -> Result<Vec<Event>, ProtocolViolation> {
        self.dispatcher.now = now;
        let id = result.group;
        let group = self
            .groups
            .get_mut(&id)
            .ok_or(ProtocolViolation::UnknownGroup(id))?;
        let events = group.complete(&mut self.dispatcher, result)?;
        self.check(id);
        Ok(events)
    }

    /// Fails what waits and whose deadline has passed, and gives all that has still to be told, which the next answer
    /// would carry otherwise: for when no group is up, and behind a plan, for those that entered it.
    pub fn expire(&mut self, now: Time) -> Vec<Event> {
        self.dispatcher.now = now;
        self.dispatcher.pass_time();
        std::mem::take(&mut self.dispatcher.events)
    }

    /// When the next waiting sequence fails, unless it enters a step before.
    pub fn next_deadline(&self) -> Option<Time> {
        self.dispatcher.queue.next_deadline()
    }

    /// Frees every block that only the prefix cache holds, in all groups, and returns how many. Running sequences
    /// keep theirs, but no later lookup finds these, nor what those sequences will compute: they are free when their
    /// last user ends or is preempted.
    pub fn flush_cache(&mut self, now: Time) -> usize {
        self.dispatcher.now = now;
        let mut freed = 0;
        for group in self.groups.values_mut() {
            freed += group.flush_cache(&mut self.dispatcher);
            group.check_sums(&self.dispatcher);
        }
        freed
    }

    /// How things stand.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats {
            drained_tokens_per_second: self.dispatcher.queue.drain_rate(),
            oldest_waiting: self.dispatcher.oldest_waiting(),
            suspects: self.dispatcher.suspects(),
            ..self.dispatcher.counters.clone()
        };
        self.dispatcher.add_to_stats(&mut stats);
        for group in self.groups.values() {
            group.add_to_stats(&mut stats);
        }
        stats
    }

    /// The longest sequence that is taken: the configured limit, or what the smallest pool holds.
    pub fn max_total_tokens(&self) -> u32 {
        self.max_total_tokens
    }

    /// Whether nothing waits, runs, is paused or has still to be told.
    pub fn is_idle(&self) -> bool {
        self.dispatcher.waiting() == 0
            && self.dispatcher.queue.parked_len() == 0
            && self.dispatcher.events.is_empty()
            && self.groups.values().all(Group::is_idle)
    }

    /// Leading ids whose KV the group has cached, for a sequence of the namespace.
    pub fn cached_prefix(&self, group: GroupId, namespace: u64, ids: &[TokenId]) -> u32 {
        self.groups
            .get(&group)
            .map_or(0, |group| group.cached_prefix(namespace, ids))
    }

    /// Checks everything: each block in exactly one place, each hold with its holder, the tree, the queue,
    /// slots, lengths and budgets.
    ///
    /// # Panics
    /// If anything is inconsistent.
    pub fn audit(&self) {
        self.dispatcher.audit();
        for group in self.groups.values() {
            group.audit(&self.dispatcher);
        }
    }

    fn check(&self, group: GroupId) {
        if let Some(group) = self.groups.get(&group) {
            group.check_sums(&self.dispatcher);
        }
    }
}
