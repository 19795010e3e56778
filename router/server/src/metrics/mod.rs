//! What is counted, and `/metrics`.
//!
//! TGI's names, each counted once, every histogram with buckets; beside them those of vLLM's names that cost nothing, for
//! the routers and dashboards that look for them. Label values come from fixed sets (and the one served model), so
//! nothing a client sends makes a new series.

mod exposition;
mod instrument;
mod keys;
mod page;
mod worker_time;

pub use exposition::CONTENT_TYPE;

use headrace_worker_client::StepTimings;
use instrument::{Counter, Gauge, Histogram, duration_histogram, length_histogram};
use keys::Keys;
use std::sync::OnceLock;
use std::time::Duration;
use worker_time::WorkerTime;

/// `err` of `tgi_request_failure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Refused by a bound: 429.
    Overloaded,
    /// Refused by validation.
    Validation,
    /// The chat template failed.
    Template,
    /// Ended without a finish.
    Incomplete,
    /// The engine or a worker failed.
    Generation,
    /// The client left.
    Dropped,
}

impl FailureKind {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Overloaded, "overloaded"),
        (Self::Validation, "validation"),
        (Self::Template, "template"),
        (Self::Incomplete, "incomplete"),
        (Self::Generation, "generation"),
        (Self::Dropped, "dropped"),
    ];
}

/// `finished_reason` of `vllm:request_success`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishLabel {
    /// An end id or a stop string.
    Stop,
    /// The length bound.
    Length,
    /// The client left.
    Abort,
    /// An error.
    Error,
}

impl FinishLabel {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Stop, "stop"),
        (Self::Length, "length"),
        (Self::Abort, "abort"),
        (Self::Error, "error"),
    ];
}

/// What a request's own task knows at its successful end.
#[derive(Clone, Copy, Debug)]
pub struct RequestObservation {
    /// Validating and tokenising.
    pub validation: Duration,
    /// From submission to the first step.
    pub queue: Duration,
    /// From the first step to the last token.
    pub inference: Duration,
    /// From the first byte to the last.
    pub total: Duration,
    /// From the request's arrival to its first token.
    pub time_to_first_token: Option<Duration>,
    /// Prompt tokens.
    pub input_tokens: u32,
    /// Output tokens.
    pub generated_tokens: u32,
    /// What was asked for, after clamping.
    pub max_new_tokens: u32,
    /// How it ended.
    pub finish: FinishLabel,
}

/// A step computed some sequence's prompt, or decoding rows only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepMethod {
    Prefill,
    Decode,
}

impl StepMethod {
    const ALL: [(Self, &'static str); 2] = [(Self::Prefill, "prefill"), (Self::Decode, "decode")];
}

/// What the engine knows of a step when it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepSent {
    pub(crate) method: StepMethod,
    /// Rows of the step.
    pub(crate) rows: usize,
    /// Sequences that entered slots with it.
    pub(crate) entered: usize,
    /// Prompt and output bounds of all running sequences, summed.
    pub(crate) running_max_tokens: u64,
}

/// What the engine knows of a step when it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepAnswered {
    pub(crate) method: StepMethod,
    pub(crate) succeeded: bool,
    /// From sending to the answer, as the router saw it.
    pub(crate) round_trip: Duration,
    /// The worker's own.
    pub(crate) timings: StepTimings,
    /// Sequences that entered slots with it.
    pub(crate) entered: usize,
}

/// Counted for each [`StepMethod`].
#[derive(Debug)]
struct StepInstruments {
    count: Counter,
    success: Counter,
    failure: Counter,
    inference: Histogram,
    forward: Histogram,
    decode: Histogram,
    filter: Histogram,
}

impl StepInstruments {
    fn new() -> Self {
        Self {
            count: Counter::default(),
            success: Counter::default(),
            failure: Counter::default(),
            inference: duration_histogram(),
            forward: duration_histogram(),
            decode: duration_histogram(),
            filter: duration_histogram(),
        }
    }
}

