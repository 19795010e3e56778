//! One behaviour a test, by the interface alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test crate; the functions beside the tests are tests as well"
)]

use std::sync::Arc;

use headrace_scheduler::{
    BlockCopy, Event, FinishReason, GroupId, PolicyConfig, ProtocolViolation, RowOutcome,
    RowResult, SampledToken, SamplingParams, Scheduler, SchedulerConfig, SequenceFailure,
    SequenceId, SequenceRequest, StepOutcome, StepPlan, StepResult, StopConditions, SubmitError,
    Time, TokenId,
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

#[test]
fn a_start_is_told_with_the_step_that_has_it() {
    let mut scheduler = up(config(), 8);
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5], 2);
    assert_eq!(scheduler.expire(NOW), []);
    let first = plan(&mut scheduler);
    let id = SequenceId(1);
    let cached_tokens = 0;
    let started = Event::Started {
        id,
        cached_tokens,
        at: NOW,
    };
    assert_eq!(scheduler.expire(NOW), [started]);
    let token = token(7);
    let events = answer(&mut scheduler, &first, 7);
    assert_eq!(events, [Event::Token { id, token }]);
    // Once, whatever happens to it.
    scheduler.group_down(NOW, GROUP);
    scheduler.group_up(NOW, GROUP, 8);
    let again = plan(&mut scheduler);
    assert_eq!(scheduler.expire(NOW), []);
    let events = answer(&mut scheduler, &again, 8);
    assert!(!matches!(events[0], Event::Started { .. }), "{events:?}");
}

#[test]
fn one_sequence_from_prompt_to_length() {
    let mut scheduler = up(config(), 8);
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5], 2);
    let first = plan(&mut scheduler);
    assert_eq!(first.step_id, 1);
    assert_eq!(first.new_sequences[0].token_ids, [1, 2, 3, 4, 5]);
    assert_eq!(first.new_sequences[0].blocks.len(), 2);
    assert_eq!(num_tokens(&first), [5]);
    assert!(first.rows[0].sample);
    assert_eq!(scheduler.plan(NOW, GROUP), None, "one step in flight");
    let id = SequenceId(1);
    let events = answer(&mut scheduler, &first, 7);
    let started = Event::Started {
        id,
        cached_tokens: 0,
        at: NOW,
    };
    assert_eq!(
        events,
        [
            started,
            Event::Token {
                id,
                token: token(7)
            }
        ]
    );
    let second = plan(&mut scheduler);
    assert_eq!(num_tokens(&second), [1]);
    assert!(second.new_sequences.is_empty() && second.block_appends.is_empty());
    let events = answer(&mut scheduler, &second, 8);
    let finished = Event::Finished {
        id,
        reason: FinishReason::Length,
    };
    assert_eq!(
        events,
        [
            Event::Token {
                id,
                token: token(8)
            },
            finished
        ]
    );
    // The workers are told to forget the slot.
    let last = plan(&mut scheduler);
    assert_eq!((last.rows.len(), last.finished_slots.len()), (0, 1));
    assert!(answer(&mut scheduler, &last, 0).is_empty());
    assert!(scheduler.is_idle());
    assert_eq!(scheduler.stats().owned_blocks, 0);
    assert_eq!(
        scheduler.stats().cached_blocks,
        2,
        "the prompt and the token computed"
    );
}

#[test]
fn eos_wins_over_length_and_min_tokens_over_eos() {
    for (min_tokens, reason) in [(0, FinishReason::Eos), (1, FinishReason::Length)] {
        let mut scheduler = up(config(), 8);
        let mut asked = request(1, &[1], 1);
        asked.stop.eos_token_ids = Arc::from([9]);
        asked.stop.min_tokens = min_tokens;
        scheduler.submit(NOW, asked).unwrap();
        let events = drain(&mut scheduler, 9);
        assert_eq!(
            events.last(),
            Some(&Event::Finished {
                id: SequenceId(1),
                reason
            })
        );
    }
    let mut scheduler = up(config(), 8);
    let mut asked = request(1, &[1], 5);
    asked.stop.stop_token_ids = vec![9];
    scheduler.submit(NOW, asked).unwrap();
    let reason = FinishReason::StopToken(9);
    assert_eq!(
        drain(&mut scheduler, 9).last(),
        Some(&Event::Finished {
            id: SequenceId(1),
            reason
        })
    );
}

