//! headrace-scheduler: which tokens of which sequences run in the next step, and which KV blocks hold them.
//!
//! A pure state machine (sans-IO): no sockets, clock, randomness or text. Time comes in as an argument, and
//! the same calls give the same answers. A [`Scheduler`] is a dispatcher (what waits, the queue's bounds) and
//! one group for each worker group (running sequences, slots, block pool, prefix tree).
//!
//! The caller's loop: `submit` and `cancel` as clients come and go, `plan` until it gives `None`, send each
//! plan to the workers, `complete` with each answer, in order.

mod config;
mod crash;
mod dispatcher;
mod group;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod policy;
mod pool;
mod queue;
mod scheduler;
mod sequence;
mod tree;
mod types;

pub use config::{ProtocolViolation, SchedulerConfig, Stats};
pub use policy::{PolicyConfig, QueueOrder, StepPace};
pub use scheduler::Scheduler;
pub use types::*;
