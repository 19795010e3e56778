//! What requests and operators say: take this sequence, forget that one, go on with a third.

use super::EngineCore;
use super::masks::EndRules;
use super::streams::StreamFacts;
use crate::engine::handle::{Command, FlushedCache, Order, SubmitFailure};
use crate::engine::planted::{self, Bug};
use crate::engine::validated::ValidatedSequence;
use headrace_control::ToLauncher;
use headrace_grammar::CompiledGrammar;
use headrace_scheduler::{SequenceId, Time};

impl EngineCore {
    pub(super) fn take_command(&mut self, now: Time, command: Command) {
        match command.0 {
            Order::Submit {
                request,
                grammar,
                events,
                request_id,
                verdict,
            } => {
                let facts = StreamFacts::new(request.request(), events, request_id);
                let outcome = self.submit(now, *request, grammar, facts);
                // The caller may be gone; its cancel is behind this command in the queue.
                let _ = verdict.send(outcome);
            }
            Order::Cancel(id) => {
                if self.streams.remove(id) && !planted::is(Bug::CancelKeepsRunning) {
                    self.forget(now, id);
                }
            }
            Order::Resume(id) => {
                if self.streams.resume(id)
                    && !planted::is(Bug::ResumeLost)
                    && let Some(scheduler) = &mut self.scheduler
                {
                    scheduler.resume(now, id);
                }
            }
            Order::ServicesReady => {
                self.services_ready = true;
                self.announce();
            }
            Order::RequestDrain => self.send(ToLauncher::DrainRequested),
            Order::FlushCache(answer) => {
                let flushed = self.flush_cache(now);
                // The operator may be gone.
                let _ = answer.send(flushed);
            }
        }
    }

    fn flush_cache(&mut self, now: Time) -> FlushedCache {
        let Some(scheduler) = &mut self.scheduler else {
            return FlushedCache::default();
        };
        let freed_blocks = scheduler.flush_cache(now);
        tracing::info!(freed_blocks, "the prefix cache was flushed");
        FlushedCache {
            freed_blocks,
            kept_blocks: scheduler.stats().owned_blocks,
        }
    }

    /// Scheduler and mask desk forget a sequence whose stream is closed.
    pub(super) fn forget(&mut self, now: Time, id: SequenceId) {
        if !planted::is(Bug::MaskNotCalledOff) {
            self.masks.close(id, &mut self.effects);
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.cancel(now, id);
        }
    }

    fn submit(
        &mut self,
        now: Time,
        sequence: ValidatedSequence,
        grammar: Option<CompiledGrammar>,
        facts: StreamFacts,
    ) -> Result<(), SubmitFailure> {
        if self.drain_deadline.is_some() && !planted::is(Bug::DrainAdmits) {
            return Err(SubmitFailure::Draining);
        }
        if !self.announced || self.final_cause.is_some() {
            return Err(SubmitFailure::NotReady);
        }
        let scheduler = self.scheduler.as_mut().ok_or(SubmitFailure::NotReady)?;
        let id = sequence.request().id;
        let mut request = sequence.into_request();
        let constraint = grammar.map(|grammar| (EndRules::take_from(&mut request), grammar));
        scheduler.submit(now, request)?;
        self.streams.add(facts);
        if let Some((rules, grammar)) = constraint {
            self.masks.open(id, rules, grammar, &mut self.effects);
        }
        Ok(())
    }
}
