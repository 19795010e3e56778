//! One behaviour a test, by the interface alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test crate; the functions beside the tests are tests as well"
)]

mod ends;
mod failures;
mod prefixes;
mod room;

use std::sync::Arc;

use headrace_scheduler::{
    Event, GroupId, PolicyConfig, RowOutcome, RowResult, SampledToken, SamplingParams, Scheduler,
    SchedulerConfig, SequenceId, SequenceRequest, StepOutcome, StepPlan, StepResult,
    StopConditions, Time, TokenId,
};

const GROUP: GroupId = GroupId(0);
const NOW: Time = Time(std::time::Duration::ZERO);

fn config() -> SchedulerConfig {
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

fn up(config: SchedulerConfig, blocks: u32) -> Scheduler {
    let mut scheduler = Scheduler::new(config);
    scheduler.group_up(NOW, GROUP, blocks);
    scheduler
}

fn request(id: u64, prompt: &[TokenId], max_new_tokens: u32) -> SequenceRequest {
    SequenceRequest {
        id: SequenceId(id),
        prompt: Arc::from(prompt),
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
        retention: headrace_scheduler::Retention::default(),
    }
}

fn submit(scheduler: &mut Scheduler, id: u64, prompt: &[TokenId], max_new_tokens: u32) {
    scheduler
        .submit(NOW, request(id, prompt, max_new_tokens))
        .unwrap();
}

fn plan(scheduler: &mut Scheduler) -> StepPlan {
    let plan = scheduler.plan(NOW, GROUP).unwrap();
    scheduler.audit();
    plan
}

fn token(id: TokenId) -> SampledToken {
    SampledToken {
        id,
        logprob: None,
        top: Vec::new(),
        rank: None,
    }
}

/// Every sampling row gives `id`.
fn rows(plan: &StepPlan, id: TokenId) -> Vec<RowResult> {
    let row = |row: &headrace_scheduler::Row| RowResult {
        slot: row.slot,
        outcome: RowOutcome::Tokens(if row.sample {
            vec![token(id)]
        } else {
            Vec::new()
        }),
        prompt_logprobs: Vec::new(),
    };
    plan.rows.iter().map(row).collect()
}

fn complete(scheduler: &mut Scheduler, plan: &StepPlan, outcome: StepOutcome) -> Vec<Event> {
    let result = StepResult {
        group: GROUP,
        step_id: plan.step_id,
        outcome,
    };
    let events = scheduler.complete(NOW, result).unwrap();
    scheduler.audit();
    events
}

fn answer(scheduler: &mut Scheduler, plan: &StepPlan, id: TokenId) -> Vec<Event> {
    complete(scheduler, plan, StepOutcome::Ok(rows(plan, id)))
}

/// Plans and answers until nothing is left.
fn drain(scheduler: &mut Scheduler, id: TokenId) -> Vec<Event> {
    let mut events = Vec::new();
    while !scheduler.is_idle() {
        let step = plan(scheduler);
        events.extend(answer(scheduler, &step, id));
    }
    events
}

fn num_tokens(plan: &StepPlan) -> Vec<u32> {
    plan.rows.iter().map(|row| row.num_tokens).collect()
}

fn cached_tokens(events: &[Event]) -> Vec<u32> {
    let cached = |event: &Event| match event {
        Event::Started { cached_tokens, .. } => Some(*cached_tokens),
        _ => None,
    };
    events.iter().filter_map(cached).collect()
}

fn at(milliseconds: u64) -> Time {
    Time(std::time::Duration::from_millis(milliseconds))
}

/// The first ids of what the plan lets in.
fn entering(plan: Option<&StepPlan>) -> Vec<TokenId> {
    let new = plan.iter().flat_map(|plan| &plan.new_sequences);
    new.map(|new| new.token_ids[0]).collect()
}
