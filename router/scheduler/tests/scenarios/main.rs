//! One behaviour a test, by the interface alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test crate; the functions beside the tests are tests as well"
)]

#[path = "../support/mod.rs"]
mod support;

mod ends;
mod failures;
mod prefixes;
mod room;

use headrace_scheduler::{Event, Scheduler, SchedulerConfig, StepOutcome, StepPlan, Time, TokenId};

use support::{GROUP, config, request, result, rows, token};

const NOW: Time = Time(std::time::Duration::ZERO);

fn up(config: SchedulerConfig, blocks: u32) -> Scheduler {
    let mut scheduler = Scheduler::new(config);
    scheduler.group_up(NOW, GROUP, blocks);
    scheduler
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

fn complete(scheduler: &mut Scheduler, plan: &StepPlan, outcome: StepOutcome) -> Vec<Event> {
    let events = scheduler.complete(NOW, result(plan, outcome)).unwrap();
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
