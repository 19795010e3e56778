//! What tests of the scheduler begin with: small sizes, a request, and workers that do what they are asked.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "shared by several test binaries, none of which needs all of it"
)]

use std::sync::Arc;

use headrace_scheduler::{
    GroupId, PolicyConfig, RowOutcome, RowResult, SampledToken, SchedulerConfig, SequenceId,
    SequenceRequest, StepOutcome, StepPlan, StepResult, TokenId,
};

pub const GROUP: GroupId = GroupId(0);

/// A token budget that few tests reach, four tokens a block, one step in flight.
pub fn config() -> SchedulerConfig {
    SchedulerConfig {
        block_size: 4,
        max_batch_tokens: 64,
        max_sequences: 8,
        max_total_tokens: 1000,
        prefix_caching: true,
        max_waiting_sequences: 100,
        max_waiting_tokens: 10_000,
        max_steps_in_flight: 1,
        policy: PolicyConfig::default(),
    }
}

/// A greedy request that ends by its length only.
pub fn request(id: u64, prompt: impl Into<Arc<[TokenId]>>, max_new_tokens: u32) -> SequenceRequest {
    SequenceRequest::greedy(SequenceId(id), prompt, max_new_tokens)
}

pub fn token(id: TokenId) -> SampledToken {
    SampledToken {
        id,
        logprob: None,
        top: Vec::new(),
        rank: None,
    }
}

/// Every row did what it was asked; those that sample give `id`.
pub fn rows(plan: &StepPlan, id: TokenId) -> Vec<RowResult> {
    let row = |row: &headrace_scheduler::Row| RowResult {
        slot: row.slot,
        outcome: RowOutcome::Tokens(vec![token(id); usize::from(row.sample)]),
        prompt_logprobs: Vec::new(),
    };
    plan.rows.iter().map(row).collect()
}

/// The answer of a plan's workers.
pub fn result(plan: &StepPlan, outcome: StepOutcome) -> StepResult {
    StepResult {
        group: plan.group,
        step_id: plan.step_id,
        outcome,
    }
}

/// [`rows`] as an answer.
pub fn answered(plan: &StepPlan, id: TokenId) -> StepResult {
    result(plan, StepOutcome::Ok(rows(plan, id)))
}
