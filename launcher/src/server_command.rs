//! `text-generation-server`: the name under which TGI's users download weights ahead of a start. Its other uses are
//! answered with one line that says what to run instead.

use crate::failure::Failure;
use crate::log::Log;
use crate::model::{DownloadLine, DownloadProgress, HubModel, Place, download_command, locate};
use crate::processes::{Child, Ending, Event, Output, reap, spawn, watch_signals};
use crate::settings::one_line;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The command's name; the file is a copy of the launcher.
const NAME: &str = "text-generation-server";

/// Downloads weights ahead of a start. Models are served by `launcher`.
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100)]
struct ServerCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Download what is needed to serve a model of the hub into the hub's cache.
    DownloadWeights(DownloadFlags),
    /// Refused: workers are started by `launcher` alone.
    Serve(Anything),
    /// Refused: weights are served in the types that their files have.
    Quantize(Anything),
}

/// Whatever TGI takes there.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
struct Anything {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "TGI's switches, each with its opposite"
)]
struct DownloadFlags {
    /// A hub id. A directory or a GGUF file of this machine needs no download.
    model_id: String,
    /// Branch, tag or commit.
    #[arg(long)]
    revision: Option<String>,
    /// Only `.safetensors` is served; another one is refused.
    #[arg(long, default_value = ".safetensors")]
    extension: String,
    /// No effect: nothing is converted.
    #[arg(long)]
    auto_convert: bool,
    /// No effect: nothing is converted.
    #[arg(long)]
    no_auto_convert: bool,
    /// TRACE, DEBUG, INFO, WARNING or ERROR.
    #[arg(long)]
    logger_level: Option<String>,
    /// Log JSON lines instead of text.
    #[arg(long)]
    json_output: bool,
    /// Log text; the default.
    #[arg(long)]
    no_json_output: bool,
    /// No effect: code that comes with a checkpoint is never run.
    #[arg(long)]
    trust_remote_code: bool,
    /// The default.
    #[arg(long)]
    no_trust_remote_code: bool,
    /// Refused: there are no adapters yet.
    #[arg(long)]
    merge_lora: bool,
    /// The default.
    #[arg(long)]
    no_merge_lora: bool,
    /// The Python that downloads. Absent: as for `launcher`.
    #[arg(long, env = "HEADRACE_PYTHON")]
    python: Option<PathBuf>,
}

/// Whether this process was started under the name.
pub(crate) fn is_meant(arguments: &[OsString]) -> bool {
    arguments
        .first()
        .and_then(|program| Path::new(program).file_name())
        .is_some_and(|name| name == NAME)
}

/// Does what the arguments say; the exit code.
pub(crate) fn run(arguments: &[OsString], log: &Log) -> Result<u8, Failure> {
    let command = match ServerCommand::try_parse_from(arguments) {
        Ok(command) => command,
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(Failure::usage(
                "text-generation-server: a subcommand is needed: `text-generation-server download-weights MODEL_ID` \
                 downloads a model of the hub; `launcher --model-id MODEL_ID` serves one",
            ));
        }
        Err(error) if error.use_stderr() => return Err(one_line(&error)),
        Err(help_or_version) => {
            log.plain(help_or_version.render().to_string().trim_end());
            return Ok(0);
        }
    };
    match command.action {
        Action::DownloadWeights(flags) => download(&flags, log),
        Action::Serve(_) => Err(Failure::usage(
            "text-generation-server serve: there are no shards to start by themselves; run `launcher` (or \
             `text-generation-launcher`) with --model-id, which starts its workers itself",
        )),
        Action::Quantize(_) => Err(Failure::usage(
            "text-generation-server quantize: quantising is not supported; weights are served in the types that their \
             files have",
        )),
    }
}

fn download(flags: &DownloadFlags, log: &Log) -> Result<u8, Failure> {
    if flags.extension != ".safetensors" {
        return Err(Failure::usage(format!(
            "--extension {}: only .safetensors files are served",
            flags.extension
        )));
    }
    if flags.merge_lora && !flags.no_merge_lora {
        return Err(Failure::usage("--merge-lora: adapters are not supported"));
    }
    let log = match &flags.logger_level {
        Some(level) => &log.with_level(level).ok_or_else(|| {
            Failure::usage(format!(
                "--logger-level {level}: must be TRACE, DEBUG, INFO, WARNING or ERROR"
            ))
        })?,
        None => log,
    };
    if flags.trust_remote_code && !flags.no_trust_remote_code {
        log.warn(
            "--trust-remote-code has no effect: code that comes with a checkpoint is never run",
        );
    }
    let Place::Hub(id) = locate(&flags.model_id, "MODEL_ID")? else {
        let id = &flags.model_id;
        log.info(&format!("{id} is on this machine: nothing to download"));
        return Ok(0);
    };
    let python = crate::python::find(flags.python.as_deref())?;
    crate::python::check(&python, flags.python.is_some())?;
    let (sender, events) = channel();
    watch_signals(sender.clone())
        .map_err(|error| Failure::new(format!("signals cannot be watched: {error}")))?;
    let model = HubModel {
        id: &id,
        revision: flags.revision.as_deref(),
        cache: None,
    };
    let command = download_command(&python, model, false);
    let child = spawn("download", command, Output::Download, log, &sender)
        .map_err(|error| Failure::new(format!("{}: {error}", python.display())))?;
    follow(&child, &events, &id, log)
}

/// Between the end of the downloader and its last line.
const LAST_LINE: Duration = Duration::from_secs(1);

/// Until the downloader has ended. A signal ends it first.
fn follow(child: &Child, events: &Receiver<Event>, id: &str, log: &Log) -> Result<u8, Failure> {
    let mut progress = DownloadProgress::default();
    let mut signal = None;
    let mut has_said_where = false;
    let mut ending = None;
    loop {
        match ending {
            Some(_) if signal.is_some() => {
                log.end_progress();
                let number = signal.unwrap_or_default();
                return Ok(u8::try_from(128 + number).unwrap_or(1));
            }
            Some(Ending::Exit(0)) if has_said_where => return Ok(0),
            Some(ending) if ending != Ending::Exit(0) => return Err(failed(child, ending)),
            Some(_) | None => {}
        }
        let wait = if ending.is_some() {
            LAST_LINE
        } else {
            Duration::MAX
        };
        let Ok(event) = events.recv_timeout(wait) else {
            return Err(failed(child, Ending::Exit(0)));
        };
        match event {
            Event::Download(DownloadLine::Progress {
                stage,
                file,
                done,
                total,
            }) => {
                let (done, total) = progress.update(file, done, total);
                log.progress(&stage, done, total, "bytes");
            }
            Event::Download(DownloadLine::Done { path, revision, .. }) => {
                log.end_progress();
                let commit = revision.map_or_else(String::new, |commit| format!(" ({commit})"));
                log.info(&format!("{id}{commit} is in {}", path.display()));
                has_said_where = true;
            }
            Event::Stop(number) => {
                signal = Some(number);
                child.signal(Signal::SIGTERM);
            }
            Event::ChildEnded => {
                let mine = reap().into_iter().find(|(pid, _)| *pid == child.pid());
                ending = mine.map(|(_, how)| how).or(ending);
            }
            Event::Download(DownloadLine::Configured { .. })
            | Event::Router(..)
            | Event::RouterSilent(..) => {}
        }
    }
}

/// Its own words, if it ended by itself and said some.
fn failed(child: &Child, ending: Ending) -> Failure {
    child.sweep();
    Failure::new(match child.last_words() {
        Some(words) if matches!(ending, Ending::Exit(1..)) => words,
        _ => child.describe(ending),
    })
}
