//! The page of `/metrics`.

mod queue;

use super::exposition::Exposition;
use super::instrument::Histogram;
use super::{Counter, FailureKind, FinishLabel, Metrics, StepInstruments, StepMethod};
use crate::engine::EngineStatus;

impl Metrics {
    /// Everything, with the engine's counts as of `status`. Tens of microseconds, no lock.
    pub fn render(&self, status: &EngineStatus) -> String {
        let mut page = Exposition::with_capacity(96 * 1024);
        self.render_requests(&mut page);
        self.render_steps(&mut page);
        self.worker_time.render(&mut page);
        self.render_engine(&mut page, status);
        render_block_books(&mut page, status);
        queue::render(&mut page, &status.stats);
        if let Some(keys) = self.keys.get() {
            keys.render(&mut page);
        }
        self.render_vllm(&mut page, status);
        page.into_text()
    }

    fn render_requests(&self, page: &mut Exposition) {
        page.single(
            (
                "tgi_request_count",
                "counter",
                "Generation requests that arrived.",
            ),
            "",
            self.requests.get(),
        );
        page.single(
            (
                "tgi_request_success",
                "counter",
                "Generation requests that were answered.",
            ),
            "",
            self.successes.get(),
        );
        page.family(
            "tgi_request_failure",
            "counter",
            "Generation requests that failed, by cause.",
        );
        for (kind, label) in FailureKind::ALL {
            let value = self.failures.get(kind as usize).map_or(0, Counter::get);
            page.sample("tgi_request_failure", &format!("err=\"{label}\""), value);
        }
        page.histograms(
            "",
            &[
                (
                    "tgi_request_duration",
                    "Seconds from arrival to end.",
                    &self.request_duration,
                ),
                (
                    "tgi_request_validation_duration",
                    "Seconds of validating and tokenising.",
                    &self.validation_duration,
                ),
                (
                    "tgi_request_queue_duration",
                    "Seconds from submission to the first step.",
                    &self.queue_duration,
                ),
                (
                    "tgi_request_inference_duration",
                    "Seconds from the first step to the last token.",
                    &self.inference_duration,
                ),
                (
                    "tgi_request_mean_time_per_token_duration",
                    "Inference seconds divided by output tokens.",
                    &self.mean_time_per_token,
                ),
                (
                    "tgi_request_skipped_tokens",
                    "Tokens a step that speculation added.",
                    &self.skipped_tokens,
                ),
            ],
        );
        if let Some(lengths) = self.lengths.get() {
            page.histograms(
                "",
                &[
                    ("tgi_request_input_length", "Prompt tokens.", &lengths.input),
                    (
                        "tgi_request_generated_tokens",
                        "Output tokens.",
                        &lengths.generated,
                    ),
                    (
                        "tgi_request_max_new_tokens",
                        "Output tokens asked for.",
                        &lengths.max_new,
                    ),
                ],
            );
        }
    }

    fn render_steps(&self, page: &mut Exposition) {
        for (name, help, read) in STEP_COUNTERS {
            page.family(name, "counter", help);
            for ((_, label), step) in StepMethod::ALL.iter().zip(&self.steps) {
                page.sample(name, &format!("method=\"{label}\""), read(step).get());
            }
        }
        for (name, help, read) in STEP_DURATIONS {
            page.family(name, "histogram", help);
            for ((_, label), step) in StepMethod::ALL.iter().zip(&self.steps) {
                page.histogram(name, &format!("method=\"{label}\""), read(step));
            }
        }
        let name = "tgi_batch_concat";
        page.family(
            name,
            "counter",
            "Steps in which sequences joined running ones.",
        );
        for (reason, value) in [
            ("backpressure", 0),
            ("wait_exceeded", 0),
            ("chunking", self.joined.get()),
        ] {
            page.sample(name, &format!("reason=\"{reason}\""), value);
        }
        page.histograms(
            "method=\"decode\"",
            &[(
                "tgi_batch_concat_duration",
                "The worker's seconds of taking sequences into slots.",
                &self.join_duration,
            )],
        );
        page.histograms(
            "",
            &[(
                "tgi_batch_next_size",
                "Rows of a step that sequences entered.",
                &self.next_size,
            )],
        );
    }

    fn render_engine(&self, page: &mut Exposition, status: &EngineStatus) {
        let counts = &status.stats;
        let pool = status.limits.map_or(0, |limits| limits.pool_tokens);
        let block_size = status
            .limits
            .map_or(0, |limits| u64::from(limits.block_size));
        let gauges = [
            ("tgi_queue_size", "Sequences that wait.", counts.waiting),
            (
                "tgi_batch_current_size",
                "Rows of the current step.",
                self.step_rows.get(),
            ),
            (
                "tgi_batch_current_max_tokens",
                "Prompt and output bounds of the running sequences, summed.",
                self.running_max_tokens.get(),
            ),
            (
                "tgi_batch_max_total_tokens",
                "Tokens that the KV cache holds.",
                pool,
            ),
            (
                "tgi_batch_total_tokens",
                "Tokens that the blocks of running sequences hold.",
                counts.owned_blocks * block_size,
            ),
        ];
        for (name, help, value) in gauges {
            page.single((name, "gauge", help), "", value);
        }
    }

