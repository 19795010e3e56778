//! One log line a request, at its end, that says how it ended; and the request's metrics.
//!
//! The record is shared by the middleware, the handler and the body's stream; the line is written when the last of
//! them is gone, which for a stream is after its last byte, and for a client that left is when that was noticed.
//! Neither prompts nor keys are in it; a key's name is.

use crate::caller::Caller;
use crate::metrics::{FailureKind, FinishLabel, Metrics, RequestObservation};
use headrace_dialect::end::EndReason;
use headrace_dialect::refusal::{Cause, Refusal};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What a generation has done so far, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) prompt: usize,
    pub(crate) cached: u32,
    pub(crate) generated: u32,
    pub(crate) max_new: u32,
}

/// When things happened, since the request's arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Validated and tokenised.
    pub(crate) validated: Option<Duration>,
    /// Entered its first step.
    pub(crate) started: Option<Duration>,
    /// First token.
    pub(crate) first_token: Option<Duration>,
    /// Last token.
    pub(crate) last_token: Option<Duration>,
}

impl Times {
    pub(crate) fn validation(&self) -> Duration {
        self.validated.unwrap_or_default()
    }

    /// From submission to the first step.
    pub(crate) fn queue(&self) -> Duration {
        self.started
            .unwrap_or_default()
            .saturating_sub(self.validation())
    }

    /// From the first step to the last token.
    pub(crate) fn inference(&self) -> Duration {
        self.last_token
            .unwrap_or_default()
            .saturating_sub(self.started.unwrap_or_default())
    }
}

#[derive(Debug)]
enum End {
    /// Nothing has been said about it: the client has left.
    Unknown,
    /// Answered, by a route that generates nothing.
    Answered,
    Finished(EndReason),
    Refused(String),
}

#[derive(Debug)]
struct Record {
    caller: Arc<Caller>,
    status: Option<u16>,
    is_generation: bool,
    counts: Counts,
    times: Times,
    end: End,
    /// Generations that have to finish before it has.
    parts: usize,
}

/// What one request may be called by.
#[derive(Clone, Debug)]
pub(crate) struct RequestIds {
    /// By its header, or made up.
    pub(crate) header: Arc<str>,
    /// By its body.
    pub(crate) body: Option<Arc<str>>,
    /// A part of it alone, by its own part of the body.
    pub(crate) part: Option<Arc<str>>,
}

impl RequestIds {
    /// Each of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        [Some(&self.header), self.body.as_ref(), self.part.as_ref()]
            .into_iter()
            .flatten()
            .map(AsRef::as_ref)
    }
}

/// The record of one request.
#[derive(Debug)]
pub(crate) struct RequestLog {
    /// By the header, or made up.
    header_id: Arc<str>,
    /// By the body.
    body_id: OnceLock<Arc<str>>,
    method: http::Method,
    route: String,
    arrival: Instant,
    metrics: Arc<Metrics>,
    record: Mutex<Record>,
}

