//! Rows, steps and groups that fail, and answers that cannot be.

use headrace_scheduler::{
    Event, FinishReason, ProtocolViolation, RowOutcome, SequenceFailure, SequenceId, StepOutcome,
    StepResult,
};

use crate::{
    GROUP, NOW, answer, cached_tokens, complete, config, drain, num_tokens, plan, rows, submit,
    token, up,
};

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