/// Histograms whose bounds depend on the served model.
#[derive(Debug)]
struct Lengths {
    input: Histogram,
    generated: Histogram,
    max_new: Histogram,
}

/// All of the process's instruments. One value, shared by reference count.
#[derive(Debug)]
pub struct Metrics {
    model_name: OnceLock<String>,
    keys: OnceLock<Keys>,
    lengths: OnceLock<Lengths>,
    requests: Counter,
    successes: Counter,
    failures: [Counter; FailureKind::ALL.len()],
    finishes: [Counter; FinishLabel::ALL.len()],
    steps: [StepInstruments; StepMethod::ALL.len()],
    worker_time: WorkerTime,
    joined: Counter,
    join_duration: Histogram,
    step_rows: Gauge,
    running_max_tokens: Gauge,
    request_duration: Histogram,
    validation_duration: Histogram,
    queue_duration: Histogram,
    inference_duration: Histogram,
    mean_time_per_token: Histogram,
    skipped_tokens: Histogram,
    next_size: Histogram,
    time_to_first_token: Histogram,
    inter_token_latency: Histogram,
    end_to_end: Histogram,
    prompt_tokens: Counter,
    generation_tokens: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// vLLM's bounds in seconds.
const FIRST_TOKEN_BOUNDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const INTER_TOKEN_BOUNDS: [f64; 19] = [
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const END_TO_END_BOUNDS: [f64; 21] = [
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

impl Metrics {
    /// All at zero.
    pub fn new() -> Self {
        Self {
            model_name: OnceLock::new(),
            keys: OnceLock::new(),
            lengths: OnceLock::new(),
            requests: Counter::default(),
            successes: Counter::default(),
            failures: std::array::from_fn(|_| Counter::default()),
            finishes: std::array::from_fn(|_| Counter::default()),
            steps: std::array::from_fn(|_| StepInstruments::new()),
            worker_time: WorkerTime::default(),
            joined: Counter::default(),
            join_duration: duration_histogram(),
            step_rows: Gauge::default(),
            running_max_tokens: Gauge::default(),
            request_duration: duration_histogram(),
            validation_duration: duration_histogram(),
            queue_duration: duration_histogram(),
            inference_duration: duration_histogram(),
            mean_time_per_token: duration_histogram(),
            skipped_tokens: Histogram::new((0..=16u8).map(f64::from)),
            next_size: Histogram::new((1..=1024u16).map(f64::from)),
            time_to_first_token: Histogram::new(FIRST_TOKEN_BOUNDS),
            inter_token_latency: Histogram::new(INTER_TOKEN_BOUNDS),
            end_to_end: Histogram::new(END_TO_END_BOUNDS),
            prompt_tokens: Counter::default(),
            generation_tokens: Counter::default(),
        }
    }

    /// The `model_name` label. The first call counts.
    pub fn set_model_name(&self, name: &str) {
        self.model_name
            .get_or_init(|| exposition::escape_label(name));
    }

    /// Names of the API keys, in order. The first call counts; without it no key has series.
    pub(crate) fn set_keys(&self, names: &[String]) {
        self.keys.get_or_init(|| Keys::new(names));
    }

    /// Bounds of the length histograms. The first call counts; before it no request can have been served.
    pub fn set_length_bounds(&self, max_input_tokens: u32, max_total_tokens: u32) {
        self.lengths.get_or_init(|| Lengths {
            input: length_histogram(max_input_tokens),
            generated: length_histogram(max_total_tokens),
            max_new: length_histogram(max_total_tokens),
        });
    }

    /// A generation request arrived. Once a request, whatever the route.
    pub fn request_received(&self) {
        self.requests.increment();
    }

    /// It came with the key at this place of the list. Once a request.
    pub(crate) fn key_received(&self, index: usize) {
        if let Some(key) = self.keys.get().and_then(|keys| keys.get(index)) {
            key.requests.increment();
            key.open.increment();
        }
    }

    /// And is over. Once a request.
    pub(crate) fn key_done(&self, index: usize, prompt_tokens: usize, generated_tokens: u32) {
        if let Some(key) = self.keys.get().and_then(|keys| keys.get(index)) {
            key.open.decrement();
            key.prompt_tokens.add(prompt_tokens as u64);
            key.generated_tokens.add(u64::from(generated_tokens));
        }
    }

    /// It ended without an answer. Once a request, instead of [`Metrics::request_succeeded`].
    pub fn request_failed(&self, kind: FailureKind) {
        if let Some(counter) = self.failures.get(kind as usize) {
            counter.increment();
        }
        let label = if kind == FailureKind::Dropped {
            FinishLabel::Abort
        } else {
            FinishLabel::Error
        };
        if let Some(counter) = self.finishes.get(label as usize) {
            counter.increment();
        }
    }

    /// It was answered.
    pub fn request_succeeded(&self, seen: &RequestObservation) {
        self.successes.increment();
        if let Some(counter) = self.finishes.get(seen.finish as usize) {
            counter.increment();
        }
        self.request_duration.record(seen.total.as_secs_f64());
        self.end_to_end.record(seen.total.as_secs_f64());
        self.validation_duration
            .record(seen.validation.as_secs_f64());
        self.queue_duration.record(seen.queue.as_secs_f64());
        self.inference_duration.record(seen.inference.as_secs_f64());
        if seen.generated_tokens > 0 {
            let mean = seen.inference.as_secs_f64() / f64::from(seen.generated_tokens);
            self.mean_time_per_token.record(mean);
        }
        if let Some(first) = seen.time_to_first_token {
            self.time_to_first_token.record(first.as_secs_f64());
        }
        if let Some(lengths) = self.lengths.get() {
            lengths.input.record(f64::from(seen.input_tokens));
            lengths.generated.record(f64::from(seen.generated_tokens));
            lengths.max_new.record(f64::from(seen.max_new_tokens));
        }
    }

    /// A sequence entered its first step.
    pub(crate) fn prompt_started(&self, prompt_tokens: usize) {
        self.prompt_tokens.add(prompt_tokens as u64);
    }

    /// Tokens were handed to their sequences' streams.
    pub(crate) fn tokens_emitted(&self, count: u64) {
        self.generation_tokens.add(count);
    }

    /// So many of them came this long after the ones before them.
    pub(crate) fn tokens_followed(&self, gap: Duration, count: u64) {
        self.inter_token_latency
            .record_all(gap.as_secs_f64(), count);
    }

    pub(crate) fn step_sent(&self, step: &StepSent) {
        if let Some(instruments) = self.steps.get(step.method as usize) {
            instruments.count.increment();
        }
        self.step_rows.set(step.rows as u64);
        self.running_max_tokens.set(step.running_max_tokens);
        if step.entered > 0 {
            self.next_size.record(step.rows as f64);
            if step.rows > step.entered {
                self.joined.increment();
            }
        }
    }

    pub(crate) fn step_answered(&self, step: &StepAnswered) {
        let Some(instruments) = self.steps.get(step.method as usize) else {
            return;
        };
        if step.succeeded {
            instruments.success.increment();
        } else {
            instruments.failure.increment();
        }
        instruments.inference.record(step.round_trip.as_secs_f64());
        let timings = &step.timings;
        instruments.forward.record(timings.forward.as_secs_f64());
        instruments.decode.record(timings.sample.as_secs_f64());
        instruments.filter.record(timings.apply.as_secs_f64());
        if step.entered > 0 {
            self.join_duration.record(timings.apply.as_secs_f64());
        }
        self.worker_time.add(timings);
    }

    /// No step runs.
    pub(crate) fn idle(&self) {
        self.step_rows.set(0);
        self.running_max_tokens.set(0);
    }
}
