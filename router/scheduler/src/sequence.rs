//! A sequence, and the table that all of them live in.
//!
//! Lengths of a running sequence, in tokens, always `answered <= planned < upper`:
//! - `answered`: leading ids whose KV is known to be complete (the lower bound);
//! - `planned`: the same once every step already sent has answered;
//! - `upper`: ids once every step already sent has answered (the upper bound).

use std::ops::{Index, IndexMut};
use std::time::Duration;

use crate::crash::CrashRecord;
use crate::planted::{self, Bug};
use crate::queue::{AccountIndex, OVERDUE};
use crate::tree::NodeId;
use crate::types::{
    BlockId, FinishReason, GroupId, Retention, SamplingParams, SequenceId, SequenceRequest, Slot,
    StopConditions, Time, TokenId,
};

/// Where a sequence is in the [`SequenceTable`].
pub(crate) type SequenceIndex = u32;

/// Class and arrival. Of running sequences, the class is the one in which they were admitted; the last is
/// preempted first.
pub(crate) type Rank = (i32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In the queue.
    Waiting,
    /// In a slot.
    Running,
    /// Over, but steps already sent may still touch its blocks.
    Ending,
}

#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each read by its own name"
)]
pub(crate) struct Sequence {
    pub(crate) id: SequenceId,
    pub(crate) phase: Phase,
    /// Prompt, then everything sampled.
    pub(crate) ids: Vec<TokenId>,
    pub(crate) prompt_length: usize,
    pub(crate) answered: usize,
    pub(crate) planned: usize,
    /// Ids that steps already sent will sample.
    pub(crate) pending_ids: usize,
    /// Steps already sent that name it.
    pub(crate) unanswered: u32,
    pub(crate) slot: Slot,
    /// KV blocks in order; as many as `planned` needs.
    pub(crate) table: Vec<BlockId>,
    /// Leading blocks of the table that the tree has, these or their twins.
    pub(crate) published: usize,
    /// The tree's node where those end, held.
    pub(crate) node: NodeId,
    /// The workers know it.
    pub(crate) announced: bool,
    /// Its first step also copies a block and has not answered.
    pub(crate) copying: bool,
    /// A row failed: nothing more of it is published.
    pub(crate) tainted: bool,
    /// Its owner takes nothing more for now.
    pub(crate) paused: bool,
    /// Of the sequences that crash isolation runs apart from the others.
    pub(crate) isolated: bool,
    /// What crashes it was in, as long as that matters.
    pub(crate) crashes: Option<Box<CrashRecord>>,
    /// Was in a step that failed whole: retried alone until a step succeeds.
    pub(crate) retried: bool,
    pub(crate) group: GroupId,
    pub(crate) tenant: u64,
    pub(crate) priority: i32,
    pub(crate) deadline: Option<Time>,
    /// Its tenant's, in its class.
    pub(crate) account: AccountIndex,
    /// Entered a slot once.
    pub(crate) admitted: bool,
    /// Submitted, if it had never run: times in a slot do not count as waiting.
    pub(crate) waits_since: Time,
    /// How long it had waited when it entered its slot.
    pub(crate) waited: Duration,
    /// When it moves up in the queue, while it waits.
    pub(crate) next_rise: Option<Time>,
    /// Times that a cached prefix passed it at the front.
    pub(crate) passes: u32,
    /// Ran before and waits again: nothing passes it.
    pub(crate) returned: bool,
    /// When it was first seen, in this wait, that its blocks cannot be had.
    pub(crate) misfit_since: Option<Time>,
    /// When it first waited, in this wait, for blocks that others are computing.
    pub(crate) deferred_since: Option<Time>,
    /// Its entry among the blocks being computed in its group.
    pub(crate) computing: Option<u64>,
    /// It has entered a step, and `Started` says so.
    pub(crate) started: bool,
    /// Prompt positions whose logprobs were told.
    pub(crate) reported_logprobs: usize,
    /// The largest `answered` ever, to count what is computed twice.
    pub(crate) high_water: usize,
    pub(crate) wants_prompt_logprobs: bool,
    /// Every id that it samples waits for a mask.
    pub(crate) constrained: bool,
    pub(crate) namespace: u64,
    pub(crate) retention: Retention,
    pub(crate) rank: Rank,
    pub(crate) submitted_at: Time,
    pub(crate) stop: StopConditions,
    pub(crate) sampling: SamplingParams,
}

impl Sequence {
    pub(crate) fn new(request: SequenceRequest, arrival: u64, now: Time) -> Self {
        // The lowest number is the queue's own.
        let priority = request.priority.max(OVERDUE + 1);
        Self {
            id: request.id,
            phase: Phase::Waiting,
            prompt_length: request.prompt.len(),
            ids: request.prompt.to_vec(),
            answered: 0,
            planned: 0,
            pending_ids: 0,
            unanswered: 0,
            slot: 0,
            table: Vec::new(),
            published: 0,
            node: 0,
            announced: false,
            copying: false,
            tainted: false,
            paused: false,
            isolated: false,
            crashes: None,
            retried: false,
            group: GroupId(0),
            tenant: request.tenant,
            priority,
            deadline: request.deadline,
            account: 0,
            admitted: false,
            waits_since: now,
            waited: Duration::ZERO,
            next_rise: None,
            passes: 0,
            returned: false,
            misfit_since: None,
            deferred_since: None,
            computing: None,
            started: false,
            reported_logprobs: 0,
            high_water: 0,
            wants_prompt_logprobs: request.prompt_logprobs,
            constrained: request.constrained,
            namespace: request.namespace,
            retention: request.retention,
            rank: (priority, arrival),
            submitted_at: now,
            stop: request.stop,
            sampling: request.sampling,
        }
    }

