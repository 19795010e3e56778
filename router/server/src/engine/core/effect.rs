//! What goes into the core, and what it wants done.

use crate::engine::handle::Command;
use crate::engine::masks::{DeskOrder, MaskReady};
use headrace_control::{Progress, ToLauncher, ToRouter};
use headrace_grammar::Mask;
use headrace_scheduler::{Slot, StepPlan, Time};
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
    /// The mask desk has a mask, or knows that there is none.
    Mask(MaskReady),
    /// What [`super::EngineCore::next_wake`] gave has come.
    Wake,
    /// The watchdog's period has passed.
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
    /// Tell the mask desk.
    Desk(DeskOrder),
    /// Give every rank that samples this mask, for a row that a step sent before announced.
    SendMask {
        /// That step.
        step_id: u64,
        /// Its row.
        slot: Slot,
        /// Index of the output id that it is for.
        position: u32,
        /// The ids that may come.
        mask: Mask,
    },
    /// Tell every rank that a row that announced a mask samples nothing.
    CallOff {
        /// Which step.
        step_id: u64,
        /// Its row.
        slot: Slot,
    },
    /// The group's streams, or its start, are of no more use.
    DropGroup,
    /// Tell the launcher.
    ToLauncher(ToLauncher),
    /// Nothing more is to be done. Open streams are to be closed in good order.
    End(EngineEnd),
}
