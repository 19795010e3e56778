//! Flags that are refused by name, flags that contradict each other, flags that do nothing.

use crate::failure::Failure;
use crate::flags::Flags;

/// What cannot be done, or cannot be meant.
pub(super) fn refuse(flags: &Flags) -> Result<(), Failure> {
    refuse_unsupported(flags)?;
    refuse_zeros(flags)?;
    refuse_lengths(flags)?;
    refuse_contradictions(flags)
}

fn refuse_unsupported(flags: &Flags) -> Result<(), Failure> {
    let model = &flags.model;
    let refused = [
        (
            model
                .quantize
                .as_ref()
                .map(|value| format!("--quantize {value}")),
            "quantising is not supported; weights are served in the types that their files have",
        ),
        (
            model
                .kv_cache_dtype
                .as_ref()
                .map(|value| format!("--kv-cache-dtype {value}")),
            "not supported; the KV cache has the type that the workers compute in",
        ),
        (
            model
                .speculate
                .filter(|length| *length > 0)
                .map(|value| format!("--speculate {value}")),
            "speculative decoding is not supported",
        ),
        (
            model
                .lora_adapters
                .as_ref()
                .map(|value| format!("--lora-adapters {value}")),
            "adapters are not supported",
        ),
        (
            model
                .trust_remote_code
                .then(|| "--trust-remote-code".to_owned()),
            "code that comes with a checkpoint is never run",
        ),
    ];
    for (flag, reason) in refused {
        if let Some(flag) = flag {
            return Err(Failure::usage(format!("{flag}: {reason}")));
        }
    }
    Ok(())
}

fn refuse_zeros(flags: &Flags) -> Result<(), Failure> {
    let (limits, batching, workers) = (&flags.limits, &flags.batching, &flags.workers);
    let is_zero = |value: Option<u32>| value == Some(0);
    let zeros = [
        (
            "--max-concurrent-requests",
            limits.max_concurrent_requests == 0,
        ),
        ("--max-best-of", limits.max_best_of == 0),
        ("--max-input-tokens", is_zero(limits.max_input_tokens)),
        ("--max-input-length", is_zero(limits.max_input_length)),
        ("--max-total-tokens", is_zero(limits.max_total_tokens)),
        ("--max-client-batch-size", limits.max_client_batch_size == 0),
        ("--payload-limit", limits.payload_limit == 0),
        (
            "--completions-default-max-tokens",
            is_zero(limits.completions_default_max_tokens),
        ),
        (
            "--max-batch-prefill-tokens",
            is_zero(batching.max_batch_prefill_tokens),
        ),
        (
            "--max-batch-total-tokens",
            is_zero(batching.max_batch_total_tokens),
        ),
        ("--max-batch-size", is_zero(batching.max_batch_size)),
        ("--max-queued-tokens", batching.max_queued_tokens == Some(0)),
        ("--stall-timeout", flags.server.stall_timeout == 0),
        ("--validation-workers", batching.validation_workers == 0),
        ("--num-shard", is_zero(workers.num_shard)),
        ("--compute-threads", is_zero(workers.compute_threads)),
    ];
    match zeros.into_iter().find(|(_, is_zero)| *is_zero) {
        Some((flag, _)) => Err(Failure::usage(format!("{flag} 0: must be above 0"))),
        None => Ok(()),
    }
}

/// Lengths of requests against each other and against the KV cache.
fn refuse_lengths(flags: &Flags) -> Result<(), Failure> {
    let (limits, batching) = (&flags.limits, &flags.batching);
    if limits.max_input_tokens.is_some() && limits.max_input_length.is_some() {
        let line = "--max-input-length and --max-input-tokens are the same: give only one";
        return Err(Failure::usage(line));
    }
    let max_input = limits.max_input_tokens.or(limits.max_input_length);
    if let (Some(input), Some(total)) = (max_input, limits.max_total_tokens)
        && input >= total
    {
        let line = format!("--max-input-tokens {input}: must be below --max-total-tokens {total}");
        return Err(Failure::usage(line));
    }
    if limits.max_total_tokens == Some(1) {
        let line = "--max-total-tokens 1: must be at least 2, a token of prompt and one of output";
        return Err(Failure::usage(line));
    }
    if let Some(batch) = batching.max_batch_total_tokens {
        if batch
            .div_ceil(batching.block_size)
            .saturating_mul(batching.block_size)
            < 2
        {
            let line = format!(
                "--max-batch-total-tokens {batch}: must be at least 2, a token of prompt and one of output"
            );
            return Err(Failure::usage(line));
        }
        if let Some(input) = max_input
            && input >= batch
        {
            let line = format!(
                "--max-input-tokens {input}: must be below --max-batch-total-tokens {batch}"
            );
            return Err(Failure::usage(line));
        }
        let parts = [
            ("--max-total-tokens", limits.max_total_tokens),
            (
                "--max-batch-prefill-tokens",
                batching.max_batch_prefill_tokens,
            ),
        ];
        for (flag, tokens) in parts {
            if let Some(tokens) = tokens
                && tokens > batch
            {
                let line =
                    format!("{flag} {tokens}: must not be above --max-batch-total-tokens {batch}");
                return Err(Failure::usage(line));
            }
        }
    }
    Ok(())
}

