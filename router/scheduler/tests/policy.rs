//! The rules of the queue, one a test, by the interface alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test crate; the functions beside the tests are tests as well"
)]

use std::time::Duration;

use headrace_scheduler::{
    Event, PolicyConfig, QueueOrder, Scheduler, SchedulerConfig, SequenceFailure, SequenceId,
    SequenceRequest, StepPlan, SubmitError, Time, TokenId,
};

#[path = "support/mod.rs"]
mod support;

use support::{GROUP, answered, config, request};

fn at(milliseconds: u64) -> Time {
    Time(Duration::from_millis(milliseconds))
}

/// One slot, unless told otherwise.
fn up(max_sequences: u32, policy: PolicyConfig) -> Scheduler {
    let mut scheduler = Scheduler::new(SchedulerConfig {
        max_batch_tokens: 256,
        max_sequences,
        max_waiting_sequences: 20_000,
        max_waiting_tokens: 1_000_000,
        policy,
        ..config()
    });
    scheduler.group_up(at(0), GROUP, 1000);
    scheduler
}

/// A prompt of one id that tells who it is.
fn of_class(id: TokenId, priority: i32) -> SequenceRequest {
    SequenceRequest {
        priority,
        ..request(u64::from(id), [id], 1)
    }
}

fn of_tenant(id: TokenId, tenant: u64, length: usize, max_new_tokens: u32) -> SequenceRequest {
    SequenceRequest {
        tenant,
        ..request(u64::from(id), vec![id; length], max_new_tokens)
    }
}

/// Plans and answers one step; the first ids of what entered, and the events.
fn step(scheduler: &mut Scheduler, now: Time) -> (Vec<TokenId>, Vec<Event>) {
    let Some(plan) = scheduler.plan(now, GROUP) else {
        return (Vec::new(), Vec::new());
    };
    scheduler.audit();
    let entered = plan.new_sequences.iter().map(|new| new.token_ids[0]);
    (entered.collect(), answer(scheduler, now, &plan))
}

fn answer(scheduler: &mut Scheduler, now: Time, plan: &StepPlan) -> Vec<Event> {
    let events = scheduler.complete(now, answered(plan, 9999)).unwrap();
    scheduler.audit();
    events
}

/// Who enters, in order, until nothing is left.
fn order(scheduler: &mut Scheduler, now: Time) -> Vec<TokenId> {
    let mut order = Vec::new();
    while !scheduler.is_idle() {
        order.extend(step(scheduler, now).0);
    }
    order
}

#[test]
fn a_waiting_sequence_rises_one_class_a_period() {
    let policy = PolicyConfig {
        ageing_period: Some(Duration::from_millis(100)),
        overdue_age: None,
        ..PolicyConfig::default()
    };
    // A class-2 sequence that came at 0 against class-1 ones that come later.
    for (now, expected) in [(99, [2, 1]), (100, [1, 2])] {
        let mut scheduler = up(1, policy.clone());
        scheduler.submit(at(0), of_class(1, 2)).unwrap();
        scheduler.submit(at(50), of_class(2, 1)).unwrap();
        assert_eq!(order(&mut scheduler, at(now)), expected, "at {now}");
    }
    // No higher than the highest class.
    let mut scheduler = up(1, policy);
    scheduler.submit(at(0), of_class(1, 2)).unwrap();
    scheduler.submit(at(99_000), of_class(2, 0)).unwrap();
    scheduler.submit(at(99_000), of_class(3, -1)).unwrap();
    assert_eq!(order(&mut scheduler, at(99_000)), [3, 1, 2]);
}

#[test]
fn past_the_overdue_age_arrival_is_all_that_counts() {
    let policy = PolicyConfig {
        ageing_period: None,
        overdue_age: Some(Duration::from_secs(1)),
        order: QueueOrder::Lpm,
        ..PolicyConfig::default()
    };
    let mut scheduler = up(1, policy);
    scheduler.submit(at(0), of_class(1, i32::MAX)).unwrap();
    scheduler.submit(at(1), of_tenant(2, 7, 1, 1)).unwrap();
    scheduler.submit(at(2), of_class(3, i32::MIN)).unwrap();
    scheduler.submit(at(900), of_class(4, -5)).unwrap();
    let mut entered = Vec::new();
    while !scheduler.is_idle() {
        entered.extend(step(&mut scheduler, at(1001)).0);
    }
    // The third is not overdue, but of the highest class.
    assert_eq!(entered, [1, 2, 3, 4]);
}

