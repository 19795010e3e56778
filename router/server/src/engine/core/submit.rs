//! What requests say: take this sequence, or forget that one; and what operators do.

use super::EngineCore;
use super::streams::StreamFacts;
use crate::engine::handle::{Command, FlushedCache, Order, SequenceEvent, SubmitFailure};
use crate::engine::validated::ValidatedSequence;
use headrace_control::ToLauncher;
use headrace_scheduler::Time;
use tokio::sync::mpsc;

impl EngineCore {
    pub(super) fn take_command(&mut self, now: Time, command: Command) {
        match command.0 {
            Order::Submit {
                request,
                events,
                verdict,
            } => {
                let outcome = self.submit(now, *request, events);
                // The caller may be gone; its cancel is behind this command in the queue.
                let _ = verdict.send(outcome);
            }
            Order::Cancel(id) => {
                if self.streams.remove(id)
                    && let Some(scheduler) = &mut self.scheduler
                {
                    scheduler.cancel(now, id);
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

    fn submit(
        &mut self,
        now: Time,
        sequence: ValidatedSequence,
        events: mpsc::Sender<SequenceEvent>,
    ) -> Result<(), SubmitFailure> {
        if self.drain_deadline.is_some() {
            return Err(SubmitFailure::Draining);
        }
        if !self.announced || self.final_cause.is_some() {
            return Err(SubmitFailure::NotReady);
        }
        let scheduler = self.scheduler.as_mut().ok_or(SubmitFailure::NotReady)?;
        let facts = StreamFacts::new(sequence.request(), events);
        scheduler.submit(now, sequence.into_request())?;
        self.streams.add(facts);
        Ok(())
    }
}
