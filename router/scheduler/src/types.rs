//! The values that cross the scheduler's boundary. Plain data: no I/O, no clock, no protobuf.

use std::sync::Arc;
use std::time::Duration;

/// A token id, below the model's vocabulary size.
pub type TokenId = u32;

/// Index of a KV block in the pool of a group's workers.
pub type BlockId = u32;

/// Row of the workers' slot table.
pub type Slot = u32;

/// Monotonic time since an arbitrary origin. The scheduler never reads a clock; callers pass this in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Duration);

/// Names a sequence for its whole life. Never reused within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

/// How to pick the next id. Validated: every number is finite and inside the range that its field names.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// `false`: greedy, and the fields from `temperature` to `typical_p` are ignored.
    pub do_sample: bool,
    /// `> 0`.
    pub temperature: Option<f32>,
    /// `>= 1`.
    pub top_k: Option<u32>,
    /// `(0, 1]`.
    pub top_p: Option<f32>,
    /// `[0, 1]`.
    pub min_p: Option<f32>,
    /// `(0, 1)`.
    pub typical_p: Option<f32>,
    /// `> 0`, over prompt and output ids.
    pub repetition_penalty: Option<f32>,
    /// `[-2, 2]`, additive, over output ids.
    pub frequency_penalty: Option<f32>,
    /// `[-2, 2]`, additive, over output ids.
    pub presence_penalty: Option<f32>,
    /// Random numbers are a function of (seed, output index, purpose).
    pub seed: u64,
    /// Top logprobs reported with each sampled id.
    pub top_n: u32,
    /// Top logprobs reported with each prompt id, where the prompt's are.
    pub prompt_top_n: u32,
    /// Report the sampled id's logprob.
    pub logprobs: bool,
    /// Added to the logits, `[-100, 100]`.
    pub logit_bias: Vec<(TokenId, f32)>,
    /// Ids never sampled while fewer than `min_tokens` are out.
    pub suppressed_token_ids: Vec<TokenId>,
    /// Output tokens before an id of `suppressed_token_ids` may come.
    pub min_tokens: u32,
    /// If there are any, nothing else is ever sampled.
    pub allowed_token_ids: Arc<[TokenId]>,
    /// None empty: the last id of each is not sampled where the output ids before it are the others.
    pub bad_words: Arc<[Vec<TokenId>]>,
}

impl SamplingParams {
    /// Greedy, no penalties, no logprobs.
    pub fn greedy() -> Self {
        Self {
            do_sample: false,
            temperature: None,
            top_k: None,
            top_p: None,
            min_p: None,
            typical_p: None,
            repetition_penalty: None,
            frequency_penalty: None,
            presence_penalty: None,
            seed: 0,
            top_n: 0,
            prompt_top_n: 0,
            logprobs: false,
            logit_bias: Vec::new(),
            suppressed_token_ids: Vec::new(),
            min_tokens: 0,
            allowed_token_ids: Arc::from([]),
            bad_words: Arc::from([]),
        }
    }
}

/// What ends a sequence by its ids alone. Stop strings are text and belong to the caller, who cancels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StopConditions {
    /// Output tokens at most, `>= 1`; already clamped to what the context allows.
    pub max_new_tokens: u32,
    /// The model's end ids. Empty when the request ignores them.
    pub eos_token_ids: Arc<[TokenId]>,
    /// The request's own stop ids.
    pub stop_token_ids: Vec<TokenId>,
    /// No end id counts while fewer output tokens than this are out.
    pub min_tokens: u32,
}

/// One sequence to run: one prompt, one choice.
#[derive(Clone, Debug)]
pub struct SequenceRequest {
    /// Unique in this process.
    pub id: SequenceId,
    /// Not empty, every id below the vocabulary size.
    pub prompt: Arc<[TokenId]>,
    /// How ids are picked.
    pub sampling: SamplingParams,
    /// When ids end it.
    pub stop: StopConditions,
    /// Report logprobs of the prompt: reads no cache, so that every position is computed.
    pub prompt_logprobs: bool,
    /// Its class: lower ones run first. `i32::MIN` is taken as the one above it.
    pub priority: i32,
    /// Who is charged for it: within a class, the tenant that had least comes first.
    pub tenant: u64,
    /// If it has not entered a step by then, it fails.
    pub deadline: Option<Time>,
    /// Prefix-cache namespace: sequences of different namespaces share no block.
    pub namespace: u64,
    /// Every id that it samples waits for a mask.
    pub constrained: bool,
    /// How long its blocks stay cached beside those of others: of lower ones all go first. A block that several
    /// sequences share has the highest of those that run with it or, when none does, of those that last did, since
    /// it was last used by nobody.
    pub retention: Retention,
}

