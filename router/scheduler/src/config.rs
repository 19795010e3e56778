//! What the scheduler is told at start, and what it tells about itself.

use crate::policy::PolicyConfig;
use crate::types::{GroupId, Slot, Time};

/// Limits, fixed for the scheduler's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    /// Tokens a KV block, `>= 1`.
    pub block_size: u32,
    /// Most tokens computed in one step, `>= 1`.
    pub max_batch_tokens: u32,
    /// Most sequences in a group's slots, `>= 1`.
    pub max_sequences: u32,
    /// Longest sequence, prompt and output, in tokens.
    pub max_total_tokens: u32,
    /// Whether finished blocks are kept for later sequences.
    pub prefix_caching: bool,
    /// Most sequences waiting; one more is refused.
    pub max_waiting_sequences: usize,
    /// Most prompt tokens waiting; one more sequence is refused, unless nothing waits.
    pub max_waiting_tokens: u64,
    /// Steps sent before the first has answered, `>= 1`.
    pub max_steps_in_flight: u32,
    /// The rules of the queue.
    pub policy: PolicyConfig,
}

/// A snapshot. Counters with "total" in their text only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Sequences waiting for a slot, preempted and isolated ones included.
    pub waiting: usize,
    /// Ids of the waiting sequences.
    pub waiting_tokens: u64,
    /// When the one that waits and came first was submitted.
    pub oldest_waiting: Option<Time>,
    /// Ids that leave the queue in a second, of late; 0 while that is unknown. `waiting_tokens` over this is the
    /// time that a refused client should stay away.
    pub drained_tokens_per_second: u64,
    /// Sequences in slots that are not over.
    pub running: usize,
    /// Paused sequences, in slots or not. Without a slot they do not count as waiting.
    pub paused: usize,
    /// Sequences that are over and wait for steps already sent.
    pub ending: usize,
    /// Sequences that are isolated because the workers crashed with them and that are not past the token where they
    /// did; 0: no isolation.
    pub suspects: usize,
    /// Blocks that hold nothing.
    pub free_blocks: usize,
    /// Blocks that a sequence or an unanswered step needs.
    pub owned_blocks: usize,
    /// Blocks that only the prefix tree holds: they can be taken at any time.
    pub cached_blocks: usize,
    /// Blocks of all groups that are up.
    pub total_blocks: usize,
    /// Steps sent and not answered.
    pub steps_in_flight: usize,
    /// Most prefill tokens beside decoding rows in a step, by the target for its time; `None` without a target and
    /// before anything decoded. Of several groups the least.
    pub prefill_share: Option<usize>,
    /// Steps planned, total.
    pub steps: u64,
    /// Preemptions for want of blocks, total.
    pub preemptions: u64,
    /// Sequences admitted before one in front of them that did not fit, total.
    pub skipped_ahead: u64,
    /// Sequences that waited for blocks which another was computing, total.
    pub deferrals: u64,
    /// Sequences whose deadline passed while they waited, total.
    pub deadlines_exceeded: u64,
    /// Times that sequences were isolated after crashes, while none were, total.
    pub isolations: u64,
    /// Ids looked up in the prefix tree at admission, total.
    pub prefix_query_tokens: u64,
    /// Ids found there, total.
    pub prefix_hit_tokens: u64,
    /// Tokens computed a second time after a preemption or restart, total.
    pub recomputed_tokens: u64,
}

/// The workers' answer does not fit what was asked of them. Nothing was changed; the caller ends the group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    /// The group is not up.
    #[error("an answer for group {0:?}, which is not up")]
    UnknownGroup(GroupId),
    /// Not the oldest unanswered step.
    #[error("an answer for step {got}; the next one due is {due:?}")]
    UnexpectedStep {
        /// The oldest unanswered step.
        due: Option<u64>,
        /// The step answered.
        got: u64,
    },
    /// `Skipped` without a failed step before it, or anything else behind one.
    #[error("step {step_id} was answered {outcome}, which cannot follow the answers before it")]
    UnexpectedOutcome {
        /// Which step.
        step_id: u64,
        /// Its outcome's name.
        outcome: &'static str,
    },
    /// As many results as rows are due.
    #[error("step {step_id} has {due} rows and {got} results")]
    RowCount {
        /// Which step.
        step_id: u64,
        /// Rows asked for.
        due: usize,
        /// Results given.
        got: usize,
    },
    /// Results come in the plan's order.
    #[error("step {step_id}: a result for slot {got} where slot {due} is due")]
    RowSlot {
        /// Which step.
        step_id: u64,
        /// The plan's slot.
        due: Slot,
        /// The result's slot.
        got: Slot,
    },
    /// One id for a row that samples, none for one that does not. None also for a masked row whose sequence is
    /// over.
    #[error("step {step_id}, slot {slot}: {got} ids where {due} are due")]
    TokenCount {
        /// Which step.
        step_id: u64,
        /// Which row.
        slot: Slot,
        /// Ids due.
        due: usize,
        /// Ids given.
        got: usize,
    },
    /// One entry for every prompt id that follows a computed one, when asked for.
    #[error("step {step_id}, slot {slot}: {got} prompt logprobs where {due} are due")]
    PromptLogprobCount {
        /// Which step.
        step_id: u64,
        /// Which row.
        slot: Slot,
        /// Entries due.
        due: usize,
        /// Entries given.
        got: usize,
    },
}
