//! The engine task: the only owner of the scheduler and of the workers' streams.
//!
//! Requests reach it through [`EngineHandle`] and hear back through a [`SequenceStream`]; the launcher
//! reaches it through the control socket. Nothing else touches sequences, blocks or slots, so there is no lock
//! around them.

#![allow(dead_code, reason = "the task that uses it follows in the next commit")]

mod handle;
mod status;

pub use handle::{EngineHandle, Interruption, SequenceEvent, SequenceStream, SubmitFailure};
pub use status::{EngineStats, EngineStatus, HealthVerdict, ModelLimits};
