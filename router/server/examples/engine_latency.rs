//! How fast the front half is: the engine, gRPC over a Unix socket and a fake worker that takes no time (or a given one).
//!
//! `cargo run --example engine_latency [-- STEP_MICROS [STEPS_IN_FLIGHT]]` prints, for 1, 64 and 256 sequences, and for
//! 256 of which 16 are constrained (a bitset over the vocabulary for each of their ids):
//! - steps and tokens a second;
//! - how long the worker waited for a step after its last answer. With one step in flight that is both ways of the socket,
//!   decoding, `complete`, `plan` and encoding; with two, the default, what is left of it;
//! - the time between two tokens of one sequence, as its reader saw it: the time of a step and what comes on top;
//! - where the engine thread's time of a step goes. What is not in the table is waiting and the way in: the system's read,
//!   HTTP/2, protobuf and the check of the answer.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "an example prints its figures"
)]

#[path = "../../dialect/tests/tiny_tokenizer/mod.rs"]
mod tiny_tokenizer;

use headrace_control::{ModelDocument, ToRouter, TokenizerSource, Weights};
use headrace_fake_worker::{FakeWorker, Script, WorkerOptions};
use headrace_grammar::{CompiledGrammar, GrammarCompiler, GrammarSource};
use headrace_router::engine::{
    EngineConfig, EngineHandle, LauncherLink, RunningEngine, SequenceEvent, StepMeter, Watchdog,
    Work,
};
use headrace_router::metrics::Metrics;
use headrace_scheduler::SequenceRequest;
use headrace_text::Tokenizer;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const VOCAB: u32 = 50_000;

/// Of 256 sequences.
const CONSTRAINED: u32 = 16;

/// Longer than any output here: the constraint binds to the end.
const GRAMMAR: &str = r"[^\n]{20000}";

/// What runs.
#[derive(Clone, Copy)]
struct Load {
    sequences: u32,
    /// So many of them.
    constrained: u32,
    /// Each.
    tokens: u32,
    step_micros: u64,
    in_flight: u32,
}

fn grammar() -> CompiledGrammar {
    let tokenizer = Tokenizer::from_bytes(tiny_tokenizer::json().to_string().as_bytes()).unwrap();
    let ends = [tiny_tokenizer::EOS, tiny_tokenizer::END];
    let compiler = GrammarCompiler::new(&tokenizer, &ends, VOCAB, false).unwrap();
    let source = GrammarSource::Regex(GRAMMAR.to_owned());
    compiler.compile(&source).unwrap()
}

fn main() {
    let argument = |index| std::env::args().nth(index)?.parse().ok();
    let step_micros = argument(1).unwrap_or(0);
    let in_flight = argument(2).and_then(|count| u32::try_from(count).ok());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    for (sequences, constrained, tokens) in [
        (1, 0, 4000),
        (64, 0, 1500),
        (256, 0, 600),
        (256, CONSTRAINED, 600),
    ] {
        let load = Load {
            sequences,
            constrained,
            tokens,
            step_micros,
            in_flight: in_flight.unwrap_or(2),
        };
        runtime.block_on(measure(load));
    }
}

