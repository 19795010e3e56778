//! How the queue and the scheduler do.

use super::Exposition;
use crate::engine::EngineStats;

/// headrace's own gauges and counters of the scheduler.
pub(super) fn render(page: &mut Exposition, counts: &EngineStats) {
    for (name, help, value) in [
        (
            "headrace_queue_tokens",
            "Tokens to compute for the sequences that wait.",
            counts.waiting_tokens,
        ),
        (
            "headrace_queue_drained_tokens_per_second",
            "Tokens that leave the queue in a second, of late; 0 while that is unknown.",
            counts.drained_tokens_per_second,
        ),
        (
            "headrace_paused_sequences",
            "Sequences paused for clients that do not read.",
            counts.paused,
        ),
        (
            "headrace_suspects",
            "Sequences of which one may have killed the workers: they run apart. 0: none is looked for.",
            counts.suspects,
        ),
    ] {
        page.single((name, "gauge", help), "", value);
    }
    if let Some(tokens) = counts.prefill_share {
        let name = "headrace_prefill_share_tokens";
        let help =
            "Most prompt tokens beside decoding sequences in a step, for the sake of their pace.";
        page.single((name, "gauge", help), "", tokens);
    }
    for (name, help, value) in [
        (
            "headrace_skipped_ahead_total",
            "Sequences admitted before one in front of them that did not fit.",
            counts.skipped_ahead,
        ),
        (
            "headrace_deferrals_total",
            "Sequences that waited for a prefix which another was computing.",
            counts.deferrals,
        ),
        (
            "headrace_deadlines_exceeded_total",
            "Sequences whose timeout passed while they waited.",
            counts.deadlines_exceeded,
        ),
        (
            "headrace_isolations_total",
            "Times that sequences were run apart to find which kills the workers.",
            counts.isolations,
        ),
        (
            "headrace_recomputed_tokens_total",
            "Tokens computed again after a preemption or a restart.",
            counts.recomputed_tokens,
        ),
    ] {
        page.single((name, "counter", help), "", value);
    }
}
