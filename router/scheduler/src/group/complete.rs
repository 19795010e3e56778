//! Taking in the answer to a step.

use super::{Group, RowRecord, StepRecord};
use crate::config::ProtocolViolation;
use crate::dispatcher::Dispatcher;
use crate::planted::{self, Bug};
use crate::sequence::{Phase, SequenceIndex};
use crate::types::{
    Event, RowOutcome, RowResult, SampledToken, SequenceFailure, StepOutcome, StepResult,
};

impl Group {
    /// Checks the whole answer first, so that a bad one changes nothing.
    pub(crate) fn complete(
        &mut self,
        dispatcher: &mut Dispatcher,
        result: StepResult,
    ) -> Result<Vec<Event>, ProtocolViolation> {
        let due = self.in_flight.front();
        let Some(record) = due.filter(|record| {
            record.step_id == result.step_id || planted::is(Bug::StaleAnswerTaken)
        }) else {
            let due = due.map(|record| record.step_id);
            return Err(ProtocolViolation::UnexpectedStep {
                due,
                got: result.step_id,
            });
        };
        let outcome = match &result.outcome {
            StepOutcome::Ok(_) => "ok",
            StepOutcome::Failed(_) => "failed",
            StepOutcome::OutOfMemory(_) => "out of memory",
            StepOutcome::Skipped => "skipped",
        };
        // Behind a failed step comes nothing but skipped ones.
        let skipped = matches!(result.outcome, StepOutcome::Skipped);
        if skipped != self.failed_step.is_some() {
            return Err(ProtocolViolation::UnexpectedOutcome {
                step_id: record.step_id,
                outcome,
            });
        }
        if let StepOutcome::Ok(rows) = &result.outcome {
            check_rows(dispatcher, record, rows)?;
        }
        let mut events = std::mem::take(&mut dispatcher.events);
        let Some(mut record) = self.in_flight.pop_front() else {
            return Ok(events);
        };
        let succeeded = matches!(result.outcome, StepOutcome::Ok(_));
        self.pace.note(dispatcher.now, &record, succeeded);
        if !succeeded && planted::is(Bug::FailedStepLeaksHold) {
            record.holds.clear();
        }
        for node in record.holds.drain(..) {
            self.kv.tree.release(&mut self.kv.pool, node);
        }
        match result.outcome {
            StepOutcome::Ok(rows) => self.take_rows(dispatcher, &record, rows, &mut events),
            StepOutcome::Failed(reason) => {
                self.step_failed(
                    dispatcher,
                    &record,
                    SequenceFailure::Step(reason),
                    &mut events,
                );
            }
            StepOutcome::OutOfMemory(_) => {
                self.step_failed(
                    dispatcher,
                    &record,
                    SequenceFailure::OutOfMemory,
                    &mut events,
                );
            }
            StepOutcome::Skipped => self.roll_back(dispatcher, &record),
        }
        self.spare_rows.push(record.rows);
        Ok(events)
    }

    fn take_rows(
        &mut self,
        dispatcher: &mut Dispatcher,
        record: &StepRecord,
        results: Vec<RowResult>,
        events: &mut Vec<Event>,
    ) {
        events.reserve(results.len());
        let mut over = false;
        for (row, result) in record.rows.iter().zip(results) {
            let sequence = &mut dispatcher.sequences[row.index];
            sequence.unanswered -= 1;
            if sequence.phase == Phase::Ending {
                // It was over when this step was sent already; what it computed too much is dropped.
                if let RowOutcome::Tokens(tokens) = result.outcome
                    && planted::is(Bug::TokenAfterEnd)
                {
                    let id = sequence.id;
                    events.extend(tokens.into_iter().map(|token| Event::Token { id, token }));
                }
                if sequence.unanswered == 0 {
                    self.finish_ending(dispatcher, row.index);
                }
                continue;
            }
            let is_over = self.take_row(dispatcher, row, result, events);
            if is_over {
                over = true;
                self.end(dispatcher, row.index);
            }
        }
        if over {
            // Their indices are not reused before this.
            let lives = |&index: &SequenceIndex| {
                let sequence = dispatcher.sequences.get(index);
                sequence.is_some_and(|sequence| sequence.phase == Phase::Running)
            };
            self.running.retain(lives);
        }
        self.note_success(dispatcher.config.max_batch_tokens as usize);
    }