#[test]
fn an_overdue_sequence_is_not_passed_and_not_the_one_preempted() {
    let mut policy = PolicyConfig {
        overdue_age: Some(Duration::from_secs(1)),
        ..PolicyConfig::default()
    };
    policy.skip_ahead = Duration::from_secs(100);
    let mut scheduler = up(8, policy);
    scheduler.group_up(at(0), GROUP, 8);
    scheduler.submit(at(0), request(1, [1; 17], 3)).unwrap();
    step(&mut scheduler, at(0));
    scheduler.submit(at(0), request(2, [2; 17], 12)).unwrap();
    scheduler.submit(at(0), request(3, [3], 30)).unwrap();
    assert_eq!(step(&mut scheduler, at(999)).0, [3]);
    // The first still has the blocks that the second needs.
    let (entered, _) = step(&mut scheduler, at(1000));
    assert_eq!(entered, []);
    let mut entered = Vec::new();
    while entered.is_empty() {
        entered = step(&mut scheduler, at(1001)).0;
    }
    assert_eq!(entered[0], 2);
    // It runs in the class of the overdue, so it outlasts what ran before it.
    let mut finished = Vec::new();
    while !scheduler.is_idle() {
        for event in step(&mut scheduler, at(1001)).1 {
            if let Event::Finished { id, .. } = event {
                finished.push(id.0);
            }
        }
    }
    assert_eq!(scheduler.stats().preemptions, 1);
    assert_eq!(finished, [2, 3]);
}

#[test]
fn the_tenant_that_had_least_is_next() {
    let mut scheduler = up(1, PolicyConfig::default());
    for id in 1..=4 {
        scheduler.submit(at(0), of_tenant(id, 1, 8, 1)).unwrap();
    }
    scheduler.submit(at(0), of_tenant(5, 2, 20, 2)).unwrap();
    scheduler.submit(at(0), of_tenant(6, 2, 8, 1)).unwrap();
    // 1: 8 + 2; then tenant 2: 20 + 4; tenant 1 until it has 30, and both go on.
    assert_eq!(order(&mut scheduler, at(0)), [1, 5, 2, 3, 6, 4]);
}

#[test]
fn idle_time_earns_nothing() {
    let mut scheduler = up(1, PolicyConfig::default());
    for id in 1..=10 {
        scheduler.submit(at(0), of_tenant(id, 1, 8, 1)).unwrap();
    }
    for _ in 0..10 {
        step(&mut scheduler, at(0));
    }
    for id in 11..=13 {
        scheduler.submit(at(0), of_tenant(id, 1, 8, 1)).unwrap();
        scheduler
            .submit(at(0), of_tenant(id + 10, 2, 8, 1))
            .unwrap();
    }
    let served = order(&mut scheduler, at(0));
    let turns = served
        .windows(2)
        .all(|pair| (pair[0] > 20) != (pair[1] > 20));
    assert!(turns, "the tenants take turns: {served:?}");
}

#[test]
fn a_long_cached_prefix_passes_the_front_a_few_times() {
    for (order_by, depth) in [
        (QueueOrder::Fcfs, 3),
        (QueueOrder::Lpm, 3),
        (QueueOrder::Lpm, 5000),
    ] {
        let policy = PolicyConfig {
            order: order_by,
            most_passes: 2,
            ..PolicyConfig::default()
        };
        let mut scheduler = up(1, policy);
        let prefix = |last: TokenId| [7, 7, 7, 7, 7, 7, 7, 7, last];
        scheduler.submit(at(0), request(1, prefix(1), 1)).unwrap();
        for id in 0..depth {
            let other = 100 + u32::try_from(id).unwrap();
            let prompt = [other; 5];
            scheduler
                .submit(at(0), request(100 + id, prompt, 1))
                .unwrap();
        }
        for last in 2..=4 {
            scheduler
                .submit(at(0), request(u64::from(last), prefix(last), 1))
                .unwrap();
        }
        let mut entered = Vec::new();
        while entered.len() < 6 {
            let plan = scheduler.plan(at(0), GROUP).unwrap();
            entered.extend(plan.new_sequences.iter().map(|new| new.token_ids[0]));
            answer(&mut scheduler, at(0), &plan);
        }
        let expected = match order_by {
            QueueOrder::Fcfs => [7, 100, 101, 102, 7, 7],
            QueueOrder::Lpm => [7, 7, 7, 100, 7, 101],
        };
        assert_eq!(entered, expected, "{order_by:?} in {depth}");
    }
}