fn refuse_contradictions(flags: &Flags) -> Result<(), Failure> {
    let model = &flags.model;
    match (model.rope_scaling, model.rope_factor) {
        (Some(_), None) => return Err(Failure::usage("--rope-scaling: needs --rope-factor")),
        (None, Some(_)) => return Err(Failure::usage("--rope-factor: needs --rope-scaling")),
        (Some(_), Some(factor)) if !(factor >= 1.0 && factor.is_finite()) => {
            let line = format!("--rope-factor {factor}: must be at least 1");
            return Err(Failure::usage(line));
        }
        _ => {}
    }
    if flags.workers.sharded == Some(false)
        && let Some(num_shard) = flags.workers.num_shard.filter(|ranks| *ranks > 1)
    {
        let line = format!("--num-shard {num_shard}: contradicts --sharded false");
        return Err(Failure::usage(line));
    }
    if flags.workers.sharded == Some(true) && flags.workers.num_shard == Some(1) {
        return Err(Failure::usage("--sharded true: needs --num-shard above 1"));
    }
    if flags.server.lenient_grammar && flags.server.disable_grammar_support {
        let line = "--lenient-grammar: contradicts --disable-grammar-support";
        return Err(Failure::usage(line));
    }
    let has_keys = !flags.server.api_key.is_empty()
        || flags.server.api_key_file.is_some()
        || flags.server.admin_api_key.is_some();
    if flags.server.guard_info_and_metrics && !has_keys {
        let line = "--guard-info-and-metrics: needs --api-key, --api-key-file or --admin-api-key";
        return Err(Failure::usage(line));
    }
    let unusable = |origin: &&String| !origin.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
    if let Some(origin) = flags.server.cors_allow_origin.iter().find(unusable) {
        let line = format!("--cors-allow-origin {origin}: {ORIGIN}");
        return Err(Failure::usage(line));
    }
    if flags
        .server
        .prometheus_port
        .is_some_and(|port| port != 0 && port == flags.server.port)
    {
        let port = flags.server.port;
        return Err(Failure::usage(format!(
            "--prometheus-port {port}: is --port too"
        )));
    }
    Ok(())
}

/// What an origin looks like in a browser's request.
const ORIGIN: &str =
    "must be `*`, or a scheme, a host and perhaps a port, as in https://example.org:8443";

/// Origins that no browser sends, one line each.
pub(super) fn origins_of_nobody(flags: &Flags) -> Vec<String> {
    let is_sent = |origin: &str| {
        let host = origin
            .split_once("://")
            .filter(|(scheme, _)| !scheme.is_empty());
        let is_plain = |host: &str| !host.is_empty() && !host.contains(['/', ',', '?', '#']);
        matches!(origin, "*" | "null") || host.is_some_and(|(_, host)| is_plain(host))
    };
    let origins = flags.server.cors_allow_origin.iter();
    origins
        .filter(|origin| !is_sent(origin))
        .map(|origin| {
            format!("--cors-allow-origin {origin}: no browser is let in by it; it {ORIGIN}")
        })
        .collect()
}

/// What is served with another number than the flag's.
pub(super) fn rounded(flags: &Flags) -> Option<String> {
    let batching = &flags.batching;
    let tokens = batching.max_batch_total_tokens?;
    let whole = tokens.checked_next_multiple_of(batching.block_size)?;
    (whole != tokens).then(|| {
        format!(
            "--max-batch-total-tokens {tokens} is rounded up to {whole}: whole blocks of {} tokens",
            batching.block_size
        )
    })
}

/// One line for each flag that was given and does nothing. `given` tells by clap's id.
pub(super) fn without_effect(flags: &Flags, given: &impl Fn(&str) -> bool) -> Vec<String> {
    let compatibility = &flags.compatibility;
    let candidates = [
        ("cuda_graphs", "there are no CUDA graphs yet"),
        (
            "shard_uds_path",
            "the workers' sockets are in a private directory",
        ),
        ("master_addr", "all workers are on this machine"),
        ("master_port", "all workers are on this machine"),
        ("otlp_endpoint", "traces are not exported yet"),
        ("otlp_service_name", "traces are not exported yet"),
        ("watermark_gamma", "requests with `watermark` are refused"),
        ("watermark_delta", "requests with `watermark` are refused"),
        ("ngrok_authtoken", "no tunnel is opened"),
        ("ngrok_edge", "no tunnel is opened"),
    ];
    let mut lines: Vec<String> = candidates
        .into_iter()
        .filter(|(id, _)| given(id))
        .map(|(id, reason)| line(id, reason))
        .collect();
    if compatibility.disable_custom_kernels {
        lines.push(line(
            "disable_custom_kernels",
            "kernels are chosen for the machine",
        ));
    }
    if compatibility.ngrok {
        lines.push(line("ngrok", "no tunnel is opened"));
    }
    if compatibility.usage_stats != "off" {
        lines.push(line("usage_stats", "nothing is ever sent"));
    }
    lines
}

fn line(id: &str, reason: &str) -> String {
    format!("--{} has no effect: {reason}", id.replace('_', "-"))
}