    /// Takes one row in. `true`: the sequence is over.
    fn take_row(
        &mut self,
        dispatcher: &mut Dispatcher,
        row: &RowRecord,
        result: RowResult,
        events: &mut Vec<Event>,
    ) -> bool {
        let sequence = &mut dispatcher.sequences[row.index];
        let id = sequence.id;
        let failure = match result.outcome {
            RowOutcome::Tokens(tokens) => {
                self.advance(dispatcher, row);
                report_prompt_logprobs(dispatcher, row, result.prompt_logprobs, events);
                return accept_tokens(dispatcher, row.index, tokens, events);
            }
            RowOutcome::NonFinite => SequenceFailure::NonFinite,
            RowOutcome::Failed(reason) => SequenceFailure::Row(reason),
        };
        sequence.tainted = true;
        events.push(Event::Failed { id, failure });
        if planted::is(Bug::PublishFailedRow) {
            sequence.tainted = false;
            self.advance(dispatcher, row);
        }
        true
    }

    /// The row's KV is complete: raises the lower bound and publishes the blocks that are full.
    fn advance(&mut self, dispatcher: &mut Dispatcher, row: &RowRecord) {
        let sequence = &mut dispatcher.sequences[row.index];
        sequence.answered = row.start + row.num_tokens;
        sequence.high_water = sequence.high_water.max(sequence.answered);
        sequence.copying = false;
        let mut complete = sequence.answered;
        if planted::is(Bug::PublishBeforeAnswer) {
            complete = sequence.planned.min(sequence.ids.len());
        }
        let full = complete / self.block_size;
        if self.prefix_caching && full > sequence.published {
            let ids = &sequence.ids[sequence.published * self.block_size..full * self.block_size];
            let blocks = &sequence.table[sequence.published..full];
            sequence.node = self.kv.tree.extend(
                &mut self.kv.pool,
                sequence.node,
                ids,
                blocks,
                sequence.retention,
            );
            sequence.published = full;
            self.list_computing(dispatcher, row.index);
        }
        self.end_retry(dispatcher, row.index);
    }
}

/// Every result is what its row asked for.
fn check_rows(
    dispatcher: &Dispatcher,
    record: &StepRecord,
    results: &[RowResult],
) -> Result<(), ProtocolViolation> {
    let step_id = record.step_id;
    if results.len() != record.rows.len() {
        let (due, got) = (record.rows.len(), results.len());
        return Err(ProtocolViolation::RowCount { step_id, due, got });
    }
    for (row, result) in record.rows.iter().zip(results) {
        if row.slot != result.slot {
            let (due, got) = (row.slot, result.slot);
            return Err(ProtocolViolation::RowSlot { step_id, due, got });
        }
        let RowOutcome::Tokens(tokens) = &result.outcome else {
            continue;
        };
        let (due, got) = (usize::from(row.sample), tokens.len());
        // A row whose sequence is over may have been called off; what else it says is dropped.
        let over = dispatcher.sequences[row.index].phase == Phase::Ending;
        if got == 0 && row.masked && over {
            continue;
        }
        if due != got {
            return Err(ProtocolViolation::TokenCount {
                step_id,
                slot: row.slot,
                due,
                got,
            });
        }
        let (due, got) = (row.logprobs, result.prompt_logprobs.len());
        if due != got {
            return Err(ProtocolViolation::PromptLogprobCount {
                step_id,
                slot: row.slot,
                due,
                got,
            });
        }
    }
    Ok(())
}

/// Tells the prompt logprobs that were not told before a preemption.
fn report_prompt_logprobs(
    dispatcher: &mut Dispatcher,
    row: &RowRecord,
    mut tokens: Vec<SampledToken>,
    events: &mut Vec<Event>,
) {
    if tokens.is_empty() {
        return;
    }
    let sequence = &mut dispatcher.sequences[row.index];
    let mut known = sequence
        .reported_logprobs
        .saturating_sub(row.start)
        .min(tokens.len());
    if planted::is(Bug::LogprobsToldTwice) {
        known = 0;
    }
    tokens.drain(..known);
    sequence.reported_logprobs += tokens.len();
    if !tokens.is_empty() {
        events.push(Event::PromptLogprobs {
            id: sequence.id,
            tokens,
        });
    }
}

/// Appends what was sampled. `true`: the sequence is over.
fn accept_tokens(
    dispatcher: &mut Dispatcher,
    index: SequenceIndex,
    tokens: Vec<SampledToken>,
    events: &mut Vec<Event>,
) -> bool {
    let sequence = &mut dispatcher.sequences[index];
    let id = sequence.id;
    for token in tokens {
        sequence.pending_ids -= 1;
        sequence.ids.push(token.id);
        dispatcher.queue.charge_output(sequence.account, 1);
        events.push(Event::Token { id, token });
        if let Some(reason) = sequence.finish_reason() {
            events.push(Event::Finished { id, reason });
            if planted::is(Bug::SecondEnd) {
                events.push(Event::Finished { id, reason });
            }
            return true;
        }
    }
    if sequence.crashes.is_some() {
        dispatcher.note_progress(index);
    }
    false
}