#[test]
fn a_long_prompt_stalls_no_stream() {
    let mut scheduler = up(
        SchedulerConfig {
            max_batch_tokens: 8,
            ..config()
        },
        100,
    );
    submit(&mut scheduler, 1, &[1, 2], 50);
    submit(&mut scheduler, 2, &[3, 4], 50);
    let step = plan(&mut scheduler);
    answer(&mut scheduler, &step, 5);
    submit(&mut scheduler, 3, &[6; 30], 50);
    submit(&mut scheduler, 4, &[7], 50);
    let mut chunks = Vec::new();
    while chunks.iter().sum::<u32>() < 30 {
        let step = plan(&mut scheduler);
        assert_eq!(num_tokens(&step)[..2], [1, 1], "decodes first");
        chunks.push(step.rows[2].num_tokens);
        answer(&mut scheduler, &step, 5);
    }
    assert_eq!(chunks, [6, 6, 6, 6, 6]);
}

#[test]
fn only_uncached_tokens_are_charged_and_at_most_the_last_is_recomputed() {
    let mut scheduler = up(
        SchedulerConfig {
            max_batch_tokens: 8,
            ..config()
        },
        32,
    );
    let prompt: Vec<TokenId> = (0..16).collect();
    submit(&mut scheduler, 1, &prompt, 1);
    drain(&mut scheduler, 50);
    // Two at once fit into 8 tokens, for each costs one.
    submit(&mut scheduler, 2, &prompt, 1);
    submit(&mut scheduler, 3, &prompt, 1);
    let step = plan(&mut scheduler);
    assert_eq!(num_tokens(&step), [1, 1]);
    let new = &step.new_sequences;
    assert_eq!(new[0].computed_length, 15);
    assert_eq!(
        new[0].blocks[..3],
        new[1].blocks[..3],
        "whole blocks are shared"
    );
    assert_ne!(new[0].blocks[3], new[1].blocks[3], "what is written is not");
    assert_eq!(step.block_copies.len(), 2);
    let copy = step.block_copies[0];
    let (destination, source) = (new[0].blocks[3], step.block_copies[1].source);
    assert_eq!(
        copy,
        BlockCopy {
            source,
            destination,
            num_tokens: 3
        }
    );
    assert_eq!(cached_tokens(&answer(&mut scheduler, &step, 50)), [15, 15]);
}

#[test]
fn generated_tokens_and_the_partial_tail_are_cached() {
    let mut scheduler = up(config(), 32);
    submit(&mut scheduler, 1, &[1, 2, 3], 4);
    drain(&mut scheduler, 9);
    // KV exists for the prompt and three of the four tokens: one block and a tail of two.
    assert_eq!(
        scheduler.cached_prefix(GROUP, 0, &[1, 2, 3, 9, 9, 9, 9, 9]),
        6
    );
    assert_eq!(
        scheduler.cached_prefix(GROUP, 1, &[1, 2, 3, 9]),
        0,
        "another namespace"
    );
    submit(&mut scheduler, 2, &[1, 2, 3, 9, 9, 9, 9, 5], 1);
    assert_eq!(cached_tokens(&drain(&mut scheduler, 9)), [6]);
}

#[test]
fn a_full_block_is_shared_while_its_sequence_runs() {
    let mut scheduler = up(config(), 32);
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5], 20);
    let step = plan(&mut scheduler);
    submit(&mut scheduler, 2, &[1, 2, 3, 4, 6], 20);
    answer(&mut scheduler, &step, 9);
    let step = plan(&mut scheduler);
    assert_eq!(step.new_sequences[0].computed_length, 4);
    // Private block of the first sequence still: [5, 9] is in no tree.
    assert!(step.block_copies.is_empty());
}

