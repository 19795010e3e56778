//! What goes into the core, and what it wants done.

use crate::engine::handle::Command;
use headrace_control::{Progress, ToLauncher, ToRouter};
use headrace_scheduler::{StepPlan, Time};
use headrace_worker_client::{GroupDescription, GroupRequest, StepReport};

/// One thing that happened. Group inputs carry the epoch of the start that they come from, so that what a dead start
/// had still to say changes nothing.
#[derive(Debug)]
pub enum Input {
    /// The launcher spoke.
    Control(ToRouter),
    /// A request came, left, or read on; or the services are built.
    Command(Command),
    /// How far a start is.
    Progress {
        /// Which start.
        epoch: u64,
        /// How far.
        progress: Progress,
    },
    /// A start is over.
    Started {
        /// Which start.
        epoch: u64,
        /// What came up, or why nothing did.
        outcome: Result<GroupFacts, StartFailure>,
    },
    /// Every rank has answered the oldest step in flight.
    Answer {
        /// Which start.
        epoch: u64,
        /// The answer.
        report: Box<StepReport>,
    },
    /// The streams of a group that was up broke, or a rank broke the protocol.
    Broken {
        /// Which start.
        epoch: u64,
        /// Why, for the log.
        cause: String,
    },
    /// Time has passed.
    Tick {
        /// The rank of the group that has been silent longest, and since when.
        quietest: Option<(usize, Time)>,
    },
}

/// A group that came up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupFacts {
    /// What its ranks said.
    pub description: GroupDescription,
    /// KV blocks to use.
    pub num_blocks: u32,
    /// What to require after a restart.
    pub prepared_blocks: u32,
}

/// A group that did not come up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// Why, in one line.
    pub cause: String,
    /// Starting again would meet it again.
    pub is_final: bool,
}

/// How the engine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEnd {
    /// A drain is over.
    Drained,
    /// The launcher is gone.
    LauncherGone,
}

/// What the core wants done, in this order.
#[derive(Debug)]
pub enum Effect {
    /// Connect to these workers and prepare them, in the background; [`Input::Started`] is the answer.
    StartGroup {
        /// Names this start.
        epoch: u64,
        /// One a rank.
        addresses: Vec<String>,
        /// What they are to hold.
        request: GroupRequest,
    },
    /// Give every rank this step.
    SendStep(StepPlan),
    /// The group's streams, or its start, are of no more use.
    DropGroup,
    /// Tell the launcher.
    ToLauncher(ToLauncher),
    /// Nothing more is to be done. Open streams are to be closed in good order.
    End(EngineEnd),
}
