//! The sequences whose end has not been told yet, and the telling.

use super::phase::since;
use crate::engine::handle::{Interruption, SequenceEvent};
use crate::metrics::Metrics;
use headrace_scheduler::{Event, SequenceId, SequenceRequest, Time};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// One sequence.
#[derive(Debug)]
struct OpenStream {
    events: mpsc::Sender<SequenceEvent>,
    last_token: Option<Time>,
    prompt_tokens: usize,
    /// Prompt and output bound.
    max_tokens: u64,
    started: bool,
}

/// What is kept of a request when the scheduler takes it.
#[derive(Debug)]
pub(super) struct StreamFacts {
    id: SequenceId,
    stream: OpenStream,
}

impl StreamFacts {
    pub(super) fn new(request: &SequenceRequest, events: mpsc::Sender<SequenceEvent>) -> Self {
        let prompt_tokens = request.prompt.len();
        let stream = OpenStream {
            events,
            last_token: None,
            prompt_tokens,
            max_tokens: prompt_tokens as u64 + u64::from(request.stop.max_new_tokens),
            started: false,
        };
        Self {
            id: request.id,
            stream,
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct OpenStreams {
    by_id: FxHashMap<SequenceId, OpenStream>,
    /// Sum of `max_tokens` of those that have started.
    running_max_tokens: u64,
    /// Ends told, since the start.
    ended: u64,
}

impl OpenStreams {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn running_max_tokens(&self) -> u64 {
        self.running_max_tokens
    }

    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    /// A sequence was queued.
    pub(super) fn add(&mut self, facts: StreamFacts) {
        self.by_id.insert(facts.id, facts.stream);
    }

    /// The sequence is over; nothing more is told.
    pub(super) fn remove(&mut self, id: SequenceId) -> bool {
        let Some(stream) = self.by_id.remove(&id) else {
            return false;
        };
        if stream.started {
            self.running_max_tokens -= stream.max_tokens;
        }
        self.ended += 1;
        true
    }

    /// Tells each event to its sequence. Gives the sequences whose buffer was full, which cannot be: their buffers hold
    /// whatever they can emit. They are closed here; the caller cancels them.
    pub(super) fn tell(
        &mut self,
        now: Time,
        events: Vec<Event>,
        metrics: &Metrics,
    ) -> Vec<SequenceId> {
        let mut overflowed = Vec::new();
        for event in events {
            let (id, told) = match event {
                Event::Started { id, cached_tokens } => {
                    self.note_start(id, metrics);
                    (id, SequenceEvent::Started { cached_tokens })
                }
                Event::PromptLogprobs { id, tokens } => (id, SequenceEvent::PromptLogprobs(tokens)),
                Event::Token { id, token } => {
                    if let Some(stream) = self.by_id.get_mut(&id) {
                        let before = stream.last_token.replace(now);
                        metrics.token_emitted(before.map(|before| since(now, before)));
                    }
                    (id, SequenceEvent::Token(token))
                }
                Event::Finished { id, reason } => (id, SequenceEvent::Finished(reason)),
                Event::Failed { id, failure } => (id, SequenceEvent::Failed(failure)),
            };
            let Some(stream) = self.by_id.get(&id) else {
                continue;
            };
            let is_last = told.is_last();
            match stream.events.try_send(told) {
                // Closed: the reader is gone, and its cancel is on the way.
                Ok(()) | Err(TrySendError::Closed(_)) => {}
                Err(TrySendError::Full(_)) => {
                    tracing::error!(sequence = id.0, "a sequence emitted more than it can");
                    overflowed.push(id);
                    self.remove(id);
                    continue;
                }
            }
            if is_last {
                self.remove(id);
            }
        }
        overflowed
    }

    /// Ends every sequence for the server's reason. Gives those that the scheduler has to forget.
    pub(super) fn interrupt_all(&mut self, why: &Interruption) -> Vec<SequenceId> {
        let ids: Vec<SequenceId> = self.by_id.keys().copied().collect();
        for stream in self.by_id.values() {
            // A closed buffer has no reader to tell; a full one cannot be, and its reader sees the channel close.
            let _ = stream
                .events
                .try_send(SequenceEvent::Interrupted(why.clone()));
        }
        for id in &ids {
            self.remove(*id);
        }
        ids
    }

    fn note_start(&mut self, id: SequenceId, metrics: &Metrics) {
        if let Some(stream) = self.by_id.get_mut(&id)
            && !stream.started
        {
            stream.started = true;
            self.running_max_tokens += stream.max_tokens;
            metrics.prompt_started(stream.prompt_tokens);
        }
    }
}
