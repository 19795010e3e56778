//! The page of `/metrics`.

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
        self.render_engine(&mut page, status);
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
        let usage = if counts.total_blocks == 0 {
            0.0
        } else {
            counts.owned_blocks as f64 / counts.total_blocks as f64
        };
        let usage_family = (
            "vllm:kv_cache_usage_perc",
            "gauge",
            "Share of blocks that running sequences hold.",
        );
        page.single(usage_family, &labels, usage);
        for (name, help, value) in [
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
                "KV blocks of the pool: free, owned and cached.",
                counts.total_blocks,
            ),
        ] {
            page.single((name, "gauge", help), "", value);
        }
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
        self.render_vllm_latencies(page, &labels);
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
mod tests {
    use super::*;
    use crate::engine::{EngineStats, HealthVerdict};
    use crate::metrics::RequestObservation;
    use std::collections::HashSet;
    use std::time::Duration;

    fn status() -> EngineStatus {
        EngineStatus {
            ready: true,
            was_ready: true,
            draining: false,
            health: HealthVerdict::Healthy,
            progress: None,
            down_cause: None,
            stats: EngineStats {
                total_blocks: 8,
                owned_blocks: 2,
                waiting: 3,
                ..EngineStats::default()
            },
            limits: None,
        }
    }

    fn busy() -> Metrics {
        let metrics = Metrics::new();
        metrics.set_model_name("a\"b");
        metrics.set_length_bounds(100, 200);
        metrics.request_received();
        metrics.request_received();
        metrics.request_succeeded(&RequestObservation {
            validation: Duration::from_millis(1),
            queue: Duration::from_millis(2),
            inference: Duration::from_millis(30),
            total: Duration::from_millis(33),
            time_to_first_token: Some(Duration::from_millis(9)),
            input_tokens: 7,
            generated_tokens: 3,
            max_new_tokens: 20,
            finish: FinishLabel::Length,
        });
        metrics.request_failed(FailureKind::Dropped);
        metrics.token_emitted(None);
        metrics.token_emitted(Some(Duration::from_millis(12)));
        metrics
    }

    #[test]
    fn each_family_has_one_type_and_each_series_one_sample() {
        let page = busy().render(&status());
        let mut families = HashSet::new();
        let mut series = HashSet::new();
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(families.insert(rest.split(' ').next().unwrap()), "{line}");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(series.insert(name), "{line}");
                value.parse::<f64>().unwrap();
                let bare = name.split('{').next().unwrap();
                let family = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|suffix| bare.strip_suffix(suffix).filter(|f| families.contains(f)))
                    .unwrap_or(bare);
                assert!(families.contains(family), "{line} has no TYPE before it");
            }
        }
    }

    #[test]
    fn what_happened_is_counted_once() {
        let page = busy().render(&status());
        for line in [
            "tgi_request_count 2",
            "tgi_request_success 1",
            "tgi_request_failure{err=\"dropped\"} 1",
            "tgi_request_failure{err=\"validation\"} 0",
            "tgi_request_input_length_sum 7",
            "tgi_request_input_length_bucket{le=\"6\"} 0",
            "tgi_request_input_length_bucket{le=\"7\"} 1",
            "tgi_request_duration_count 1",
            "tgi_request_skipped_tokens_bucket{le=\"+Inf\"} 0",
            "tgi_queue_size 3",
            "vllm:kv_cache_usage_perc{model_name=\"a\\\"b\",engine=\"0\"} 0.25",
            "vllm:request_success_total{model_name=\"a\\\"b\",engine=\"0\",finished_reason=\"length\"} 1",
            "vllm:request_success_total{model_name=\"a\\\"b\",engine=\"0\",finished_reason=\"abort\"} 1",
            "vllm:generation_tokens_total{model_name=\"a\\\"b\",engine=\"0\"} 2",
            "vllm:inter_token_latency_seconds_bucket{model_name=\"a\\\"b\",engine=\"0\",le=\"0.025\"} 1",
        ] {
            assert!(
                page.lines().any(|found| found == line),
                "{line} is not in\n{page}"
            );
        }
    }

    #[test]
    fn every_name_of_the_compatibility_surface_is_there() {
        let page = busy().render(&status());
        for name in [
            "tgi_request_count",
            "tgi_request_success",
            "tgi_request_failure",
            "tgi_batch_inference_count",
            "tgi_batch_inference_success",
            "tgi_batch_inference_failure",
            "tgi_batch_concat",
            "tgi_queue_size",
            "tgi_batch_current_size",
            "tgi_batch_current_max_tokens",
            "tgi_batch_max_total_tokens",
            "tgi_batch_total_tokens",
            "tgi_request_duration",
            "tgi_request_validation_duration",
            "tgi_request_queue_duration",
            "tgi_request_inference_duration",
            "tgi_request_mean_time_per_token_duration",
            "tgi_request_input_length",
            "tgi_request_generated_tokens",
            "tgi_request_max_new_tokens",
            "tgi_request_skipped_tokens",
            "tgi_batch_next_size",
            "tgi_batch_inference_duration",
            "tgi_batch_forward_duration",
            "tgi_batch_decode_duration",
            "tgi_batch_filter_duration",
            "tgi_batch_concat_duration",
        ] {
            assert!(page.contains(&format!("# TYPE {name} ")), "{name}");
        }
    }
}
