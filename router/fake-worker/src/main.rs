//! `fake-worker`: stands in for `python -m headrace.worker`, with the same flags.

use anyhow::Context;
use clap::Parser;
use headrace_fake_worker::{Script, WorkerOptions, serve_until_dead};
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

/// A worker with a made-up model, for tests and for measuring the front alone.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The model's document: its vocabulary size and context length are used.
    #[arg(long)]
    document: Option<PathBuf>,
    /// This rank.
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// Ranks of the group.
    #[arg(long, default_value_t = 1)]
    world_size: u32,
    /// Where to listen.
    #[arg(long)]
    socket: PathBuf,
    /// Not used: the ranks of a made-up model have nothing to tell each other.
    #[arg(long)]
    rendezvous: Option<PathBuf>,
    /// Not used.
    #[arg(long)]
    compute_threads: Option<u32>,
    /// Read end of a pipe: when it closes, the worker ends.
    #[arg(long)]
    parent_fd: Option<i32>,
    /// Not used.
    #[arg(long)]
    device: Option<String>,
    /// Not used.
    #[arg(long)]
    log_level: Option<String>,
    /// Vocabulary size without a document.
    #[arg(long, default_value_t = 1000)]
    vocab_size: u32,
    /// Context length without a document.
    #[arg(long, default_value_t = 4096)]
    max_position_embeddings: u32,
    /// KV blocks.
    #[arg(long, default_value_t = 4096)]
    num_blocks: u32,
    /// Steps accepted before the first has answered.
    #[arg(long, default_value_t = 2)]
    max_steps_in_flight: u32,
    /// Timing, faults and outputs as JSON.
    #[arg(long, env = "HEADRACE_FAKE_SCRIPT")]
    script: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = serde_json::json!({
                "level": "ERROR", "target": "headrace.worker", "message": format!("{error:#}"),
            });
            // Standard error may be closed; the exit code says it too.
            let _ =
                std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let script: Script = match &arguments.script {
        Some(text) => serde_json::from_str(text).context("--script")?,
        None => Script::default(),
    };
    let mut options = WorkerOptions {
        rank: arguments.rank,
        world_size: arguments.world_size,
        vocab_size: arguments.vocab_size,
        max_position_embeddings: arguments.max_position_embeddings,
        num_blocks: arguments.num_blocks,
        max_steps_in_flight: arguments.max_steps_in_flight,
    };
    if let Some(path) = &arguments.document {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let document: serde_json::Value =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        let number = |key: &str| {
            document[key]
                .as_u64()
                .and_then(|value| u32::try_from(value).ok())
                .with_context(|| format!("{}: {key}", path.display()))
        };
        options.vocab_size = number("vocab_size")?;
        options.max_position_embeddings = number("max_position_embeddings")?;
    }
    let parent = async {
        match arguments.parent_fd {
            None => std::future::pending().await,
            Some(descriptor) => parent_gone(descriptor).await,
        }
    };
    tokio::select! {
        outcome = serve_until_dead(&arguments.socket, options, script, || ()) => Ok(outcome?),
        outcome = parent => outcome,
    }
}

/// Ends when the last writer of the pipe is gone.
async fn parent_gone(descriptor: i32) -> anyhow::Result<()> {
    // Opened anew by its name, which needs no unsafe code. Not joined at the end: the thread may still be reading.
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("parent".to_owned())
        .spawn(move || {
            let outcome = std::fs::File::open(format!("/proc/self/fd/{descriptor}"))
                .and_then(|mut pipe| pipe.read_to_end(&mut Vec::new()));
            // The receiver lives as long as the process serves.
            let _ = sender.send(outcome);
        })?;
    receiver
        .await?
        .with_context(|| format!("--parent-fd {descriptor}"))?;
    Ok(())
}