#[test]
fn a_passed_deadline_drops_what_never_ran() {
    let mut scheduler = up(1, PolicyConfig::default());
    let until = |id, milliseconds| SequenceRequest {
        deadline: Some(at(milliseconds)),
        ..request(id, [1], 5)
    };
    scheduler.submit(at(0), until(1, 100)).unwrap();
    scheduler.submit(at(0), until(2, 100)).unwrap();
    scheduler.submit(at(0), until(3, 200)).unwrap();
    assert_eq!(scheduler.next_deadline(), Some(at(100)));
    step(&mut scheduler, at(99));
    let (_, events) = step(&mut scheduler, at(100));
    let failure = SequenceFailure::DeadlineExceeded;
    let id = SequenceId(2);
    assert!(events.contains(&Event::Failed { id, failure }));
    assert!(!scheduler.cancel(at(100), id));
    // The first one runs and goes on, through a restart too.
    scheduler.group_down(at(150), GROUP);
    let failure = SequenceFailure::DeadlineExceeded;
    let id = SequenceId(3);
    assert_eq!(scheduler.expire(at(199)), []);
    assert_eq!(scheduler.expire(at(200)), [Event::Failed { id, failure }]);
    assert_eq!(scheduler.stats().waiting, 1);
    assert_eq!(scheduler.stats().deadlines_exceeded, 2);
    assert_eq!(
        scheduler.submit(at(200), until(4, 200)),
        Err(SubmitError::DeadlineTooClose {
            predicted: Duration::ZERO
        })
    );
}

#[test]
fn the_drain_rate_predicts_the_wait() {
    let mut scheduler = up(1, PolicyConfig::default());
    // Times without work say nothing.
    step(&mut scheduler, at(100));
    for id in 1..=100 {
        scheduler
            .submit(at(20_000), of_tenant(id, 0, 10, 1))
            .unwrap();
    }
    assert_eq!(scheduler.stats().drained_tokens_per_second, 0);
    // A prompt of ten ids every 100 ms.
    for now in (20_000..=25_000).step_by(100) {
        step(&mut scheduler, at(now));
    }
    let stats = scheduler.stats();
    assert_eq!(
        (stats.drained_tokens_per_second, stats.waiting_tokens),
        (100, 490)
    );
    let mut asked = request(1000, [1], 1);
    asked.deadline = Some(at(25_000 + 4900));
    let predicted = Duration::from_millis(4900);
    assert_eq!(
        scheduler.submit(at(25_000), asked.clone()),
        Err(SubmitError::DeadlineTooClose { predicted })
    );
    asked.deadline = Some(at(25_000 + 4901));
    scheduler.submit(at(25_000), asked).unwrap();
}

/// 490 ids of tenant 0 wait in class 5, and 100 leave in a second.
fn busy() -> Scheduler {
    let mut scheduler = up(1, PolicyConfig::default());
    for id in 1..=100 {
        let asked = SequenceRequest {
            priority: 5,
            ..of_tenant(id, 0, 10, 1)
        };
        scheduler.submit(at(20_000), asked).unwrap();
    }
    for now in (20_000..=25_000).step_by(100) {
        step(&mut scheduler, at(now));
    }
    let stats = scheduler.stats();
    assert_eq!(stats.drained_tokens_per_second, 100);
    assert_eq!(stats.waiting_tokens, 490);
    scheduler
}

/// What a request of ten ids that may wait so long is answered.
fn asked_at(
    scheduler: &mut Scheduler,
    now: u64,
    priority: i32,
    tenant: u64,
    milliseconds: u64,
) -> Result<(), u64> {
    let asked = SequenceRequest {
        priority,
        deadline: Some(at(now + milliseconds)),
        ..of_tenant(1000, tenant, 10, 1)
    };
    scheduler.submit(at(now), asked).map_err(|error| {
        let SubmitError::DeadlineTooClose { predicted } = error else {
            return u64::MAX;
        };
        u64::try_from(predicted.as_millis()).unwrap()
    })
}

#[test]
fn a_deadline_is_held_against_what_is_served_before_it_only() {
    for (class, tenant, wait) in [
        // Behind its own tenant's, and behind a higher class.
        (5, 0, 4900),
        (6, 0, 4900),
        (6, 1, 4900),
        // Tenants take turns: ten ids of the other's.
        (5, 1, 100),
    ] {
        let ask = |milliseconds| asked_at(&mut busy(), 25_000, class, tenant, milliseconds);
        assert_eq!(ask(wait), Err(wait), "{class} {tenant}");
        assert_eq!(ask(wait + 1), Ok(()), "{class} {tenant}");
    }
    // Nothing is served before a higher class.
    for tenant in [0, 1] {
        assert_eq!(asked_at(&mut busy(), 25_000, 4, tenant, 1), Ok(()));
    }
}

