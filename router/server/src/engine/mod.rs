//! The engine task: the only owner of the scheduler and of the workers' streams.
//!
//! Requests reach it through [`EngineHandle`] and hear back through a [`SequenceStream`]; the launcher
//! reaches it through the control socket. Nothing else touches sequences, blocks or slots, so there is no lock
//! around them.

mod config;
mod control;
mod group;
mod handle;
mod lifecycle;
mod status;
mod streams;
mod task;
mod thread;
mod validated;

pub use config::{EngineConfig, Watchdog};
pub use control::{ControlSocket, LauncherLink};
pub use handle::{EngineHandle, Interruption, SequenceEvent, SequenceStream, SubmitFailure};
pub use status::{EngineStats, EngineStatus, HealthVerdict, ModelLimits};
pub use task::EngineEnd;
pub use thread::RunningEngine;
pub use validated::InvalidSequence;
