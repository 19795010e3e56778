//! The figures that are told, and the small constants behind decisions: each by arithmetic.

use std::time::Duration;

use headrace_scheduler::{
    Event, GroupId, PolicyConfig, SchedulerConfig, SequenceId, SequenceRequest, StepOutcome,
    StepResult, SubmitError, Time,
};

use crate::scene::{GROUP, Scene, config, request};

#[test]
fn cached_and_recomputed_tokens_are_counted() {
    let mut scene = Scene::new(config(), 32);
    scene.submit(1, 10, 4);
    scene.drain();
    let stats = scene.scheduler.stats();
    assert_eq!(
        (stats.prefix_query_tokens, stats.prefix_hit_tokens),
        (9, 0),
        "all ids but the last are looked up"
    );
    scene.take(SequenceRequest {
        prompt: request(1, 10, 1).prompt,
        ..request(2, 10, 1)
    });
    scene.drain();
    let stats = scene.scheduler.stats();
    assert_eq!(
        (stats.prefix_query_tokens, stats.prefix_hit_tokens),
        (18, 9)
    );
    assert_eq!(stats.recomputed_tokens, 0);

    // A dead group takes the cache with it: 10 prompt ids and 2 of 3 sampled ones had their KV.
    scene.submit(3, 10, 20);
    for _ in 0..3 {
        scene.step();
    }
    scene.up();
    scene.step();
    assert_eq!(scene.scheduler.stats().recomputed_tokens, 12);
}

#[test]
fn what_waits_runs_and_ends_is_counted() {
    let config = SchedulerConfig {
        max_sequences: 2,
        max_steps_in_flight: 2,
        ..config()
    };
    let mut scene = Scene::new(config, 32);
    for id in 1..=4 {
        scene.now = Time(Duration::from_millis(id));
        scene.submit(id, 5, 9);
    }
    let first = scene.plan();
    let stats = scene.scheduler.stats();
    assert_eq!((stats.waiting, stats.waiting_tokens), (2, 10));
    assert_eq!(stats.oldest_waiting, Some(Time(Duration::from_millis(3))));
    assert_eq!((stats.running, stats.ending), (2, 0));
    assert_eq!((stats.steps, stats.steps_in_flight), (1, 1));
    assert_eq!((stats.free_blocks, stats.owned_blocks), (28, 4));
    assert_eq!(stats.total_blocks, 32);
    scene.cancel(1);
    let stats = scene.scheduler.stats();
    assert_eq!((stats.running, stats.ending), (1, 1));
    assert!(!scene.scheduler.is_idle());
    let second = scene.plan();
    assert_eq!(scene.scheduler.stats().steps_in_flight, 2);
    assert_eq!(scene.try_plan(), None);
    scene.answer(&first, 9);
    assert_eq!(scene.scheduler.stats().ending, 0);
    scene.answer(&second, 9);
    scene.drain();
    assert!(scene.scheduler.is_idle());
    assert_eq!(scene.ended.len(), 3);
}

/// Twice as many tokens each time, until nothing is left of the bound.
#[test]
fn the_prefill_share_grows_again_after_32_good_steps() {
    let config = SchedulerConfig {
        max_total_tokens: 3000,
        ..config()
    };
    let mut scene = Scene::new(config, 800);
    scene.submit(1, 2500, 1);
    for tokens in [64, 32] {
        let plan = scene.plan();
        assert_eq!(plan.rows[0].num_tokens, tokens);
        let full = StepOutcome::OutOfMemory("full".to_owned());
        scene.try_complete(&plan, full).unwrap();
    }
    for at in 0..70 {
        let plan = scene.plan();
        let tokens = plan.rows[0].num_tokens;
        let due = match at {
            0..32 => 16,
            32..64 => 32,
            _ => 64,
        };
        assert_eq!(tokens, due, "step {at}");
        scene.answer(&plan, 9);
    }
}

#[test]
fn a_block_for_each_running_sequence_is_kept_at_admission() {
    for (blocks, enters) in [(59, 1), (60, 0)] {
        let mut scene = Scene::new(
            SchedulerConfig {
                max_batch_tokens: 1000,
                ..config()
            },
            64,
        );
        for id in 1..=3 {
            scene.submit(id, 3, 9);
        }
        scene.step();
        // Three blocks are taken, and of 64 at most a 32nd part is kept, whatever runs.
        scene.submit(4, 4 * blocks, 1);
        assert_eq!(scene.plan().new_sequences.len(), enters, "{blocks}");
    }
}