impl RequestLog {
    pub(crate) fn new(
        request_id: String,
        method: http::Method,
        route: String,
        metrics: Arc<Metrics>,
        anyone: Arc<Caller>,
    ) -> Self {
        Self {
            header_id: request_id.into(),
            body_id: OnceLock::new(),
            method,
            route,
            arrival: Instant::now(),
            metrics,
            record: Mutex::new(Record {
                caller: anyone,
                status: None,
                is_generation: false,
                counts: Counts::default(),
                times: Times::default(),
                end: End::Unknown,
                parts: 1,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        // Plain data, whole at every moment.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the body calls the request. The first call counts.
    pub(crate) fn set_body_id(&self, id: Option<String>) {
        if let Some(id) = id {
            self.body_id.get_or_init(|| id.into());
        }
    }

    /// What the answer and the log call the request.
    pub(crate) fn request_id(&self) -> &Arc<str> {
        self.body_id.get().unwrap_or(&self.header_id)
    }

    /// Every id that the request may be called by.
    pub(crate) fn ids(&self) -> RequestIds {
        RequestIds {
            header: Arc::clone(&self.header_id),
            body: self.body_id.get().cloned(),
            part: None,
        }
    }

    /// The path that was asked for, cut and without what could break a line.
    pub(crate) fn route(&self) -> &str {
        &self.route
    }

    /// Since the request arrived.
    pub(crate) fn elapsed(&self) -> Duration {
        self.arrival.elapsed()
    }

    /// When the request arrived.
    pub(crate) fn arrival(&self) -> Instant {
        self.arrival
    }

    /// The request came with a key. Before [`RequestLog::begin_generation`].
    pub(crate) fn set_caller(&self, caller: Arc<Caller>) {
        self.lock().caller = caller;
    }

    /// Who is charged.
    pub(crate) fn caller(&self) -> Arc<Caller> {
        Arc::clone(&self.lock().caller)
    }

    /// The request is one for generation: it counts in the metrics.
    pub(crate) fn begin_generation(&self) {
        let mut record = self.lock();
        if !record.is_generation {
            record.is_generation = true;
            self.metrics.request_received();
            if let Some(key) = record.caller.index() {
                self.metrics.key_received(key);
            }
        }
    }

    /// The answer's head is known. A route that says nothing else has answered by it.
    pub(crate) fn set_status(&self, status: u16) {
        let mut record = self.lock();
        record.status = Some(status);
        if !record.is_generation && matches!(record.end, End::Unknown) {
            record.end = End::Answered;
        }
    }

    /// Changes counts and times.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Counts, &mut Times)) {
        let mut record = self.lock();
        let record = &mut *record;
        change(&mut record.counts, &mut record.times);
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    pub(crate) fn times(&self) -> Times {
        self.lock().times
    }

    /// The request runs as so many generations, each of which finishes by itself.
    pub(crate) fn expect_parts(&self, parts: usize) {
        self.lock().parts = parts;
    }

    /// Every choice of a generation ended well; `reason` is the last one's.
    pub(crate) fn finish(&self, reason: EndReason) {
        let observation = {
            let mut record = self.lock();
            record.parts = record.parts.saturating_sub(1);
            if record.parts > 0 || !matches!(record.end, End::Unknown) {
                return;
            }
            record.end = End::Finished(reason);
            RequestObservation {
                validation: record.times.validation(),
                queue: record.times.queue(),
                inference: record.times.inference(),
                total: self.arrival.elapsed(),
                time_to_first_token: record.times.first_token,
                input_tokens: u32::try_from(record.counts.prompt).unwrap_or(u32::MAX),
                generated_tokens: record.counts.generated,
                max_new_tokens: record.counts.max_new,
                finish: if reason == EndReason::Length {
                    FinishLabel::Length
                } else {
                    FinishLabel::Stop
                },
            }
        };
        self.metrics.request_succeeded(&observation);
    }

    /// It was refused or failed.
    pub(crate) fn fail(&self, refusal: &Refusal) {
        let is_generation = {
            let mut record = self.lock();
            if matches!(record.end, End::Finished(_) | End::Refused(_)) {
                return;
            }
            record.end = End::Refused(shown(refusal));
            record.is_generation
        };
        if is_generation {
            self.metrics.request_failed(failure_kind(refusal.cause()));
        }
    }
}

/// What the log says of a refusal: what the client is told, where that is our own words; else its type and the field,
/// for messages about a request's contents may quote them.
fn shown(refusal: &Refusal) -> String {
    match (refusal.cause(), refusal.param()) {
        (
            Cause::Generation
            | Cause::Aborted
            | Cause::Internal
            | Cause::Incomplete
            | Cause::IncompleteStream
            | Cause::Overloaded
            | Cause::Unavailable
            | Cause::Unauthorized
            | Cause::Forbidden,
            _,
        ) => refusal.message().to_owned(),
        (_, Some(param)) => format!("{}: {param}", refusal.error_type()),
        (_, None) => refusal.error_type().to_owned(),
    }
}

fn failure_kind(cause: Cause) -> FailureKind {
    match cause {
        Cause::Overloaded | Cause::Unavailable => FailureKind::Overloaded,
        Cause::Template => FailureKind::Template,
        Cause::Generation | Cause::Internal => FailureKind::Generation,
        Cause::Aborted => FailureKind::Dropped,
        Cause::Incomplete | Cause::IncompleteStream => FailureKind::Incomplete,
        Cause::MalformedJson
        | Cause::WrongType
        | Cause::Validation
        | Cause::Suffix
        | Cause::BatchSize
        | Cause::ContextLength
        | Cause::Unauthorized
        | Cause::Forbidden
        | Cause::ModelNotFound
        | Cause::NotFound
        | Cause::MethodNotAllowed
        | Cause::HeadTooLarge
        | Cause::PayloadTooLarge
        | Cause::MediaType => FailureKind::Validation,
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let total_ms = milliseconds(self.arrival.elapsed());
        let request_id = self.body_id.get().unwrap_or(&self.header_id);
        let record = self
            .record
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        let (end, detail) = match &record.end {
            End::Unknown => ("client_left", None),
            End::Answered => ("answered", None),
            End::Finished(reason) => (reason.name(), None),
            End::Refused(detail) => (
                "error",
                Some(detail.as_str()).filter(|detail| !detail.is_empty()),
            ),
        };
        if record.is_generation && matches!(record.end, End::Unknown) {
            self.metrics.request_failed(FailureKind::Dropped);
        }
        if record.is_generation
            && let Some(key) = record.caller.index()
        {
            let counts = &record.counts;
            self.metrics.key_done(key, counts.prompt, counts.generated);
        }
        let key = record.caller.name();
        // 499: nobody was left to read an answer.
        let status = record.status.unwrap_or(499);
        if record.is_generation {
            tracing::info!(
                request_id = %request_id,
                key,
                route = %self.route,
                status,
                end,
                detail,
                prompt_tokens = record.counts.prompt,
                cached_tokens = record.counts.cached,
                generated_tokens = record.counts.generated,
                total_ms,
                validation_ms = milliseconds(record.times.validation()),
                queue_ms = milliseconds(record.times.queue()),
                inference_ms = milliseconds(record.times.inference()),
                "request ended"
            );
        } else if self.method == http::Method::POST
            || self.route == "/flush_cache"
            || status >= 400 && status != 503
        {
            tracing::info!(
                request_id = %request_id, key, method = %self.method, route = %self.route, status, end,
                detail, total_ms, "request ended"
            );
        } else {
            // Probes and scrapes come every few seconds.
            tracing::debug!(
                request_id = %request_id, key, method = %self.method, route = %self.route, status, end,
                detail, total_ms, "request ended"
            );
        }
    }
}