#[test]
fn without_a_block_for_the_copy_the_tail_is_recomputed() {
    let mut scheduler = up(config(), 2);
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5, 6], 1);
    drain(&mut scheduler, 9);
    submit(&mut scheduler, 2, &[1, 2, 3, 4, 5, 7], 1);
    let step = plan(&mut scheduler);
    assert_eq!(step.new_sequences[0].computed_length, 4);
    assert!(step.block_copies.is_empty());
}

#[test]
fn the_newest_is_preempted_and_comes_back_first() {
    let mut scheduler = up(
        SchedulerConfig {
            max_sequences: 3,
            ..config()
        },
        4,
    );
    for id in 1..=3 {
        submit(&mut scheduler, id, &[u32::try_from(id).unwrap(); 4], 9);
    }
    submit(&mut scheduler, 4, &[4], 1);
    let mut order = Vec::new();
    while !scheduler.is_idle() {
        let before = scheduler.stats().preemptions;
        let step = plan(&mut scheduler);
        if scheduler.stats().preemptions > before {
            assert!(!step.finished_slots.is_empty(), "the workers are told");
            assert!(
                step.new_sequences.is_empty(),
                "its blocks are not for newcomers"
            );
        }
        order.extend(step.new_sequences.iter().map(|new| new.token_ids[0]));
        answer(&mut scheduler, &step, 9);
    }
    // The third goes, then the second; they return in their order, before the fourth, which only waits.
    assert_eq!(order, [1, 2, 3, 2, 3, 4]);
    assert_eq!(scheduler.stats().preemptions, 2);
}

#[test]
fn admission_never_takes_what_cannot_fit() {
    let mut scheduler = up(config(), 4);
    submit(&mut scheduler, 1, &[1; 9], 4);
    submit(&mut scheduler, 2, &[2; 9], 4);
    let step = plan(&mut scheduler);
    assert_eq!(step.rows.len(), 1, "three blocks each, and four in all");
    let long = scheduler.submit(NOW, request(3, &[1; 10], 7));
    assert_eq!(
        long,
        Err(SubmitError::TooLong {
            needed: 17,
            limit: 16
        })
    );
    assert_eq!(scheduler.max_total_tokens(), 16);
}

#[test]
fn the_queue_is_bounded() {
    let bounds = SchedulerConfig {
        max_waiting_sequences: 3,
        max_waiting_tokens: 10,
        ..config()
    };
    let mut scheduler = Scheduler::new(bounds);
    assert_eq!(
        scheduler.submit(NOW, request(1, &[], 1)),
        Err(SubmitError::Empty)
    );
    submit(&mut scheduler, 1, &[1; 12], 1);
    let full = Err(SubmitError::QueueFull { waiting: 1 });
    assert_eq!(scheduler.submit(NOW, request(2, &[1], 1)), full, "tokens");
    assert_eq!(
        scheduler.submit(NOW, request(1, &[1], 1)),
        Err(SubmitError::Duplicate(SequenceId(1)))
    );
    assert!(scheduler.cancel(NOW, SequenceId(1)));
    for id in 2..5 {
        submit(&mut scheduler, id, &[1], 1);
    }
    let full = Err(SubmitError::QueueFull { waiting: 3 });
    assert_eq!(
        scheduler.submit(NOW, request(9, &[1], 1)),
        full,
        "sequences"
    );
}

#[test]
fn prompt_logprobs_read_no_cache_and_come_in_order() {
    let mut scheduler = up(
        SchedulerConfig {
            max_batch_tokens: 4,
            ..config()
        },
        32,
    );
    submit(&mut scheduler, 1, &[1, 2, 3, 4, 5, 6], 1);
    drain(&mut scheduler, 9);
    let mut asked = request(2, &[1, 2, 3, 4, 5, 6], 1);
    asked.prompt_logprobs = true;
    scheduler.submit(NOW, asked).unwrap();
    let mut positions = Vec::new();
    for due in [4_usize, 1] {
        let step = plan(&mut scheduler);
        assert!(step.rows[0].prompt_logprobs);
        let mut results = rows(&step, 9);
        results[0].prompt_logprobs = (0..due).map(|_| token(1)).collect();
        let events = complete(&mut scheduler, &step, StepOutcome::Ok(results));
        positions.extend(events.iter().filter_map(|event| match event {
            Event::PromptLogprobs { tokens, .. } => Some(tokens.len()),
            _ => None,
        }));
    }
    assert_eq!(positions, [4, 1]);
}