#[test]
fn a_deadline_within_the_predicted_wait_is_refused() {
    let config = SchedulerConfig {
        max_sequences: 1,
        max_batch_tokens: 10,
        ..config()
    };
    let mut scene = Scene::new(config, 100);
    let seconds = |seconds| Time(Duration::from_secs(seconds));
    // One of ten ids enters a second, and others wait.
    for id in 1..=12 {
        scene.submit(id, 10, 1);
    }
    for second in 0..4 {
        scene.now = seconds(second);
        scene.step();
    }
    let stats = scene.scheduler.stats();
    assert_eq!(stats.drained_tokens_per_second, 10);
    let now = scene.now;
    // What waits is gone in as many seconds.
    let wait = Duration::from_secs(stats.waiting_tokens / 10);
    let with_deadline = |id, ahead| SequenceRequest {
        deadline: Some(Time(now.0 + ahead)),
        ..request(id, 10, 1)
    };
    let refused = scene.scheduler.submit(now, with_deadline(20, wait));
    assert_eq!(
        refused,
        Err(SubmitError::DeadlineTooClose { predicted: wait })
    );
    let later = wait + Duration::from_millis(1);
    scene
        .scheduler
        .submit(now, with_deadline(21, later))
        .unwrap();
    assert_eq!(scene.scheduler.next_deadline(), Some(Time(now.0 + later)));
    assert_eq!(scene.scheduler.expire(now), []);
    let events = scene.scheduler.expire(Time(now.0 + later));
    assert!(matches!(events[..], [Event::Failed { .. }]));
    assert_eq!(scene.scheduler.next_deadline(), None);
}

#[test]
fn the_longest_sequence_is_what_the_smallest_pool_holds() {
    let mut scene = Scene::new(config(), 20);
    assert_eq!(scene.scheduler.max_total_tokens(), 80);
    scene.scheduler.group_up(scene.now, GROUP, 300);
    assert_eq!(scene.scheduler.max_total_tokens(), 80);
    let long = scene.scheduler.submit(scene.now, request(1, 80, 1));
    let refused = SubmitError::TooLong {
        needed: 81,
        limit: 80,
    };
    assert_eq!(long, Err(refused));
    scene.submit(2, 79, 1);
}

#[test]
fn the_queue_is_full_at_its_bounds_and_takes_one_of_any_length() {
    let config = SchedulerConfig {
        max_waiting_sequences: 3,
        max_waiting_tokens: 20,
        policy: PolicyConfig::default(),
        ..config()
    };
    let mut scene = Scene::new(config, 100);
    // Alone, any length waits.
    scene.submit(1, 30, 1);
    let full = |waiting| Err(SubmitError::QueueFull { waiting });
    let now = scene.now;
    assert_eq!(scene.scheduler.submit(now, request(2, 1, 1)), full(1));
    scene.cancel(1);
    scene.submit(3, 10, 1);
    scene.submit(4, 9, 1);
    assert_eq!(scene.scheduler.submit(now, request(5, 2, 1)), full(2));
    scene.submit(6, 1, 1);
    assert_eq!(scene.scheduler.submit(now, request(7, 1, 1)), full(3));
}

#[test]
fn groups_are_told_apart() {
    let mut scene = Scene::new(config(), 20);
    let other = GroupId(7);
    scene.scheduler.group_up(scene.now, other, 30);
    assert_eq!(scene.scheduler.stats().total_blocks, 50);
    scene.submit(1, 6, 1);
    let plan = scene.scheduler.plan(scene.now, other).unwrap();
    assert_eq!((plan.group, plan.step_id), (other, 1));
    assert!(scene.try_plan().is_none());
    let result = StepResult {
        group: other,
        step_id: 1,
        outcome: StepOutcome::Ok(Scene::results(&plan, 9)),
    };
    assert!(!scene.scheduler.is_idle());
    assert_eq!(
        scene.scheduler.complete(scene.now, result).unwrap().len(),
        3
    );
    let ids = request(1, 9, 1).prompt;
    assert_eq!(scene.scheduler.cached_prefix(other, 0, &ids), 6);
    assert_eq!(scene.scheduler.cached_prefix(GROUP, 0, &ids), 0);
    // A flush is of all groups.
    scene.submit(2, 6, 1);
    scene.step();
    assert_eq!(scene.scheduler.flush_cache(scene.now), 4);
    scene.scheduler.audit();
}

/// Blocks that a table gets are told once, with the step that needs them.
#[test]
fn tables_grow_as_told() {
    let mut scene = Scene::new(config(), 20);
    scene.submit(1, 7, 20);
    let mut appends = Vec::new();
    for _ in 0..10 {
        let plan = scene.plan();
        appends.extend(plan.block_appends.iter().map(|(_, blocks)| blocks.len()));
        scene.answer(&plan, 9);
    }
    // Tokens 7 to 15 were decoded: of the blocks that begin at 8 and 12 both came alone.
    assert_eq!(appends, [1, 1]);
}

#[test]
fn a_paused_sequence_keeps_its_slot_while_nobody_waits() {
    let config = SchedulerConfig {
        max_sequences: 1,
        ..config()
    };
    let mut scene = Scene::new(config, 20);
    scene.submit(1, 5, 9);
    scene.step();
    assert!(scene.scheduler.pause(scene.now, SequenceId(1)));
    assert_eq!(scene.try_plan(), None);
    assert_eq!(scene.scheduler.stats().preemptions, 0);
    scene.submit(2, 5, 9);
    assert_eq!(scene.step(), [2]);
    assert_eq!(scene.scheduler.stats().preemptions, 1);
}
