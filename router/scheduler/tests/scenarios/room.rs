//! Who is let in, in which order, and who makes room.

use headrace_scheduler::{Scheduler, SchedulerConfig, SequenceId, StepPlan, SubmitError};

use crate::{GROUP, NOW, answer, at, config, entering, num_tokens, plan, request, submit, up};

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
    let long = scheduler.submit(NOW, request(3, [1; 10], 7));
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
        scheduler.submit(NOW, request(1, [], 1)),
        Err(SubmitError::Empty)
    );
    submit(&mut scheduler, 1, &[1; 12], 1);
    let full = Err(SubmitError::QueueFull { waiting: 1 });
    assert_eq!(scheduler.submit(NOW, request(2, [1], 1)), full, "tokens");
    assert_eq!(
        scheduler.submit(NOW, request(1, [1], 1)),
        Err(SubmitError::Duplicate(SequenceId(1)))
    );
    assert!(scheduler.cancel(NOW, SequenceId(1)));
    for id in 2..5 {
        submit(&mut scheduler, id, &[1], 1);
    }
    let full = Err(SubmitError::QueueFull { waiting: 3 });
    assert_eq!(scheduler.submit(NOW, request(9, [1], 1)), full, "sequences");
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
    let mut late = request(2, [2], 1);
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
