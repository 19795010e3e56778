//! Mistakes that engines have shipped, to be turned on one at a time: the simulation must find each.
//!
//! With the cargo feature `planted-bugs` a test selects one for its thread; without it nothing is compiled in.

headrace_scheduler::planted_bugs! {
    /// A client that leaves is forgotten, its sequence is not.
    CancelKeepsRunning,
    /// An answer counts, whichever start it comes from.
    StaleAnswerTaken,
    /// A broken stream ends the group, whichever start it comes from.
    StaleBreakKills,
    /// A drain still admits.
    DrainAdmits,
    /// A drain is over when nothing runs, whatever waits.
    DrainForgetsQueued,
    /// What the server ends is not told so.
    LastWordNotTold,
    /// What a drain or a lost group cuts off stays in the books.
    InterruptionKeepsRunning,
    /// A dead group's sequences stay where they were.
    DeathKeepsBooks,
    /// A start that failed is not tried again.
    FailedStartForgotten,
    /// A group that hangs is left alone.
    WatchdogSleeps,
    /// A group that answers counts as hung.
    WatchdogBarks,
    /// A step is sent twice.
    StepSentTwice,
    /// A token is told twice.
    TokenToldTwice,
    /// A paused sequence stays paused when its reader reads on.
    ResumeLost,
    /// A sequence whose reader is slow goes on.
    PauseLost,
    /// A reader that reads nothing is kept for ever.
    StallKept,
    /// The row of a sequence that is over waits for its mask.
    MaskNotCalledOff,
    /// A mask is sent, whichever start wanted it and however its step ended.
    StaleMaskSent,
    /// The masks of a dead group are still called off.
    DeadMasksKept,
    /// The mask desk does not hear of an id.
    IdNotAccepted,
    /// A deadline that passes is not told.
    ExpiredNotTold,
    /// The first token is not told.
    FirstTokenLost,
}
