//! The page of `/metrics`.

use super::exposition::Exposition;
use super::instrument::Histogram;
use super::{FailureKind, FinishLabel, Metrics, StepInstruments, StepMethod};
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
            let value = self
                .failures
                .get(kind as usize)
                .map_or(0, super::Counter::get);
            page.sample("tgi_request_failure", &format!("err=\"{label}\""), value);
        }
        let durations: [(&str, &str, &Histogram); 5] = [
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
        ];
        for (name, help, histogram) in durations {
            page.family(name, "histogram", help);
            page.histogram(name, "", histogram);
        }
        if let Some(lengths) = self.lengths.get() {
            let lengths: [(&str, &str, &Histogram); 3] = [
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
            ];
            for (name, help, histogram) in lengths {
                page.family(name, "histogram", help);
                page.histogram(name, "", histogram);
            }
        }
        let name = "tgi_request_skipped_tokens";
        page.family(name, "histogram", "Tokens a step that speculation added.");
        page.histogram(name, "", &self.skipped_tokens);
    }

    fn render_steps(&self, page: &mut Exposition) {
        type Read = fn(&StepInstruments) -> u64;
        let counters: [(&str, &str, Read); 3] = [
            ("tgi_batch_inference_count", "Steps sent.", |step| {
                step.count.get()
            }),
            (
                "tgi_batch_inference_success",
                "Steps that succeeded.",
                |step| step.success.get(),
            ),
            (
                "tgi_batch_inference_failure",
                "Steps that failed.",
                |step| step.failure.get(),
            ),
        ];
        for (name, help, read) in counters {
            page.family(name, "counter", help);
            for ((_, label), step) in StepMethod::ALL.iter().zip(&self.steps) {
                page.sample(name, &format!("method=\"{label}\""), read(step));
            }
        }
        type Pick = for<'a> fn(&'a StepInstruments) -> &'a Histogram;
        let durations: [(&str, &str, Pick); 4] = [
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
        for (name, help, pick) in durations {
            page.family(name, "histogram", help);
            for ((_, label), step) in StepMethod::ALL.iter().zip(&self.steps) {
                page.histogram(name, &format!("method=\"{label}\""), pick(step));
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
        let name = "tgi_batch_concat_duration";
        page.family(
            name,
            "histogram",
            "The worker's seconds of taking sequences into slots.",
        );
        page.histogram(name, "method=\"decode\"", &self.join_duration);
        let name = "tgi_batch_next_size";
        page.family(name, "histogram", "Rows of a step that sequences entered.");
        page.histogram(name, "", &self.next_size);
    }

    fn render_engine(&self, page: &mut Exposition, status: &EngineStatus) {
        let stats = &status.stats;
        let pool = status.limits.map_or(0, |limits| limits.pool_tokens);
        let block_size = status
            .limits
            .map_or(0, |limits| u64::from(limits.block_size));
        let gauges = [
            ("tgi_queue_size", "Sequences that wait.", stats.waiting),
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
                stats.owned_blocks * block_size,
            ),
        ];
        for (name, help, value) in gauges {
            page.single((name, "gauge", help), "", value);
        }
    }

    fn render_vllm(&self, page: &mut Exposition, status: &EngineStatus) {
        let stats = &status.stats;
        let model = self.model_name.get().map_or("", String::as_str);
        let labels = format!("model_name=\"{model}\",engine=\"0\"");
        let used = stats.total_blocks - stats.free_blocks.min(stats.total_blocks);
        let in_use = used - stats.cached_blocks.min(used);
        let usage = if stats.total_blocks == 0 {
            0.0
        } else {
            in_use as f64 / stats.total_blocks as f64
        };
        page.single(
            ("vllm:num_requests_running", "gauge", "Sequences in slots."),
            &labels,
            stats.running,
        );
        page.single(
            ("vllm:num_requests_waiting", "gauge", "Sequences that wait."),
            &labels,
            stats.waiting,
        );
        page.single(
            (
                "vllm:kv_cache_usage_perc",
                "gauge",
                "Share of blocks that running sequences hold.",
            ),
            &labels,
            usage,
        );
        let counters = [
            (
                "vllm:prefix_cache_queries_total",
                "Prompt tokens looked up in the prefix cache.",
                stats.prefix_query_tokens,
            ),
            (
                "vllm:prefix_cache_hits_total",
                "Prompt tokens found in the prefix cache.",
                stats.prefix_hit_tokens,
            ),
            (
                "vllm:num_preemptions_total",
                "Sequences moved back to the queue.",
                stats.preemptions,
            ),
            (
                "vllm:prompt_tokens_total",
                "Prompt tokens.",
                self.prompt_tokens.get(),
            ),
            (
                "vllm:generation_tokens_total",
                "Output tokens.",
                self.generation_tokens.get(),
            ),
        ];
        for (name, help, value) in counters {
            page.single((name, "counter", help), &labels, value);
        }
        let name = "vllm:request_success_total";
        page.family(name, "counter", "Requests that ended, by reason.");
        for (finish, label) in FinishLabel::ALL {
            let value = self
                .finishes
                .get(finish as usize)
                .map_or(0, super::Counter::get);
            page.sample(
                name,
                &format!("{labels},finished_reason=\"{label}\""),
                value,
            );
        }
        let histograms: [(&str, &str, &Histogram); 4] = [
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
        ];
        for (name, help, histogram) in histograms {
            page.family(name, "histogram", help);
            page.histogram(name, &labels, histogram);
        }
    }
}
