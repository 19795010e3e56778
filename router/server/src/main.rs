//! `router`: HTTP in front, the workers behind. Started by `launcher`, which tells it everything over an inherited socket.

use anyhow::{Context, anyhow};
use clap::Parser;
use headrace_control::{CONTROL_FD_VARIABLE, ModelDocument, RouterConfig, ToLauncher, ToRouter};
use headrace_router::app::{self, AppState};
use headrace_router::engine::{
    ControlSocket, EngineConfig, EngineEnd, EngineHandle, LauncherLink, RunningEngine,
};
use headrace_router::metrics::Metrics;
use headrace_router::services::ModelServices;
use headrace_router::{listen, logging, shutdown};
use std::io::Write;
use std::os::fd::RawFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// For the last messages to reach the launcher.
const LAST_MESSAGES: Duration = Duration::from_secs(2);

/// headrace's HTTP server and scheduler. Not started by hand: `launcher` starts it, tells it how to serve and which
/// model, and passes its flags on.
#[derive(Debug, Parser)]
#[command(name = "router", version)]
struct Arguments {}

fn main() -> ExitCode {
    let Arguments {} = Arguments::parse();
    match start() {
        Ok(code) => code,
        Err(error) => {
            // Standard error may be closed; the exit code says it too.
            let _ = writeln!(std::io::stderr(), "router: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<ExitCode> {
    let variable = std::env::var(CONTROL_FD_VARIABLE)
        .map_err(|_| anyhow!("it is started by `launcher`, which sets {CONTROL_FD_VARIABLE}"))?;
    let socket: RawFd = variable
        .parse()
        .with_context(|| CONTROL_FD_VARIABLE.to_owned())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let ControlSocket {
        link,
        messages,
        writer,
    } = ControlSocket::open(socket)?;
    let code = runtime.block_on(run(messages, link));
    // What still runs on it has nobody to answer to.
    runtime.shutdown_timeout(Duration::from_millis(100));
    wait_for_last_messages(&writer);
    Ok(code)
}

/// From the first message to the end.
async fn run(mut messages: mpsc::UnboundedReceiver<ToRouter>, link: LauncherLink) -> ExitCode {
    let Some(ToRouter::Configure(config)) = messages.recv().await else {
        return ExitCode::FAILURE;
    };
    logging::start(&config.log_level);
    match Box::pin(serve(*config, messages, &link)).await {
        Ok(EngineEnd::Drained) => {
            tracing::info!("drained");
            link.send(ToLauncher::Drained);
            ExitCode::SUCCESS
        }
        Ok(EngineEnd::LauncherGone) => {
            tracing::warn!("the launcher is gone");
            ExitCode::FAILURE
        }
        Err(error) => {
            let cause = format!("{error:#}");
            // The launcher's last line; here it would be told twice.
            tracing::debug!("{cause}");
            // A bug may not be met again by the next process; a port or a file would be.
            let is_final = !error.is::<EnginePanic>();
            link.send(ToLauncher::Failed { cause, is_final });
            ExitCode::FAILURE
        }
    }
}

/// The engine's thread panicked; with it is gone what this process is for.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct EnginePanic(String);

async fn serve(
    config: RouterConfig,
    messages: mpsc::UnboundedReceiver<ToRouter>,
    link: &LauncherLink,
) -> anyhow::Result<EngineEnd> {
    shutdown::prepare_process()?;
    app::check_config(&config)?;
    let listener = listen::bind(&config.hostname, config.port, "--port").await?;
    let metrics_listener = match config.prometheus_port {
        Some(port) => Some(listen::bind(&config.hostname, port, "--prometheus-port").await?),
        None => None,
    };
    link.send(ToLauncher::Listening {
        address: listener.local_addr()?.to_string(),
    });

    let metrics = Arc::new(Metrics::new());
    let (control, engine_control) = mpsc::unbounded_channel();
    let engine = RunningEngine::start(
        EngineConfig::new(&config),
        engine_control,
        link.clone(),
        Arc::clone(&metrics),
    )?;
    let stall_timeout = Duration::from_secs(config.stall_timeout_seconds);
    let state = AppState::new(engine.handle(), config, Arc::clone(&metrics))?;
    tokio::spawn(relay(messages, control, state.clone(), link.clone()));

    let (stop, stopped) = watch::channel(false);
    let until_stopped = |mut stopped: watch::Receiver<bool>| async move {
        // The sender outlives the servers.
        let _ = stopped.wait_for(|stop| *stop).await;
    };
    let app = app::router(state);
    let until = until_stopped(stopped.clone());
    let server = tokio::spawn(listen::serve(listener, app, stall_timeout, until));
    if let Some(listener) = metrics_listener {
        let app = listen::metrics_only(engine.handle(), metrics);
        let until = until_stopped(stopped);
        tokio::spawn(listen::serve(listener, app, stall_timeout, until));
    }

    let end = engine.ended().await.map_err(EnginePanic)?;
    if end == EngineEnd::Drained {
        stop.send_replace(true);
        shutdown::finish_responses(server).await;
    }
    Ok(end)
}

/// Passes the launcher's messages to the engine, and reads the model's files when it is named. Ends when the launcher
/// is gone, and the engine with it.
async fn relay(
    mut messages: mpsc::UnboundedReceiver<ToRouter>,
    control: mpsc::UnboundedSender<ToRouter>,
    state: AppState,
    link: LauncherLink,
) {
    while let Some(message) = messages.recv().await {
        if let ToRouter::Model(document) = &message {
            let (document, state, link) = (document.clone(), state.clone(), link.clone());
            tokio::task::spawn_blocking(move || load_model(*document, &state, &link));
        }
        if control.send(message).is_err() {
            return;
        }
    }
}

/// Tokenizer, template and defaults; on a thread that may block.
fn load_model(document: ModelDocument, state: &AppState, link: &LauncherLink) {
    let begun = Instant::now();
    match ModelServices::load(document) {
        Ok(services) => {
            let engine: &EngineHandle = state.engine();
            state.set_model(services);
            engine.services_ready();
            tracing::info!(
                milliseconds = logging::milliseconds(begun.elapsed()),
                "the tokenizer is ready"
            );
        }
        Err(error) => {
            tracing::debug!("{error}");
            link.send(ToLauncher::Failed {
                cause: error.to_string(),
                is_final: true,
            });
        }
    }
}

/// The writer ends when every sender is gone; one that is stuck with the launcher must not hold the process.
fn wait_for_last_messages(writer: &JoinHandle<()>) {
    let deadline = Instant::now() + LAST_MESSAGES;
    while !writer.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
}