#[test]
fn a_row_that_fails_ends_its_sequence_alone() {
    let mut scheduler = up(config(), 32);
    submit(&mut scheduler, 1, &[1, 2, 3, 4], 5);
    submit(&mut scheduler, 2, &[5, 6, 7, 8], 1);
    let step = plan(&mut scheduler);
    let mut results = rows(&step, 9);
    results[0].outcome = RowOutcome::NonFinite;
    let events = complete(&mut scheduler, &step, StepOutcome::Ok(results));
    let failure = SequenceFailure::NonFinite;
    assert!(events.contains(&Event::Failed {
        id: SequenceId(1),
        failure
    }));
    drain(&mut scheduler, 9);
    assert_eq!(
        scheduler.cached_prefix(GROUP, 0, &[1, 2, 3, 4]),
        0,
        "nothing of it is cached"
    );
    assert_eq!(scheduler.cached_prefix(GROUP, 0, &[5, 6, 7, 8]), 4);
}

#[test]
fn a_failed_step_is_retried_one_by_one() {
    let mut scheduler = up(config(), 32);
    for id in 1..=3 {
        submit(&mut scheduler, id, &[u32::try_from(id).unwrap()], 1);
    }
    let step = plan(&mut scheduler);
    assert_eq!(scheduler.expire(NOW).len(), 3, "three starts");
    let failed = StepOutcome::Failed("no".to_owned());
    assert!(complete(&mut scheduler, &step, failed.clone()).is_empty());
    let alone = plan(&mut scheduler);
    assert_eq!((alone.rows.len(), alone.acknowledged_failure), (1, Some(1)));
    answer(&mut scheduler, &alone, 9);
    let alone = plan(&mut scheduler);
    assert_eq!((alone.rows.len(), alone.acknowledged_failure), (1, None));
    let failure = SequenceFailure::Step("no".to_owned());
    let events = complete(&mut scheduler, &alone, failed);
    assert_eq!(
        events,
        [Event::Failed {
            id: SequenceId(2),
            failure
        }]
    );
    let events = drain(&mut scheduler, 9);
    let reason = FinishReason::Length;
    assert_eq!(
        events.last(),
        Some(&Event::Finished {
            id: SequenceId(3),
            reason
        })
    );
}

#[test]
fn out_of_memory_halves_the_prefill_then_isolates() {
    let mut scheduler = up(config(), 32);
    submit(&mut scheduler, 1, &[1; 40], 1);
    let mut sizes = Vec::new();
    let events = loop {
        let step = plan(&mut scheduler);
        scheduler.expire(NOW);
        sizes.extend(num_tokens(&step));
        let outcome = StepOutcome::OutOfMemory("full".to_owned());
        let events = complete(&mut scheduler, &step, outcome);
        if !events.is_empty() {
            break events;
        }
    };
    assert_eq!(sizes, [40, 20, 10, 5, 4, 4]);
    let failure = SequenceFailure::OutOfMemory;
    assert_eq!(
        events,
        [Event::Failed {
            id: SequenceId(1),
            failure
        }]
    );
}