    /// Ids once every step already sent has answered.
    pub(crate) fn upper(&self) -> usize {
        self.ids.len() + self.pending_ids
    }

    /// Whether steps already sent will bring the last id it may have.
    pub(crate) fn is_fully_planned(&self) -> bool {
        let beyond = usize::from(planted::is(Bug::PlannedBeyondEnd));
        self.upper() - self.prompt_length >= self.stop.max_new_tokens as usize + beyond
    }

    /// Whether it waits for something else than the queue, and steps for everybody have no row of it.
    pub(crate) fn stands_aside(&self) -> bool {
        self.paused || self.isolated
    }

    /// Ids without KV in any step yet; 1 when it decodes.
    pub(crate) fn uncomputed(&self) -> usize {
        self.upper() - self.planned
    }

    /// Prompt positions whose logprobs a row over `ids[start .. start + num_tokens]` gives.
    pub(crate) fn prompt_logprobs_of(&self, start: usize, num_tokens: usize) -> usize {
        (start + num_tokens)
            .min(self.prompt_length - 1)
            .saturating_sub(start)
    }

    /// Whether its next row gives logprobs of the prompt.
    pub(crate) fn is_being_scored(&self) -> bool {
        let told = self.planned.max(self.reported_logprobs);
        self.wants_prompt_logprobs && told + 1 < self.prompt_length
    }

    /// How many leading ids may come from the cache: all but the last, which must be computed to sample,
    /// and no prompt position whose logprobs are still to come.
    pub(crate) fn cacheable(&self) -> usize {
        let all_but_last = self.ids.len() - usize::from(!planted::is(Bug::LastIdFromCache));
        if self.wants_prompt_logprobs && self.reported_logprobs + 1 < self.prompt_length {
            self.reported_logprobs.min(all_but_last)
        } else {
            all_but_last
        }
    }

    /// Whether the last id ends it.
    pub(crate) fn finish_reason(&self) -> Option<FinishReason> {
        let output = self.ids.len() - self.prompt_length;
        let early = usize::from(planted::is(Bug::MinTokensOffByOne));
        let last = *self.ids.last()?;
        // The first `min_tokens` output ids end nothing.
        if output + early > self.stop.min_tokens as usize {
            if self.stop.eos_token_ids.contains(&last) {
                return Some(FinishReason::Eos);
            }
            if self.stop.stop_token_ids.contains(&last) {
                return Some(FinishReason::StopToken(last));
            }
        }
        (output >= self.stop.max_new_tokens as usize).then_some(FinishReason::Length)
    }

    /// Forgets everything that belongs to a group: back to what the queue holds.
    pub(crate) fn leave_group(&mut self) {
        self.phase = Phase::Waiting;
        self.answered = 0;
        self.planned = 0;
        self.pending_ids = 0;
        self.unanswered = 0;
        self.table = Vec::new();
        self.published = 0;
        self.announced = false;
        self.copying = false;
        self.returned = !planted::is(Bug::PreemptedLosesOrder);
        self.computing = None;
    }
}

/// Sequences by index. An index is valid from `insert` to `remove`.
#[derive(Debug, Default)]
pub(crate) struct SequenceTable {
    entries: Vec<Option<Sequence>>,
    vacant: Vec<SequenceIndex>,
}

impl SequenceTable {
    pub(crate) fn insert(&mut self, sequence: Sequence) -> SequenceIndex {
        if let Some(index) = self.vacant.pop() {
            self.entries[index as usize] = Some(sequence);
            index
        } else {
            self.entries.push(Some(sequence));
            narrow(self.entries.len() - 1)
        }
    }

    pub(crate) fn remove(&mut self, index: SequenceIndex) {
        let removed = self.entries[index as usize].take();
        assert!(removed.is_some(), "sequence {index} is removed twice");
        self.vacant.push(index);
    }

    pub(crate) fn get(&self, index: SequenceIndex) -> Option<&Sequence> {
        self.entries.get(index as usize)?.as_ref()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SequenceIndex, &Sequence)> {
        (0..)
            .zip(&self.entries)
            .filter_map(|(index, entry)| Some((index, entry.as_ref()?)))
    }
}

impl Index<SequenceIndex> for SequenceTable {
    type Output = Sequence;

    #[expect(
        clippy::expect_used,
        reason = "indices are kept only while their sequence lives; a stale one is a bug"
    )]
    fn index(&self, index: SequenceIndex) -> &Sequence {
        self.entries[index as usize]
            .as_ref()
            .expect("a live sequence")
    }
}

impl IndexMut<SequenceIndex> for SequenceTable {
    #[expect(
        clippy::expect_used,
        reason = "indices are kept only while their sequence lives; a stale one is a bug"
    )]
    fn index_mut(&mut self, index: SequenceIndex) -> &mut Sequence {
        self.entries[index as usize]
            .as_mut()
            .expect("a live sequence")
    }
}

/// A count or index as the step carries it.
#[expect(
    clippy::expect_used,
    reason = "ids, blocks and sequences are bounded by u32 settings; more is a bug"
)]
pub(crate) fn narrow(count: usize) -> u32 {
    u32::try_from(count).expect("fewer than 2^32")
}