    fn render_vllm(&self, page: &mut Exposition, status: &EngineStatus) {
        let counts = &status.stats;
        let model = self.model_name.get().map_or("", String::as_str);
        let labels = format!("model_name=\"{model}\",engine=\"0\"");
        page.single(KV_USAGE, &labels, kv_usage(status));
        for (name, kind, help, value) in [
            (
                "vllm:num_requests_running",
                "gauge",
                "Sequences in slots.",
                counts.running,
            ),
            (
                "vllm:num_requests_waiting",
                "gauge",
                "Sequences that wait.",
                counts.waiting,
            ),
            (
                "vllm:prefix_cache_queries_total",
                "counter",
                "Prompt tokens looked up in the prefix cache.",
                counts.prefix_query_tokens,
            ),
            (
                "vllm:prefix_cache_hits_total",
                "counter",
                "Prompt tokens found in the prefix cache.",
                counts.prefix_hit_tokens,
            ),
            (
                "vllm:num_preemptions_total",
                "counter",
                "Sequences moved back to the queue.",
                counts.preemptions,
            ),
            (
                "vllm:prompt_tokens_total",
                "counter",
                "Prompt tokens.",
                self.prompt_tokens.get(),
            ),
            (
                "vllm:generation_tokens_total",
                "counter",
                "Output tokens.",
                self.generation_tokens.get(),
            ),
        ] {
            page.single((name, kind, help), &labels, value);
        }
        self.render_vllm_ends(page, &labels);
        self.render_vllm_latencies(page, &labels);
    }

    fn render_vllm_ends(&self, page: &mut Exposition, labels: &str) {
        let name = "vllm:request_success_total";
        page.family(name, "counter", "Requests that ended, by reason.");
        for (finish, label) in FinishLabel::ALL {
            let value = self.finishes.get(finish as usize).map_or(0, Counter::get);
            page.sample(
                name,
                &format!("{labels},finished_reason=\"{label}\""),
                value,
            );
        }
    }

    fn render_vllm_latencies(&self, page: &mut Exposition, labels: &str) {
        page.histograms(
            labels,
            &[
                (
                    "vllm:time_to_first_token_seconds",
                    "Seconds from arrival to the first token.",
                    &self.time_to_first_token,
                ),
                (
                    "vllm:inter_token_latency_seconds",
                    "Seconds between two tokens of a sequence.",
                    &self.inter_token_latency,
                ),
                (
                    "vllm:e2e_request_latency_seconds",
                    "Seconds from arrival to end.",
                    &self.end_to_end,
                ),
                (
                    "vllm:request_queue_time_seconds",
                    "Seconds from submission to the first step.",
                    &self.queue_duration,
                ),
            ],
        );
    }
}

/// The books of the KV pool: the first three add up to the last at any time.
fn render_block_books(page: &mut Exposition, status: &EngineStatus) {
    let counts = &status.stats;
    for (name, help, blocks) in [
        (
            "headrace_kv_blocks_free",
            "KV blocks that hold nothing.",
            counts.free_blocks,
        ),
        (
            "headrace_kv_blocks_owned",
            "KV blocks that sequences need.",
            counts.owned_blocks,
        ),
        (
            "headrace_kv_blocks_cached",
            "KV blocks kept for later prompts alone.",
            counts.cached_blocks,
        ),
        (
            "headrace_kv_blocks_total",
            "KV blocks of the pool.",
            counts.total_blocks,
        ),
    ] {
        page.single((name, "gauge", help), "", blocks);
    }
}

const KV_USAGE: (&str, &str, &str) = (
    "vllm:kv_cache_usage_perc",
    "gauge",
    "Share of blocks that running sequences hold.",
);

/// From 0 to 1.
fn kv_usage(status: &EngineStatus) -> f64 {
    let counts = &status.stats;
    if counts.total_blocks == 0 {
        0.0
    } else {
        counts.owned_blocks as f64 / counts.total_blocks as f64
    }
}

type Pick<T> = for<'a> fn(&'a StepInstruments) -> &'a T;

const STEP_COUNTERS: [(&str, &str, Pick<Counter>); 3] = [
    ("tgi_batch_inference_count", "Steps sent.", |step| {
        &step.count
    }),
    (
        "tgi_batch_inference_success",
        "Steps that succeeded.",
        |step| &step.success,
    ),
    (
        "tgi_batch_inference_failure",
        "Steps that failed.",
        |step| &step.failure,
    ),
];

const STEP_DURATIONS: [(&str, &str, Pick<Histogram>); 4] = [
    (
        "tgi_batch_inference_duration",
        "Seconds from sending a step to its answer.",
        |step| &step.inference,
    ),
    (
        "tgi_batch_forward_duration",
        "The worker's seconds in the model.",
        |step| &step.forward,
    ),
    (
        "tgi_batch_decode_duration",
        "The worker's seconds of sampling.",
        |step| &step.decode,
    ),
    (
        "tgi_batch_filter_duration",
        "The worker's seconds of changing slots and tables.",
        |step| &step.filter,
    ),
];

#[cfg(test)]
mod tests;