#[test]
fn two_steps_in_flight_and_what_is_computed_too_much_is_dropped() {
    let mut scheduler = up(
        SchedulerConfig {
            max_steps_in_flight: 2,
            ..config()
        },
        4,
    );
    let mut asked = request(1, &[1, 2, 3], 10);
    asked.stop.eos_token_ids = Arc::from([9]);
    scheduler.submit(NOW, asked).unwrap();
    let first = plan(&mut scheduler);
    let second = plan(&mut scheduler);
    assert_eq!(num_tokens(&second), [1], "its input is not known yet");
    assert_eq!(scheduler.plan(NOW, GROUP), None);
    let events = answer(&mut scheduler, &first, 9);
    let reason = FinishReason::Eos;
    assert_eq!(
        events.last(),
        Some(&Event::Finished {
            id: SequenceId(1),
            reason
        })
    );
    // The second step still writes its block.
    assert_eq!(scheduler.stats().ending, 1);
    assert!(scheduler.stats().owned_blocks > 0);
    submit(&mut scheduler, 2, &[4, 5, 6], 1);
    let third = plan(&mut scheduler);
    assert_eq!(scheduler.expire(NOW).len(), 1, "a start");
    assert_ne!(third.rows[0].slot, second.rows[0].slot);
    assert!(answer(&mut scheduler, &second, 8).is_empty());
    assert_eq!(scheduler.stats().ending, 0);
    answer(&mut scheduler, &third, 8);
    drain(&mut scheduler, 8);
    assert_eq!(scheduler.stats().owned_blocks, 0);
}

#[test]
fn a_cancel_frees_blocks_once_steps_sent_have_answered() {
    let mut scheduler = up(config(), 4);
    submit(&mut scheduler, 1, &[1; 6], 5);
    let step = plan(&mut scheduler);
    assert!(scheduler.cancel(NOW, SequenceId(1)));
    assert!(!scheduler.cancel(NOW, SequenceId(1)));
    assert_eq!(scheduler.stats().owned_blocks, 2);
    assert!(
        answer(&mut scheduler, &step, 9).is_empty(),
        "nothing is told after a cancel"
    );
    assert_eq!(scheduler.stats().owned_blocks, 0);
}

#[test]
fn a_dead_group_gives_its_sequences_back_in_order() {
    let mut scheduler = up(config(), 32);
    for id in 1..=3 {
        submit(&mut scheduler, id, &[u32::try_from(id).unwrap(), 1], 5);
    }
    let step = plan(&mut scheduler);
    answer(&mut scheduler, &step, 9);
    let lost = plan(&mut scheduler);
    scheduler.group_down(NOW, GROUP);
    assert_eq!(scheduler.plan(NOW, GROUP), None);
    assert_eq!(
        (scheduler.stats().waiting, scheduler.stats().total_blocks),
        (3, 0)
    );
    submit(&mut scheduler, 4, &[4], 5);
    scheduler.group_up(NOW, GROUP, 32);
    let step = plan(&mut scheduler);
    assert_eq!(step.step_id, 1);
    let ids: Vec<_> = step
        .new_sequences
        .iter()
        .map(|new| new.token_ids.clone())
        .collect();
    assert_eq!(ids, [vec![1, 1, 9], vec![2, 1, 9], vec![3, 1, 9], vec![4]]);
    assert_eq!(step.new_sequences[0].prompt_length, 2);
    let events = answer(&mut scheduler, &step, 9);
    assert_eq!(cached_tokens(&events), [0], "only the new one starts");
    let late = StepResult {
        group: GROUP,
        step_id: lost.step_id,
        outcome: StepOutcome::Skipped,
    };
    assert!(scheduler.complete(NOW, late).is_err());
}

#[test]
fn a_smaller_pool_fails_what_no_longer_fits() {
    let mut scheduler = up(config(), 32);
    submit(&mut scheduler, 1, &[1; 100], 5);
    submit(&mut scheduler, 2, &[1; 10], 2);
    scheduler.group_down(NOW, GROUP);
    scheduler.group_up(NOW, GROUP, 3);
    let step = plan(&mut scheduler);
    let events = answer(&mut scheduler, &step, 9);
    let failure = SequenceFailure::OutOfMemory;
    assert_eq!(
        events[0],
        Event::Failed {
            id: SequenceId(1),
            failure
        }
    );
    assert_eq!(scheduler.max_total_tokens(), 12);
}

