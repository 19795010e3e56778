//! Steps that failed whole: retried smaller, then one sequence at a time. And what was in them at a crash.

use super::{Group, StepRecord};
use crate::crash::CrashedRows;
use crate::dispatcher::Dispatcher;
use crate::planted::{self, Bug};
use crate::sequence::{Phase, SequenceIndex};
use crate::types::{Event, SequenceFailure};

/// Steps that must succeed before the prefill share grows again after the device ran out of memory.
const CALM_STEPS: u32 = 32;

impl Group {
    /// No length advanced. Out of memory halves the prefill share first; then, and after any other failure,
    /// the step's sequences are retries and run alone. One that fails alone ends.
    pub(super) fn step_failed(
        &mut self,
        dispatcher: &mut Dispatcher,
        record: &StepRecord,
        failure: SequenceFailure,
        events: &mut Vec<Event>,
    ) {
        self.failed_step = Some(record.step_id);
        let smallest = self.block_size;
        if failure == SequenceFailure::OutOfMemory && record.prefill_tokens.total() > smallest {
            self.prefill_limit = Some((record.prefill_tokens.total() / 2).max(smallest));
            self.calm_steps = 0;
            self.roll_back(dispatcher, record);
            return;
        }
        let mut failed = None;
        for row in &record.rows {
            let sequence = &mut dispatcher.sequences[row.index];
            if sequence.phase != Phase::Running {
                continue;
            }
            if !sequence.retried && !planted::is(Bug::FailedStepBlamesLast) {
                sequence.retried = true;
                self.retries.push_back(row.index);
            } else if record.rows.len() == 1 || planted::is(Bug::FailedStepBlamesLast) {
                failed = Some(row.index);
            }
        }
        if let Some(index) = failed {
            let sequence = &mut dispatcher.sequences[index];
            sequence.tainted = true;
            events.push(Event::Failed {
                id: sequence.id,
                failure,
            });
            self.cancel(dispatcher, index);
        }
        self.roll_back(dispatcher, record);
    }

    /// The workers died: notes what was in unanswered steps.
    pub(crate) fn note_crash(&self, dispatcher: &mut Dispatcher) -> CrashedRows {
        let rows = self.in_flight.iter().flat_map(|record| &record.rows);
        let mut all: Vec<SequenceIndex> = rows.map(|row| row.index).collect();
        all.sort_unstable();
        all.dedup();
        let mut crashed = CrashedRows {
            alone: match all[..] {
                [index] => Some(dispatcher.sequences[index].upper()),
                _ => None,
            },
            suspects: all,
        };
        // What is over can do no more harm, but it may have done this.
        let runs = |index: &SequenceIndex| dispatcher.sequences[*index].phase == Phase::Running;
        crashed.suspects.retain(runs);
        for &index in &crashed.suspects {
            dispatcher.suspect(index);
        }
        crashed
    }

    /// Who is retried next.
    pub(super) fn next_retry(&self, dispatcher: &Dispatcher) -> Option<SequenceIndex> {
        let runs = |index: &SequenceIndex| !dispatcher.sequences[*index].paused;
        self.retries.iter().copied().find(runs)
    }

    /// Takes back what the step was to compute. Its slots and tables are as planned; whether its copies were
    /// made is not known, so the sequences that wait for one start over.
    pub(super) fn roll_back(&mut self, dispatcher: &mut Dispatcher, record: &StepRecord) {
        for row in &record.rows {
            let sequence = &mut dispatcher.sequences[row.index];
            sequence.unanswered -= 1;
            if sequence.phase == Phase::Running {
                let failed = self.failed_step == Some(record.step_id);
                if !failed && planted::is(Bug::SkippedStepCounts) {
                    sequence.answered = row.start + row.num_tokens;
                }
                if !(failed && planted::is(Bug::FailedStepAdvances)) {
                    sequence.planned = sequence.answered;
                }
                sequence.pending_ids = 0;
            } else if sequence.unanswered == 0 {
                self.finish_ending(dispatcher, row.index);
            }
        }
        if self.in_flight.is_empty() {
            let copying = |&index: &SequenceIndex| dispatcher.sequences[index].copying;
            let again: Vec<SequenceIndex> = self.running.iter().copied().filter(copying).collect();
            for index in again {
                self.preempt(dispatcher, index);
            }
        }
    }

    /// After enough good steps the prefill share grows again.
    pub(super) fn note_success(&mut self, max_batch_tokens: usize) {
        if let Some(limit) = self.prefill_limit {
            self.calm_steps += 1;
            if self.calm_steps >= CALM_STEPS {
                self.calm_steps = 0;
                self.prefill_limit = Some(limit * 2).filter(|&limit| limit < max_batch_tokens);
            }
        }
    }
}
