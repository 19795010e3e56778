//! The engine: the only owner of the scheduler and of the workers' streams.
//!
//! Requests reach it through [`EngineHandle`] and hear back through a [`SequenceStream`]; the launcher
//! reaches it through the control socket. Nothing else touches sequences, blocks or slots, so there is no lock
//! around them. What it decides is in [`core`], without clock and sockets; the task around it has those.

mod buffer;
mod config;
mod control;
pub mod core;
mod group;
mod handle;
mod masks;
mod meter;
#[cfg(feature = "planted-bugs")]
pub mod planted;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
mod status;
mod task;
mod thread;
mod validated;

pub use self::core::EngineEnd;
pub(crate) use config::bound_flags;
pub use config::{EngineConfig, Watchdog};
pub use control::{ControlSocket, LauncherLink};
pub use handle::{
    Command, CommandQueue, EngineHandle, FlushedCache, Interruption, SequenceEvent, SequenceStream,
    SubmitFailure, SubmittedSequence,
};
pub use masks::{DeskOrder, MaskDesk, MaskReady, MaskWanted};
pub use meter::{StepMeter, Work};
pub use status::{EngineStats, EngineStatus, HealthVerdict, ModelLimits};
pub use thread::RunningEngine;
pub use validated::InvalidSequence;