#[test]
fn answers_that_break_the_protocol_change_nothing() {
    let mut scheduler = up(config(), 32);
    submit(&mut scheduler, 1, &[1; 5], 5);
    let step = plan(&mut scheduler);
    let before = scheduler.stats();
    let mut bad = |step_id, outcome| {
        let answer = StepResult {
            group: GROUP,
            step_id,
            outcome,
        };
        scheduler.complete(NOW, answer).unwrap_err()
    };
    let due = Some(1);
    assert_eq!(
        bad(2, StepOutcome::Skipped),
        ProtocolViolation::UnexpectedStep { due, got: 2 }
    );
    let outcome = "skipped";
    assert_eq!(
        bad(1, StepOutcome::Skipped),
        ProtocolViolation::UnexpectedOutcome {
            step_id: 1,
            outcome
        }
    );
    let (due, got) = (1, 0);
    assert_eq!(
        bad(1, StepOutcome::Ok(Vec::new())),
        ProtocolViolation::RowCount {
            step_id: 1,
            due,
            got
        }
    );
    let mut results = rows(&step, 9);
    results[0].slot = 5;
    assert!(matches!(
        bad(1, StepOutcome::Ok(results)),
        ProtocolViolation::RowSlot { got: 5, .. }
    ));
    let mut results = rows(&step, 9);
    results[0].outcome = RowOutcome::Tokens(Vec::new());
    assert!(matches!(
        bad(1, StepOutcome::Ok(results)),
        ProtocolViolation::TokenCount { due: 1, got: 0, .. }
    ));
    let mut results = rows(&step, 9);
    results[0].prompt_logprobs = vec![token(1)];
    assert!(matches!(
        bad(1, StepOutcome::Ok(results)),
        ProtocolViolation::PromptLogprobCount { due: 0, got: 1, .. }
    ));
    assert_eq!(scheduler.stats(), before);
    answer(&mut scheduler, &step, 9);
    let again = StepResult {
        group: GROUP,
        step_id: 1,
        outcome: StepOutcome::Skipped,
    };
    let violation = scheduler.complete(NOW, again).unwrap_err();
    assert_eq!(
        violation,
        ProtocolViolation::UnexpectedStep { due: None, got: 1 }
    );
}

#[test]
fn lower_classes_run_first() {
    let mut scheduler = up(
        SchedulerConfig {
            max_sequences: 1,
            ..config()
        },
        32,
    );
    let mut late = request(2, &[2], 1);
    late.priority = -1;
    submit(&mut scheduler, 1, &[1], 1);
    scheduler.submit(NOW, late).unwrap();
    let step = plan(&mut scheduler);
    assert_eq!(step.new_sequences[0].token_ids, [2]);
}

#[test]
fn a_budget_below_the_streams_goes_round() {
    let budget = SchedulerConfig {
        max_batch_tokens: 2,
        ..config()
    };
    let mut scheduler = up(budget, 64);
    for id in 1..=3 {
        submit(&mut scheduler, id, &[u32::try_from(id).unwrap()], 30);
    }
    let mut steps_of = std::collections::BTreeMap::new();
    for _ in 0..30 {
        let step = plan(&mut scheduler);
        for row in &step.rows {
            *steps_of.entry(row.slot).or_insert(0) += 1;
        }
        answer(&mut scheduler, &step, 9);
    }
    let counts: Vec<u32> = steps_of.into_values().collect();
    assert!(
        counts.iter().all(|&count| count >= 15),
        "no stream starves: {counts:?}"
    );
}

fn at(milliseconds: u64) -> Time {
    Time(std::time::Duration::from_millis(milliseconds))
}

/// The first ids of what the plan lets in.
fn entering(plan: Option<&StepPlan>) -> Vec<TokenId> {
    let new = plan.iter().flat_map(|plan| &plan.new_sequences);
    new.map(|new| new.token_ids[0]).collect()
}

/// A sequence runs in 5 of 8 blocks, and the next in the queue needs 5.
fn with_a_misfit() -> (Scheduler, StepPlan) {
    let mut scheduler = up(config(), 8);
    submit(&mut scheduler, 1, &[1; 17], 3);
    let step = plan(&mut scheduler);
    submit(&mut scheduler, 2, &[2; 17], 3);
    (scheduler, step)
}

