//! The sequences whose end has not been told yet, and the telling.

use super::phase::since;
use crate::engine::buffer::{EventWriter, Told};
use crate::engine::handle::{Interruption, SequenceEvent};
use crate::engine::planted::{self, Bug};
use crate::metrics::Metrics;
use headrace_scheduler::{Event, SequenceId, SequenceRequest, Time};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// One sequence.
#[derive(Debug)]
struct OpenStream {
    events: EventWriter,
    /// What log lines call its request.
    request_id: Option<Arc<str>>,
    last_token: Option<Time>,
    prompt_tokens: usize,
    /// Prompt and output bound.
    max_tokens: u64,
    started: bool,
}

impl OpenStream {
    fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }
}

/// What is kept of a request when the scheduler takes it.
#[derive(Debug)]
pub(super) struct StreamFacts {
    id: SequenceId,
    stream: OpenStream,
}

impl StreamFacts {
    pub(super) fn new(
        request: &SequenceRequest,
        events: EventWriter,
        request_id: Option<Arc<str>>,
    ) -> Self {
        let prompt_tokens = request.prompt.len();
        let stream = OpenStream {
            events,
            request_id,
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

/// How far the reader of a paused sequence was when that was last looked at.
#[derive(Clone, Copy, Debug)]
struct Pause {
    read: u64,
    /// Since when it has read nothing.
    since: Time,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct OpenStreams {
    by_id: FxHashMap<SequenceId, OpenStream>,
    /// Those that wait for their readers.
    paused: BTreeMap<SequenceId, Pause>,
    /// Sum of `max_tokens` of those that have started.
    running_max_tokens: u64,
}

/// The gaps between tokens that are told together. Sequences that were told together before have the same.
#[derive(Debug)]
struct Gaps {
    now: Time,
    tokens: u64,
    before: Option<Time>,
    count: u64,
}

impl Gaps {
    fn new(now: Time) -> Self {
        Self {
            now,
            tokens: 0,
            before: None,
            count: 0,
        }
    }

    /// A token, and when the one before it was told.
    fn note(&mut self, before: Option<Time>, metrics: &Metrics) {
        self.tokens += 1;
        if before != self.before {
            self.record_run(metrics);
            self.before = before;
        }
        self.count += 1;
    }

    fn record_run(&mut self, metrics: &Metrics) {
        let count = std::mem::take(&mut self.count);
        if let Some(before) = self.before
            && count > 0
        {
            metrics.tokens_followed(since(self.now, before), count);
        }
    }

    fn record(mut self, metrics: &Metrics) {
        self.record_run(metrics);
        if self.tokens > 0 {
            metrics.tokens_emitted(self.tokens);
        }
    }
}

/// What telling led to.
#[derive(Debug, Default)]
pub(super) struct Telling {
    /// Their readers are slow: the scheduler has to pause them.
    pub(super) paused: Vec<SequenceId>,
    /// Their buffers were full, which the pauses were to prevent. They are closed; the scheduler has to forget them.
    pub(super) overflowed: Vec<SequenceId>,
}

impl OpenStreams {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn paused(&self) -> usize {
        self.paused.len()
    }

    pub(super) fn running_max_tokens(&self) -> u64 {
        self.running_max_tokens
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
        self.paused.remove(&id);
        true
    }

    /// Tells each event to its sequence.
    pub(super) fn tell(&mut self, now: Time, events: Vec<Event>, metrics: &Metrics) -> Telling {
        let mut telling = Telling::default();
        let mut gaps = Gaps::new(now);
        for event in events {
            let id = event.sequence();
            let Some(stream) = self.by_id.get_mut(&id) else {
                continue;
            };
            let told = match event {
                Event::Started {
                    cached_tokens, at, ..
                } => {
                    if !stream.started {
                        stream.started = true;
                        self.running_max_tokens += stream.max_tokens;
                        metrics.prompt_started(stream.prompt_tokens);
                    }
                    SequenceEvent::Started { cached_tokens, at }
                }
                Event::PromptLogprobs { tokens, .. } => SequenceEvent::PromptLogprobs(tokens),
                Event::Token { token, .. } => {
                    if planted::is(Bug::FirstTokenLost) && stream.last_token.is_none() {
                        stream.last_token = Some(now);
                        continue;
                    }
                    if planted::is(Bug::TokenToldTwice) && stream.last_token.is_none() {
                        stream.events.tell(SequenceEvent::Token(token.clone()));
                    }
                    gaps.note(stream.last_token.replace(now), metrics);
                    SequenceEvent::Token(token)
                }
                Event::Finished { reason, .. } => SequenceEvent::Finished(reason),
                Event::Failed { failure, .. } => SequenceEvent::Failed(failure),
            };
            let is_last = told.is_last();
            match stream.events.tell(told) {
                Told::Pause if !is_last => {
                    let read = stream.events.read();
                    self.paused.insert(id, Pause { read, since: now });
                    telling.paused.push(id);
                }
                Told::Yes | Told::Pause => {}
                Told::Full => {
                    tracing::error!(
                        sequence = id.0,
                        request_id = stream.request_id(),
                        "a sequence emitted more than it can"
                    );
                    telling.overflowed.push(id);
                    self.remove(id);
                    continue;
                }
            }
            if is_last {
                self.remove(id);
            }
        }
        gaps.record(metrics);
        telling
    }

    /// The reader has read on. `false`: it was not paused, or has fallen behind again since it said so.
    pub(super) fn resume(&mut self, id: SequenceId) -> bool {
        let is_behind = |stream: &OpenStream| stream.events.is_pressed();
        !self.by_id.get(&id).is_some_and(is_behind) && self.paused.remove(&id).is_some()
    }

    /// Paused sequences whose reader has read nothing for `limit`.
    pub(super) fn stalled(&mut self, now: Time, limit: Duration) -> Vec<SequenceId> {
        let mut stalled = Vec::new();
        for (id, pause) in &mut self.paused {
            let Some(stream) = self.by_id.get(id) else {
                continue;
            };
            let read = stream.events.read();
            if read != pause.read {
                *pause = Pause { read, since: now };
            } else if since(now, pause.since) >= limit && !planted::is(Bug::StallKept) {
                tracing::warn!(
                    sequence = id.0,
                    request_id = stream.request_id(),
                    "dropped: its client reads nothing"
                );
                stalled.push(*id);
            }
        }
        stalled
    }

    /// Ends a sequence with a last word of the server's. `false`: it is over.
    pub(super) fn end(&mut self, id: SequenceId, word: SequenceEvent) -> bool {
        if let Some(stream) = self.by_id.get_mut(&id)
            && !planted::is(Bug::LastWordNotTold)
        {
            // There is room for a last word; without a reader nobody needs it.
            stream.events.tell(word);
        }
        self.remove(id)
    }

    /// Ends every sequence for the server's reason. Gives those that the scheduler has to forget.
    pub(super) fn interrupt_all(&mut self, why: &Interruption) -> Vec<SequenceId> {
        let mut ids: Vec<SequenceId> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        for id in &ids {
            self.end(*id, SequenceEvent::Interrupted(why.clone()));
        }
        ids
    }
}