impl SequenceRequest {
    /// Greedy, ends by its length only, and nothing else is asked for.
    pub fn greedy(id: SequenceId, prompt: impl Into<Arc<[TokenId]>>, max_new_tokens: u32) -> Self {
        Self {
            id,
            prompt: prompt.into(),
            sampling: SamplingParams::greedy(),
            stop: StopConditions {
                max_new_tokens,
                ..StopConditions::default()
            },
            prompt_logprobs: false,
            priority: 0,
            tenant: 0,
            deadline: None,
            namespace: 0,
            constrained: false,
            retention: Retention::default(),
        }
    }
}

/// Retention priority of cached blocks, 0 to 100. A high one makes a block later to go, never safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Retention(pub u8);

impl Default for Retention {
    fn default() -> Self {
        Self(35)
    }
}

/// A sampled id, or one of the prompt, and what was asked about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledToken {
    /// The id.
    pub id: TokenId,
    /// Raw log-softmax of the model's logits, when asked for.
    pub logprob: Option<f32>,
    /// The best `top_n` (of a prompt id's place `prompt_top_n`), best first.
    pub top: Vec<(TokenId, f32)>,
    /// Of a prompt id: its place in the order of `top` over the whole vocabulary, from 1.
    pub rank: Option<u32>,
}

/// Why a sequence ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinishReason {
    /// An id of `eos_token_ids`; it is the last token reported.
    Eos,
    /// An id of `stop_token_ids`; it is the last token reported.
    StopToken(TokenId),
    /// `max_new_tokens` reached.
    Length,
}

/// Why a sequence could not be finished. The request ends with an error; the others go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SequenceFailure {
    /// NaN or infinity in the model's output for this sequence.
    NonFinite,
    /// The worker refused this row, with its words.
    Row(String),
    /// A step failed and so did running the sequence alone.
    Step(String),
    /// Out of device memory even alone.
    OutOfMemory,
    /// It had not entered a step when its deadline passed.
    DeadlineExceeded,
    /// The workers died twice with it alone in a step.
    WorkerCrash,
}

/// What the scheduler tells about a sequence. After `Finished` or `Failed` nothing more comes for that id;
/// after a `cancel` nothing comes at all.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// First admission to a step. `cached_tokens` prompt tokens need no computing. [`crate::Scheduler::expire`] tells it
    /// as soon as the step is planned, else the next answer does.
    Started {
        /// Which sequence.
        id: SequenceId,
        /// Prompt tokens found in the prefix cache.
        cached_tokens: u32,
        /// When the step was planned: before it is computed, and before anybody hears of it.
        at: Time,
    },
    /// Logprobs of the next prompt positions, in order; the first one reported is position 1.
    PromptLogprobs {
        /// Which sequence.
        id: SequenceId,
        /// One entry a position.
        tokens: Vec<SampledToken>,
    },
    /// The next output id.
    Token {
        /// Which sequence.
        id: SequenceId,
        /// The id.
        token: SampledToken,
    },
    /// The end, after its last `Token`.
    Finished {
        /// Which sequence.
        id: SequenceId,
        /// Why.
        reason: FinishReason,
    },
    /// The end, by an error.
    Failed {
        /// Which sequence.
        id: SequenceId,
        /// Why.
        failure: SequenceFailure,
    },
}

impl Event {
    /// Which sequence it is about.
    pub fn sequence(&self) -> SequenceId {
        match self {
            Self::Started { id, .. }
            | Self::PromptLogprobs { id, .. }
            | Self::Token { id, .. }
            | Self::Finished { id, .. }
            | Self::Failed { id, .. } => *id,
        }
    }
}