#[test]
fn what_does_not_fit_is_passed_for_a_bounded_time() {
    let (mut scheduler, step) = with_a_misfit();
    submit(&mut scheduler, 3, &[3], 2);
    answer(&mut scheduler, &step, 9);
    let step = scheduler.plan(at(500), GROUP).unwrap();
    assert_eq!(entering(Some(&step)), [3], "it was seen not to fit at 500");
    submit(&mut scheduler, 4, &[4], 2);
    answer(&mut scheduler, &step, 9);
    let step = scheduler.plan(at(1499), GROUP).unwrap();
    assert_eq!(entering(Some(&step)), [4]);
    assert_eq!(scheduler.stats().skipped_ahead, 2);
    answer(&mut scheduler, &step, 9);
    // The second is over its time: its blocks are kept.
    submit(&mut scheduler, 5, &[5], 2);
    let mut order = Vec::new();
    while !scheduler.is_idle() {
        let step = scheduler.plan(at(1500), GROUP).unwrap();
        order.extend(entering(Some(&step)));
        answer(&mut scheduler, &step, 9);
    }
    assert_eq!(order, [2, 5]);
}

#[test]
fn without_skip_ahead_nothing_passes() {
    let mut bounds = config();
    bounds.policy.skip_ahead = std::time::Duration::ZERO;
    let mut scheduler = up(bounds, 8);
    submit(&mut scheduler, 1, &[1; 17], 3);
    let step = plan(&mut scheduler);
    answer(&mut scheduler, &step, 9);
    submit(&mut scheduler, 2, &[2; 17], 3);
    submit(&mut scheduler, 3, &[3], 2);
    assert!(plan(&mut scheduler).new_sequences.is_empty());
}

fn sharing() -> Scheduler {
    let mut bounds = config();
    bounds.max_batch_tokens = 8;
    up(bounds, 32)
}

#[test]
fn a_prefix_is_computed_once_and_others_pass() {
    let mut scheduler = sharing();
    let prompt: Vec<TokenId> = (1..=13).collect();
    submit(&mut scheduler, 1, &prompt, 1);
    submit(&mut scheduler, 2, &prompt, 1);
    submit(&mut scheduler, 3, &[9; 5], 1);
    let mut entered = Vec::new();
    let mut events = Vec::new();
    while !scheduler.is_idle() {
        let step = plan(&mut scheduler);
        entered.push(entering(Some(&step)));
        events.extend(answer(&mut scheduler, &step, 50));
    }
    // 13 tokens in steps of 8: then the second needs one only, and the third has not waited for it.
    assert_eq!(entered[..3], [vec![1], vec![9], vec![1]]);
    assert_eq!(cached_tokens(&events), [0, 0, 12]);
    assert_eq!(scheduler.stats().deferrals, 1);
}

#[test]
fn nobody_waits_for_blocks_that_will_not_come() {
    let prompt: Vec<TokenId> = (1..=13).collect();
    for fails in [false, true] {
        let mut scheduler = sharing();
        submit(&mut scheduler, 1, &prompt, 1);
        submit(&mut scheduler, 2, &prompt, 1);
        let step = plan(&mut scheduler);
        assert_eq!(step.rows.len(), 1);
        let mut results = rows(&step, 50);
        if fails {
            results[0].outcome = RowOutcome::NonFinite;
        } else {
            assert!(scheduler.cancel(NOW, SequenceId(1)));
        }
        complete(&mut scheduler, &step, StepOutcome::Ok(results));
        assert_eq!(plan(&mut scheduler).new_sequences[0].computed_length, 0);
    }
    // Or that do not come in time.
    let mut bounds = config();
    bounds.max_batch_tokens = 8;
    bounds.max_steps_in_flight = 3;
    let mut scheduler = up(bounds, 32);
    submit(&mut scheduler, 1, &prompt, 1);
    submit(&mut scheduler, 2, &prompt, 1);
    for _ in 0..2 {
        assert_eq!(plan(&mut scheduler).rows.len(), 1);
    }
    assert_eq!(scheduler.plan(at(4999), GROUP), None);
    let step = scheduler.plan(at(5000), GROUP).unwrap();
    assert_eq!(step.new_sequences[0].computed_length, 0);
}