#[test]
fn a_rate_of_long_ago_refuses_nobody() {
    for (later, refused) in [(60_000, true), (60_001, false)] {
        let mut scheduler = busy();
        let asked = asked_at(&mut scheduler, 25_000 + later, 5, 0, 1);
        assert_eq!(asked.is_err(), refused, "{later}");
    }
}

#[test]
fn a_cached_prefix_does_not_pass_what_blocks_are_kept_for() {
    let policy = PolicyConfig {
        order: QueueOrder::Lpm,
        skip_ahead: Duration::ZERO,
        ..PolicyConfig::default()
    };
    let mut scheduler = up(8, policy);
    scheduler.group_up(at(0), GROUP, 8);
    scheduler.submit(at(0), request(1, [1; 17], 3)).unwrap();
    step(&mut scheduler, at(0));
    scheduler.submit(at(0), request(2, [2; 17], 1)).unwrap();
    assert_eq!(step(&mut scheduler, at(0)).0, []);
    scheduler.submit(at(0), request(3, [1; 6], 1)).unwrap();
    assert_eq!(order(&mut scheduler, at(0)), [2, 1]);
}

#[test]
fn the_cached_prefix_of_any_that_entered_lately_counts() {
    let policy = PolicyConfig {
        order: QueueOrder::Lpm,
        ..PolicyConfig::default()
    };
    let mut scheduler = up(1, policy);
    for id in [1, 2, 3] {
        scheduler
            .submit(at(0), request(u64::from(id), [id; 9], 1))
            .unwrap();
        order(&mut scheduler, at(0));
    }
    // The first of them entered before two others.
    scheduler.submit(at(0), request(10, [9; 9], 1)).unwrap();
    scheduler.submit(at(0), request(11, [1; 9], 1)).unwrap();
    scheduler.submit(at(0), request(12, [3; 9], 1)).unwrap();
    assert_eq!(order(&mut scheduler, at(0)), [3, 1, 9]);
}

#[test]
fn who_may_pass_is_looked_for_within_the_window() {
    for (window, tenants, passes) in [(3, 1, false), (4, 1, true), (3, 2, false), (4, 2, true)] {
        let policy = PolicyConfig {
            skip_ahead_window: window,
            ..PolicyConfig::default()
        };
        let mut scheduler = up(8, policy);
        scheduler.group_up(at(0), GROUP, 240);
        // It holds 220 blocks, and none of the next three fits beside it.
        scheduler.submit(at(0), request(1, [1; 880], 9)).unwrap();
        for _ in 0..4 {
            step(&mut scheduler, at(2));
        }
        for id in 2..=4 {
            let tenant = u64::from(id) % tenants;
            scheduler
                .submit(at(2), of_tenant(id, tenant, 400, 1))
                .unwrap();
        }
        scheduler.submit(at(2), of_tenant(5, 0, 8, 1)).unwrap();
        let (entered, _) = step(&mut scheduler, at(2));
        assert_eq!(entered == [5], passes, "{window} of {tenants}: {entered:?}");
    }
}

#[test]
fn a_cached_prefix_does_not_pass_what_is_overdue() {
    for (now, expected) in [(99, [1, 9]), (100, [9, 1])] {
        let policy = PolicyConfig {
            order: QueueOrder::Lpm,
            ageing_period: None,
            overdue_age: Some(Duration::from_millis(100)),
            ..PolicyConfig::default()
        };
        let mut scheduler = up(1, policy);
        scheduler.submit(at(0), request(1, [1; 9], 1)).unwrap();
        order(&mut scheduler, at(0));
        scheduler.submit(at(0), request(2, [9; 9], 1)).unwrap();
        scheduler.submit(at(50), request(3, [1; 9], 1)).unwrap();
        assert_eq!(order(&mut scheduler, at(now)), expected, "at {now}");
    }
}

#[test]
fn a_cached_prefix_does_not_pass_what_ran_before() {
    let policy = PolicyConfig {
        order: QueueOrder::Lpm,
        ..PolicyConfig::default()
    };
    let mut scheduler = up(1, policy);
    let now = at(0);
    scheduler.submit(now, request(1, [1; 17], 1)).unwrap();
    order(&mut scheduler, now);
    scheduler.submit(now, request(2, [9; 5], 3)).unwrap();
    assert_eq!(step(&mut scheduler, now).0, [9]);
    // Another gets the slot of what is paused.
    assert!(scheduler.pause(now, SequenceId(2)));
    scheduler.submit(now, request(3, [1; 17], 2)).unwrap();
    assert_eq!(step(&mut scheduler, now).0, [1]);
    scheduler.submit(now, request(4, [1; 17], 1)).unwrap();
    assert!(scheduler.resume(now, SequenceId(2)));
    assert_eq!(order(&mut scheduler, now), [9, 1]);
}
