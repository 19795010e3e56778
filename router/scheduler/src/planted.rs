//! Mistakes that engines have shipped, to be turned on one at a time: the simulation must find each.
//!
//! With the cargo feature `planted-bugs` a test selects one for its thread; without it nothing is compiled in.

/// Makes the enum `Bug` of a crate with the feature `planted-bugs`, and the switch that a thread has for it: `select`, and
/// `is` for the code that makes the mistake.
#[macro_export]
#[doc(hidden)]
macro_rules! planted_bugs {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// One mistake.
        #[cfg_attr(
            not(feature = "planted-bugs"),
            expect(unreachable_pub, reason = "with the feature it is for the tests")
        )]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])+ $name,)+
        }

        #[cfg(feature = "planted-bugs")]
        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }

        #[cfg(feature = "planted-bugs")]
        std::thread_local! {
            static SELECTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
        }

        /// Turns one mistake on in this thread, and every other off.
        #[cfg(feature = "planted-bugs")]
        pub fn select(bug: Option<Bug>) {
            SELECTED.set(bug);
        }

        /// Whether this mistake is turned on.
        #[cfg(feature = "planted-bugs")]
        pub(crate) fn is(bug: Bug) -> bool {
            SELECTED.get() == Some(bug)
        }

        /// Whether this mistake is turned on.
        #[cfg(not(feature = "planted-bugs"))]
        pub(crate) const fn is(_: Bug) -> bool {
            false
        }
    };
}

planted_bugs! {
    /// A tail that entered the tree is given back as well.
    DoubleFree,
    /// A block of a cancelled sequence is given back while a step in flight may write it.
    FreeInFlight,
    /// Ending in mid-step loses a private block.
    CancelLeaksBlock,
    /// Ending in mid-step leaves the tree's nodes held.
    CancelLeaksHold,
    /// A step that failed keeps holding what it copied from.
    FailedStepLeaksHold,
    /// Blocks enter the tree when the step that fills them is sent.
    PublishBeforeAnswer,
    /// What a failed row wrote enters the tree.
    PublishFailedRow,
    /// A twin of a block that is in the tree is given back and stays in its sequence's table.
    FreeTwinInTable,
    /// Lookups see every namespace.
    NamespaceIgnored,
    /// A flush leaves what is held in reach of later lookups.
    FlushKeepsHeld,
    /// A cancelled sequence is still taken for one that computes its next block.
    CancelledStaysListed,
    /// The copy of a partly equal block takes one token more than agrees.
    PartialCopyTooLong,
    /// The source of a copy may be evicted before the copy is made.
    CopySourceNotHeld,
    /// The last id may come from the cache, so that nothing is computed to sample from.
    LastIdFromCache,
    /// A step has one token more than its budget.
    BudgetOffByOne,
    /// One slot more than the cap on sequences.
    SequenceCapIgnored,
    /// A step more in flight than agreed.
    StepInFlightTooMany,
    /// A failed step's lengths stay advanced.
    FailedStepAdvances,
    /// A skipped step counts as done.
    SkippedStepCounts,
    /// The step after a failed one does not name it.
    FailureNotNamed,
    /// Of a failed step with several rows the last ends.
    FailedStepBlamesLast,
    /// An answer is taken for the oldest step, whatever step it names.
    StaleAnswerTaken,
    /// A misfit is passed for ever.
    SkipAheadUnbounded,
    /// What waits never rises.
    AgeingOff,
    /// What waits too long is served by class.
    OverdueIgnored,
    /// The tenant that had most is next.
    FairnessInverted,
    /// Idle time is credit: a tenant that comes back is not lifted to those that wait.
    IdleTenantCredited,
    /// The lowest class first.
    ClassesInverted,
    /// A preempted sequence loses what it sampled.
    PreemptedLosesIds,
    /// A preempted sequence waits behind those that never ran.
    PreemptedLosesOrder,
    /// The oldest is preempted for the newest.
    OldestPreempted,
    /// A dead group's newest sequence is forgotten.
    DeadGroupLosesSequence,
    /// A token for a sequence that is over.
    TokenAfterEnd,
    /// Two ends.
    SecondEnd,
    /// What was not told yet of a cancelled sequence is told.
    ToldAfterCancel,
    /// Steps are planned beyond the last id.
    PlannedBeyondEnd,
    /// An end id counts one token too early.
    MinTokensOffByOne,
    /// A deadline is not looked at again once its sequence waits.
    DeadlineIgnored,
    /// The most recently used leaf is evicted.
    LruInverted,
    /// The highest retention is evicted first.
    RetentionInverted,
    /// Two sequences compute the same block at once.
    SharingIgnored,
    /// Prompt logprobs are told again after a preemption.
    LogprobsToldTwice,
    /// A mask's position counts from one.
    MaskPositionOffByOne,
    /// A paused sequence goes on.
    PauseIgnored,
    /// What crashes the workers again and again is not isolated.
    CrashesNotIsolated,
    /// Past its token, a suspect stays isolated.
    SuspectNeverCleared,
    /// A crash of one half keeps the other half as suspects.
    SuspectsNotNarrowed,
    /// While suspects are isolated all others run beside them.
    IsolatedBesideOthers,
    /// One crash alone ends a sequence, an outside kill too.
    FirstCrashAloneEnds,
    /// Slots of finished sequences are not told to the workers.
    FinishedSlotNotTold,
}
