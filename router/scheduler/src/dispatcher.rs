//! What is global: all sequences, the queue, its bounds, and who is served next.

use rustc_hash::FxHashMap;

use crate::config::{SchedulerConfig, Stats};
use crate::crash::Isolation;
use crate::planted::{self, Bug};
use crate::queue::Queue;
use crate::sequence::{Phase, Sequence, SequenceIndex, SequenceTable};
use crate::types::{Event, SequenceFailure, SequenceId, SequenceRequest, SubmitError, Time};

/// See the module.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    pub(crate) config: SchedulerConfig,
    pub(crate) sequences: SequenceTable,
    /// Sequences that are not over.
    by_id: FxHashMap<SequenceId, SequenceIndex>,
    /// The totals of [`Stats`]; its other fields stay 0 here.
    pub(crate) counters: Stats,
    /// Told with the next answer of any group.
    pub(crate) events: Vec<Event>,
    pub(crate) queue: Queue,
    pub(crate) isolation: Isolation,
    /// Of the call that is being served.
    pub(crate) now: Time,
    arrivals: u64,
}

impl Dispatcher {
    pub(crate) fn new(config: SchedulerConfig) -> Self {
        Self {
            queue: Queue::new(config.policy.clone(), config.block_size),
            isolation: Isolation::default(),
            now: Time::default(),
            config,
            sequences: SequenceTable::default(),
            by_id: FxHashMap::default(),
            counters: Stats::default(),
            events: Vec::new(),
            arrivals: 0,
        }
    }

    pub(crate) fn submit(
        &mut self,
        request: SequenceRequest,
        limit: u32,
    ) -> Result<(), SubmitError> {
        if request.prompt.is_empty() || request.stop.max_new_tokens == 0 {
            return Err(SubmitError::Empty);
        }
        if self.by_id.contains_key(&request.id) {
            return Err(SubmitError::Duplicate(request.id));
        }
        let prompt = request.prompt.len() as u64;
        let needed = prompt + u64::from(request.stop.max_new_tokens);
        if needed > u64::from(limit) {
            return Err(SubmitError::TooLong {
                needed,
                limit: u64::from(limit),
            });
        }
        let waiting = self.queue.len();
        let over_tokens = self.queue.tokens() + prompt > self.config.max_waiting_tokens;
        if waiting >= self.config.max_waiting_sequences || (waiting > 0 && over_tokens) {
            return Err(SubmitError::QueueFull { waiting });
        }
        if let Some(deadline) = request.deadline {
            let predicted = self
                .queue
                .predicted_wait(self.now, request.priority, request.tenant, prompt)
                .unwrap_or_default();
            if self.now.0.saturating_add(predicted) >= deadline.0 {
                return Err(SubmitError::DeadlineTooClose { predicted });
            }
        }
        self.queue.note_time(self.now);
        self.arrivals += 1;
        let id = request.id;
        let mut sequence = Sequence::new(request, self.arrivals, self.now);
        self.queue.open_account(&mut sequence);
        let index = self.sequences.insert(sequence);
        self.by_id.insert(id, index);
        self.enqueue(index);
        Ok(())
    }

    /// Puts a waiting sequence at its place in the queue, or aside. Time aside does not count as waiting.
    pub(crate) fn enqueue(&mut self, index: SequenceIndex) {
        let sequence = &mut self.sequences[index];
        assert!(
            sequence.phase == Phase::Waiting,
            "only waiting sequences queue"
        );
        sequence.waits_since = Time(self.now.0.saturating_sub(sequence.waited));
        if sequence.stands_aside() {
            self.queue.park(sequence, index);
        } else {
            self.queue.push(sequence, index);
        }
    }

    /// Takes a sequence out of the queue.
    pub(crate) fn dequeue(&mut self, index: SequenceIndex) {
        self.queue.remove(&mut self.sequences[index], index);
    }

    /// Puts a waiting sequence where it stands after a change: in the queue or aside.
    pub(crate) fn requeue(&mut self, index: SequenceIndex, change: impl FnOnce(&mut Sequence)) {
        self.dequeue(index);
        let sequence = &mut self.sequences[index];
        if !sequence.stands_aside() {
            sequence.waited = self.now.0.saturating_sub(sequence.waits_since.0);
            sequence.misfit_since = None;
            sequence.deferred_since = None;
        }
        change(sequence);
        self.enqueue(index);
    }