async fn measure(load: Load) {
    let Load {
        sequences,
        constrained,
        tokens,
        step_micros,
        in_flight,
    } = load;
    let grammar = grammar();
    let folder = tempfile::tempdir().unwrap();
    let options = WorkerOptions {
        vocab_size: VOCAB,
        max_position_embeddings: 8192,
        num_blocks: 32_768,
        ..WorkerOptions::default()
    };
    let script = Script {
        step_micros,
        ..Script::default()
    };
    let worker = FakeWorker::start(folder.path().join("worker.sock"), options, script).unwrap();
    let (control, receiver) = mpsc::unbounded_channel();
    let (link, _outgoing) = LauncherLink::channel();
    let engine =
        RunningEngine::start(config(in_flight), receiver, link, Arc::new(Metrics::new())).unwrap();
    let handle = engine.handle();
    control.send(ToRouter::Model(Box::new(document()))).unwrap();
    handle.services_ready();
    let addresses = vec![worker.address()];
    control
        .send(ToRouter::GroupUp {
            group: 0,
            epoch: 1,
            addresses,
        })
        .unwrap();
    while !handle.status().ready {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let begun = Instant::now();
    let readers: Vec<_> = (0..sequences)
        .map(|index| {
            let grammar = (index < constrained).then(|| grammar.clone());
            tokio::spawn(run(handle.clone(), index, tokens, grammar))
        })
        .collect();
    let mut gaps = Vec::new();
    for reader in readers {
        let seen = reader.await.unwrap();
        // The first one's tokens, while all run.
        if gaps.is_empty() {
            gaps = seen.windows(2).map(|pair| pair[1] - pair[0]).collect();
        }
    }
    gaps.sort_unstable();
    let seconds = begun.elapsed().as_secs_f64();
    let rows = usize::try_from(sequences).unwrap();
    let mut waits: Vec<Duration> = worker
        .take_waits()
        .into_iter()
        .filter(|(count, _)| *count == rows)
        .map(|(_, wait)| wait)
        .collect();
    waits.sort_unstable();
    let steps = worker.steps() as f64;
    println!(
        "{sequences} sequences, {constrained} of them constrained, step {step_micros} µs, {in_flight} in flight: {:.0} steps/s, {:.0} tokens/s",
        steps / seconds,
        f64::from(sequences) * f64::from(tokens) / seconds,
    );
    print_spread("the worker waited", &waits);
    print_spread("between tokens", &gaps);
    print_meter(&engine.meter());
}

/// Of sorted times.
fn print_spread(what: &str, times: &[Duration]) {
    let at = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(index).copied().unwrap_or_default().as_secs_f64() * 1e6
    };
    println!(
        "  {what}: median {:.1} µs, p90 {:.1}, p99 {:.1} ({} of them)",
        at(50),
        at(90),
        at(99),
        times.len()
    );
}

fn print_meter(meter: &StepMeter) {
    let answers = meter.answers().max(1) as f64;
    print!("  engine thread, µs a step:");
    let mut sum = 0.0;
    for (work, name) in Work::ALL {
        let micros = meter.spent(work).as_secs_f64() * 1e6 / answers;
        sum += micros;
        print!(" {name} {micros:.1},");
    }
    println!(" in all {sum:.1}");
}

/// When each token was read.
async fn run(
    handle: EngineHandle,
    index: u32,
    tokens: u32,
    grammar: Option<CompiledGrammar>,
) -> Vec<Instant> {
    let prompt: Vec<u32> = (0..16)
        .map(|position| (index * 31 + position) % VOCAB)
        .collect();
    let request = SequenceRequest::greedy(handle.next_sequence_id(), prompt, tokens);
    let mut stream = handle.submit(request, grammar).await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = stream.recv().await {
        if let SequenceEvent::Token(_) = event {
            seen.push(Instant::now());
        }
    }
    seen
}

fn config(max_steps_in_flight: u32) -> EngineConfig {
    EngineConfig {
        block_size: 16,
        max_batch_tokens: 8192,
        max_sequences: 256,
        max_total_tokens: None,
        max_input_tokens: None,
        max_blocks: None,
        kv_cache_bytes: None,
        poison_fresh_blocks: false,
        prefix_caching: true,
        max_waiting_sequences: 1000,
        max_waiting_tokens: 1 << 30,
        max_steps_in_flight,
        policy: headrace_scheduler::PolicyConfig::default(),
        stall_timeout: Duration::from_mins(1),
        watchdog: Watchdog::default(),
    }
}

fn document() -> ModelDocument {
    ModelDocument {
        model_id: "fake".to_owned(),
        revision: None,
        pipeline_tag: None,
        weights: Weights::Safetensors { files: Vec::new() },
        config: serde_json::Value::Null,
        tokenizer: TokenizerSource::TokenizerJson {
            path: PathBuf::new(),
        },
        tokenizer_config: None,
        chat_template: None,
        generation_config: None,
        dtype: "float32".to_owned(),
        max_position_embeddings: 8192,
        vocab_size: VOCAB,
    }
}