/// Why `submit` took nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// Over the queue's bounds.
    #[error("the queue is full: {waiting} requests wait")]
    QueueFull {
        /// Sequences waiting.
        waiting: usize,
    },
    /// What waits already takes longer than its deadline allows, at the rate of late.
    #[error("it would wait for {:.3} s, beyond its deadline", predicted.as_secs_f64())]
    DeadlineTooClose {
        /// How long it would wait.
        predicted: Duration,
    },
    /// It could never run, even alone.
    #[error("{needed} tokens are needed and one sequence can hold {limit}")]
    TooLong {
        /// Prompt and output tokens.
        needed: u64,
        /// What the pool holds for one sequence.
        limit: u64,
    },
    /// The id is in use.
    #[error("sequence {0:?} exists")]
    Duplicate(SequenceId),
    /// The prompt is empty or `max_new_tokens` is 0.
    #[error("a sequence needs a prompt and at least one new token")]
    Empty,
}

/// A worker group's index; with one group, 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A sequence entering a slot.
#[derive(Clone, Debug, PartialEq)]
pub struct NewSequence {
    /// Where.
    pub slot: Slot,
    /// Prompt, then what was generated before a preemption or restart.
    pub token_ids: Vec<TokenId>,
    /// Leading ids that are prompt.
    pub prompt_length: u32,
    /// Leading ids whose KV lies in `blocks` already, after the step's `block_copies`.
    pub computed_length: u32,
    /// Table so far.
    pub blocks: Vec<BlockId>,
    /// How ids are picked.
    pub sampling: SamplingParams,
}

/// KV of the first `num_tokens` tokens of `source`, copied to `destination` before the rows run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// From.
    pub source: BlockId,
    /// To.
    pub destination: BlockId,
    /// How many tokens.
    pub num_tokens: u32,
}

/// What to compute for one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which slot.
    pub slot: Slot,
    /// Ids to compute: `ids[computed .. computed + num_tokens]`.
    pub num_tokens: u32,
    /// Sample after the last one.
    pub sample: bool,
    /// Report logprobs of the prompt ids that follow the computed ones.
    pub prompt_logprobs: bool,
    /// The sampled id waits for a mask, one of [`StepPlan::masks`].
    pub masked: bool,
}

/// A mask that a step announces. It is sent, or called off, before the workers sample the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueMask {
    /// Whose.
    pub sequence: SequenceId,
    /// Its row's slot.
    pub slot: Slot,
    /// Index of the output id that it constrains; all ids before it may still be on their way.
    pub position: u32,
}

/// One step for every rank of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepPlan {
    /// Which group.
    pub group: GroupId,
    /// 1, 2, 3 … within an epoch of the group.
    pub step_id: u64,
    /// Slots to forget, first of all.
    pub finished_slots: Vec<Slot>,
    /// Then these enter.
    pub new_sequences: Vec<NewSequence>,
    /// Then tables grow.
    pub block_appends: Vec<(Slot, Vec<BlockId>)>,
    /// Then copies run.
    pub block_copies: Vec<BlockCopy>,
    /// Then these are computed; decoding rows first. May be empty (only slots to forget).
    pub rows: Vec<Row>,
    /// One for each row that is masked, in the order of the rows.
    pub masks: Vec<DueMask>,
    /// The failed step that the router has seen.
    pub acknowledged_failure: Option<u64>,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq)]
pub enum StepOutcome {
    /// One result a row, in the plan's order.
    Ok(Vec<RowResult>),
    /// Slot and table changes were applied, no length advanced.
    Failed(String),
    /// As `Failed`, for want of memory.
    OutOfMemory(String),
    /// Behind a failed step.
    Skipped,
}

/// The answer to a [`StepPlan`].
#[derive(Clone, Debug, PartialEq)]
pub struct StepResult {
    /// Which group.
    pub group: GroupId,
    /// Which step.
    pub step_id: u64,
    /// How it ended.
    pub outcome: StepOutcome,
}

/// What one row gave.
#[derive(Clone, Debug, PartialEq)]
pub struct RowResult {
    /// Which slot.
    pub slot: Slot,
    /// Its tokens, or why there are none.
    pub outcome: RowOutcome,
    /// Logprobs of prompt positions.
    pub prompt_logprobs: Vec<SampledToken>,
}

/// Tokens of a row, or its failure.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOutcome {
    /// 0 ids when the row did not sample or its mask was called off, else 1 (or more with drafts).
    Tokens(Vec<SampledToken>),
    /// NaN or infinity.
    NonFinite,
    /// The worker's words.
    Failed(String),
}