    /// Moves up what has waited long enough, and fails what has waited too long.
    pub(crate) fn pass_time(&mut self) {
        for index in self.queue.due_rises(self.now) {
            let sequence = &mut self.sequences[index];
            self.queue.rise(sequence, index, self.now);
        }
        while let Some(index) = self.queue.expired(self.now) {
            self.counters.deadlines_exceeded += 1;
            self.fail_waiting(index, SequenceFailure::DeadlineExceeded);
        }
    }

    pub(crate) fn fail_waiting(&mut self, index: SequenceIndex, failure: SequenceFailure) {
        let id = self.sequences[index].id;
        self.discard(index);
        self.events.push(Event::Failed { id, failure });
    }

    pub(crate) fn find(&self, id: SequenceId) -> Option<SequenceIndex> {
        self.by_id.get(&id).copied()
    }

    /// The sequence is over: its id is unknown from now on.
    pub(crate) fn forget_id(&mut self, index: SequenceIndex) {
        let removed = self.by_id.remove(&self.sequences[index].id);
        assert!(removed == Some(index), "a sequence ends once");
        self.isolation.forget(index);
        self.queue.release_account(self.sequences[index].account);
    }

    /// Ends a waiting sequence.
    pub(crate) fn discard(&mut self, index: SequenceIndex) {
        self.dequeue(index);
        self.forget_id(index);
        self.sequences.remove(index);
    }

    /// Fails what waits and is longer than `limit`.
    pub(crate) fn fail_longer_than(&mut self, limit: u32) {
        let too_long = |index: &SequenceIndex| {
            let sequence = &self.sequences[*index];
            let needed = sequence.prompt_length as u64 + u64::from(sequence.stop.max_new_tokens);
            needed > u64::from(limit)
        };
        let waiting = self.queue.iter().chain(self.queue.parked());
        let failed: Vec<SequenceIndex> = waiting.filter(too_long).collect();
        for index in failed {
            self.fail_waiting(index, SequenceFailure::OutOfMemory);
        }
    }

    /// Takes back what was not told yet of a sequence. `false`: there was nothing.
    pub(crate) fn hush(&mut self, id: SequenceId) -> bool {
        let before = self.events.len();
        if planted::is(Bug::ToldAfterCancel) {
            return self.events.iter().any(|event| event.sequence() == id);
        }
        self.events.retain(|event| event.sequence() != id);
        self.events.len() < before
    }

    /// Whether something has to be told that no step under way will carry.
    pub(crate) fn has_ends_to_tell(&self) -> bool {
        let is_start = |event: &Event| matches!(event, Event::Started { .. });
        !self.events.iter().all(is_start)
    }

    /// How many wait for a slot.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Counts those without a slot: what waits, what is paused.
    pub(crate) fn add_to_stats(&self, stats: &mut Stats) {
        stats.waiting += self.queue.len();
        stats.waiting_tokens += self.queue.tokens();
        for index in self.queue.parked() {
            let sequence = &self.sequences[index];
            if sequence.paused {
                stats.paused += 1;
            } else {
                stats.waiting += 1;
                stats.waiting_tokens += sequence.ids.len() as u64;
            }
        }
    }

    pub(crate) fn oldest_waiting(&self) -> Option<Time> {
        let oldest = self.queue.iter().next()?;
        Some(self.sequences[oldest].submitted_at)
    }

    /// Queue, ids and table agree.
    pub(crate) fn audit(&self) {
        self.queue.audit(&self.sequences);
        self.isolation.audit(&self.sequences);
        let mut alive = 0;
        let mut waiting = 0;
        for (index, sequence) in self.sequences.iter() {
            if sequence.phase != Phase::Ending {
                alive += 1;
                assert!(
                    self.find(sequence.id) == Some(index),
                    "{:?} is not found",
                    sequence.id
                );
            }
            waiting += usize::from(sequence.phase == Phase::Waiting);
        }
        assert!(alive == self.by_id.len(), "an id without a sequence");
        assert!(
            waiting == self.queue.len() + self.queue.parked_len(),
            "a waiting sequence is not in the queue"
        );
    }
}
