//! What is global: all sequences, the queue, its bounds, and who is served next.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use crate::config::{SchedulerConfig, Stats};
use crate::sequence::{Phase, Rank, Sequence, SequenceIndex, SequenceTable};
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
    /// By class, then arrival. A preempted sequence keeps its arrival, so it stands before all that came
    /// after it.
    queue: BTreeMap<Rank, SequenceIndex>,
    waiting_tokens: u64,
    arrivals: u64,
}

impl Dispatcher {
    pub(crate) fn new(config: SchedulerConfig) -> Self {
        Self {
            config,
            sequences: SequenceTable::default(),
            by_id: FxHashMap::default(),
            counters: Stats::default(),
            events: Vec::new(),
            queue: BTreeMap::new(),
            waiting_tokens: 0,
            arrivals: 0,
        }
    }

    pub(crate) fn submit(
        &mut self,
        now: Time,
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
        let over_tokens = self.waiting_tokens + prompt > self.config.max_waiting_tokens;
        if waiting >= self.config.max_waiting_sequences || (waiting > 0 && over_tokens) {
            return Err(SubmitError::QueueFull { waiting });
        }
        self.arrivals += 1;
        let id = request.id;
        let index = self
            .sequences
            .insert(Sequence::new(request, self.arrivals, now));
        self.by_id.insert(id, index);
        self.enqueue(index);
        Ok(())
    }

    /// Puts a waiting sequence at its place in the queue.
    pub(crate) fn enqueue(&mut self, index: SequenceIndex) {
        let sequence = &self.sequences[index];
        assert!(
            sequence.phase == Phase::Waiting,
            "only waiting sequences queue"
        );
        self.waiting_tokens += sequence.ids.len() as u64;
        let before = self.queue.insert(sequence.rank, index);
        assert!(before.is_none(), "two sequences of one rank");
    }

    /// Takes a sequence out of the queue.
    pub(crate) fn dequeue(&mut self, index: SequenceIndex) {
        let sequence = &self.sequences[index];
        self.waiting_tokens -= sequence.ids.len() as u64;
        let removed = self.queue.remove(&sequence.rank);
        assert!(removed == Some(index), "a waiting sequence is in the queue");
    }

    /// Who is served next, and who after that: at most `limit`, into `candidates`.
    pub(crate) fn candidates(&self, limit: usize, candidates: &mut Vec<SequenceIndex>) {
        candidates.clear();
        candidates.extend(self.queue.values().take(limit));
    }

    /// Who is served next.
    fn head(&self) -> Option<SequenceIndex> {
        self.queue.first_key_value().map(|(_, &index)| index)
    }

    pub(crate) fn find(&self, id: SequenceId) -> Option<SequenceIndex> {
        self.by_id.get(&id).copied()
    }

    /// The sequence is over: its id is unknown from now on.
    pub(crate) fn forget_id(&mut self, index: SequenceIndex) {
        let removed = self.by_id.remove(&self.sequences[index].id);
        assert!(removed == Some(index), "a sequence ends once");
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
        let failed: Vec<SequenceIndex> = self.queue.values().copied().filter(too_long).collect();
        for index in failed {
            let id = self.sequences[index].id;
            self.discard(index);
            self.events.push(Event::Failed {
                id,
                failure: SequenceFailure::OutOfMemory,
            });
        }
    }

    /// Takes back what was not told yet of a sequence. `false`: there was nothing.
    pub(crate) fn hush(&mut self, id: SequenceId) -> bool {
        let before = self.events.len();
        self.events.retain(|event| event.sequence() != id);
        self.events.len() < before
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn waiting_tokens(&self) -> u64 {
        self.waiting_tokens
    }

    pub(crate) fn oldest_waiting(&self) -> Option<Time> {
        self.head().map(|index| self.sequences[index].submitted_at)
    }

    /// Queue, ids and table agree.
    pub(crate) fn audit(&self) {
        let mut tokens = 0;
        for (rank, &index) in &self.queue {
            let sequence = &self.sequences[index];
            assert!(sequence.phase == Phase::Waiting, "{:?} queues", sequence.id);
            assert!(
                sequence.rank == *rank,
                "{:?} stands at its rank",
                sequence.id
            );
            assert!(
                sequence.table.is_empty(),
                "{:?} waits with blocks",
                sequence.id
            );
            tokens += sequence.ids.len() as u64;
        }
        assert!(
            tokens == self.waiting_tokens,
            "{tokens} wait, counted {}",
            self.waiting_tokens
        );
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
            waiting == self.queue.len(),
            "a waiting sequence is not in the queue"
        );
    }
}
