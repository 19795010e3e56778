//! The engine's thread.

use super::config::EngineConfig;
use super::control::LauncherLink;
use super::core::{EngineCore, EngineEnd};
use super::handle::EngineHandle;
use super::meter::StepMeter;
use super::task::EngineTask;
use crate::metrics::Metrics;
use headrace_control::ToRouter;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// An engine that runs.
#[derive(Debug)]
pub struct RunningEngine {
    handle: EngineHandle,
    end: oneshot::Receiver<EngineEnd>,
    thread: JoinHandle<()>,
    meter: Arc<StepMeter>,
}

impl RunningEngine {
    /// Starts the engine's thread. `control` is what the launcher says after `Configure`.
    pub fn start(
        config: EngineConfig,
        control: mpsc::UnboundedReceiver<ToRouter>,
        launcher: LauncherLink,
        metrics: Arc<Metrics>,
    ) -> std::io::Result<Self> {
        let meter = Arc::new(StepMeter::default());
        let tick = config.watchdog.period;
        let core = EngineCore::new(config, metrics);
        let (handle, commands) = core.connect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let task = EngineTask::new(tick, Arc::clone(&meter), core, commands, control, launcher)?;
        let (sender, end) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("engine".to_owned())
            .spawn(move || {
                let end = runtime.block_on(task.run());
                // The process may be ending already.
                let _ = sender.send(end);
            })?;
        Ok(Self {
            handle,
            end,
            thread,
            meter,
        })
    }

    /// The way in.
    pub fn handle(&self) -> EngineHandle {
        self.handle.clone()
    }

    /// Where its thread's time goes.
    pub fn meter(&self) -> Arc<StepMeter> {
        Arc::clone(&self.meter)
    }

    /// Waits for the engine's end; an error is the message of its panic.
    pub async fn ended(self) -> Result<EngineEnd, String> {
        if let Ok(end) = self.end.await {
            return Ok(end);
        }
        // Its sender was dropped without a word: it panicked and is about to be gone.
        let panic = match self.thread.join() {
            Ok(()) => return Err("the engine ended without a word".to_owned()),
            Err(panic) => panic,
        };
        let words = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!(
            "the engine panicked: {}",
            words.unwrap_or("no message")
        ))
    }
}
