//! headrace-worker-client: the router's side of the step protocol.
//!
//! [`start_group`] takes the addresses of a group's ranks to a [`RunningGroup`]: every rank described, prepared and
//! with an open stream of steps. From there on [`RunningGroup::send`] gives every rank the same step, and
//! [`RunningGroup::next_event`] gives one checked answer when every rank has acknowledged it.

mod connection;
mod description;
mod encode;
mod error;
mod group;
mod masks;
pub mod pb;
mod reader;
mod reply;
mod stages;
mod start;

pub use description::GroupDescription;
pub use encode::encode_step;
pub use error::{StartError, WorkerError};
pub use group::{GroupEvent, RunningGroup, StepReport, StepTimings};
pub use masks::TokenMask;
pub use reader::ReplyReader;
pub use start::{GroupRequest, PrepareStage, StartedGroup, start_group};
