//! The page as a scraper reads it.

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
    metrics.tokens_emitted(2);
    metrics.tokens_followed(Duration::from_millis(12), 1);
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

/// TGI's names: type, labels, and for histograms the number of bounds (0: any) and the last one.
const SURFACE: [(&str, &str, &[&str], usize, f64); 27] = [
    ("tgi_request_count", "counter", &[""], 0, 0.0),
    ("tgi_request_success", "counter", &[""], 0, 0.0),
    (
        "tgi_request_failure",
        "counter",
        &[
            "err=\"overloaded\"",
            "err=\"validation\"",
            "err=\"template\"",
            "err=\"incomplete\"",
            "err=\"generation\"",
            "err=\"dropped\"",
        ],
        0,
        0.0,
    ),
    ("tgi_batch_inference_count", "counter", &METHODS, 0, 0.0),
    ("tgi_batch_inference_success", "counter", &METHODS, 0, 0.0),
    ("tgi_batch_inference_failure", "counter", &METHODS, 0, 0.0),
    (
        "tgi_batch_concat",
        "counter",
        &[
            "reason=\"backpressure\"",
            "reason=\"wait_exceeded\"",
            "reason=\"chunking\"",
        ],
        0,
        0.0,
    ),
    ("tgi_queue_size", "gauge", &[""], 0, 0.0),
    ("tgi_batch_current_size", "gauge", &[""], 0, 0.0),
    ("tgi_batch_current_max_tokens", "gauge", &[""], 0, 0.0),
    ("tgi_batch_max_total_tokens", "gauge", &[""], 0, 0.0),
    ("tgi_batch_total_tokens", "gauge", &[""], 0, 0.0),
    ("tgi_request_duration", "histogram", &[""], 35, LAST_SECONDS),
    (
        "tgi_request_validation_duration",
        "histogram",
        &[""],
        35,
        LAST_SECONDS,
    ),
    (
        "tgi_request_queue_duration",
        "histogram",
        &[""],
        35,
        LAST_SECONDS,
    ),
    (
        "tgi_request_inference_duration",
        "histogram",
        &[""],
        35,
        LAST_SECONDS,
    ),
    (
        "tgi_request_mean_time_per_token_duration",
        "histogram",
        &[""],
        35,
        LAST_SECONDS,
    ),
    ("tgi_request_input_length", "histogram", &[""], 100, 100.0),
    (
        "tgi_request_generated_tokens",
        "histogram",
        &[""],
        100,
        200.0,
    ),
    ("tgi_request_max_new_tokens", "histogram", &[""], 100, 200.0),
    ("tgi_request_skipped_tokens", "histogram", &[""], 0, 0.0),
    ("tgi_batch_next_size", "histogram", &[""], 1024, 1024.0),
    (
        "tgi_batch_inference_duration",
        "histogram",
        &METHODS,
        35,
        LAST_SECONDS,
    ),
    (
        "tgi_batch_forward_duration",
        "histogram",
        &METHODS,
        35,
        LAST_SECONDS,
    ),
    (
        "tgi_batch_decode_duration",
        "histogram",
        &METHODS,
        35,
        LAST_SECONDS,
    ),
    (
        "tgi_batch_filter_duration",
        "histogram",
        &METHODS,
        35,
        LAST_SECONDS,
    ),
    (
        "tgi_batch_concat_duration",
        "histogram",
        &["method=\"decode\""],
        35,
        LAST_SECONDS,
    ),
];
const METHODS: [&str; 2] = ["method=\"prefill\"", "method=\"decode\""];
/// 0.00015 × 1.5³⁴.
const LAST_SECONDS: f64 = 145.611;

/// The value of a series.
fn value(page: &str, series: &str) -> f64 {
    page.lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("no {series}"))
        .parse()
        .unwrap()
}

/// Dashboards made for TGI find each name, type, label and bucket: no summary, no gauge left out.
#[test]
fn case_9_9_every_series_of_the_compatibility_surface_is_there() {
    let page = busy().render(&status());
    for (name, kind, labels, bounds, last) in SURFACE {
        let head = format!("# TYPE {name} {kind}");
        assert!(page.lines().any(|line| line == head), "{head}");
        for label in labels {
            let braced = if label.is_empty() {
                String::new()
            } else {
                format!("{{{label}}}")
            };
            if kind != "histogram" {
                value(&page, &format!("{name}{braced}"));
                continue;
            }
            let comma = if label.is_empty() { "" } else { "," };
            let start = format!("{name}_bucket{{{label}{comma}le=\"");
            let found: Vec<f64> = page
                .lines()
                .filter_map(|line| line.strip_prefix(&start)?.split('"').next())
                .filter_map(|bound| bound.parse::<f64>().ok())
                .filter(|bound| bound.is_finite())
                .collect();
            assert!(!found.is_empty(), "{name} has buckets");
            if bounds > 0 {
                assert_eq!(found.len(), bounds, "{name}");
                let greatest = found.last().unwrap();
                assert!((greatest / last - 1.0).abs() < 1e-3, "{name}: {greatest}");
            }
            value(&page, &format!("{name}_sum{braced}"));
            let count = value(&page, &format!("{name}_count{braced}"));
            let all = value(&page, &format!("{start}+Inf\"}}"));
            assert!((count - all).abs() < 1e-9, "{name}");
        }
    }
}

#[test]
fn the_queue_is_shown() {
    let mut status = status();
    status.stats.waiting_tokens = 70;
    status.stats.drained_tokens_per_second = 900;
    status.stats.paused = 2;
    status.stats.suspects = 7;
    status.stats.skipped_ahead = 3;
    status.stats.deferrals = 4;
    status.stats.deadlines_exceeded = 5;
    status.stats.isolations = 8;
    status.stats.recomputed_tokens = 6;
    let page = busy().render(&status);
    assert!(!page.contains("headrace_prefill_share"), "no target is set");
    status.stats.prefill_share = Some(32);
    let page_with_target = busy().render(&status);
    for line in [
        "headrace_queue_tokens 70",
        "headrace_queue_drained_tokens_per_second 900",
        "headrace_paused_sequences 2",
        "headrace_suspects 7",
        "headrace_prefill_share_tokens 32",
        "headrace_skipped_ahead_total 3",
        "headrace_deferrals_total 4",
        "headrace_deadlines_exceeded_total 5",
        "headrace_isolations_total 8",
        "headrace_recomputed_tokens_total 6",
    ] {
        assert!(
            page_with_target.lines().any(|found| found == line),
            "{line}"
        );
    }
}

#[test]
fn the_books_of_the_kv_pool_are_shown() {
    let mut status = status();
    status.stats.free_blocks = 5;
    status.stats.cached_blocks = 1;
    let page = busy().render(&status);
    for line in [
        "headrace_kv_blocks_free 5",
        "headrace_kv_blocks_owned 2",
        "headrace_kv_blocks_cached 1",
        "headrace_kv_blocks_total 8",
    ] {
        assert!(page.lines().any(|found| found == line), "{line}");
    }
}
