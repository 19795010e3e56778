//! Workers that die, hang, lie and fail: a pause for their sequences, and an end for the one that is at fault.

use crate::engine_support::{Ending, Harness, Setup, VOCAB, faulty, read, run_and_compare};
use headrace_control::ToLauncher;
use headrace_fake_worker::{Fault, FaultKind, Script, Trigger, expected_output};
use headrace_router::engine::{HealthVerdict, Watchdog};
use headrace_scheduler::{FinishReason, SequenceFailure};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_breaks_the_group_costs_a_pause_only() {
    let kinds = [
        FaultKind::Die,
        FaultKind::BreakStream,
        FaultKind::WrongStepId,
        FaultKind::AnswerTwice,
        FaultKind::IdOutOfVocabulary,
        FaultKind::RowMissing,
    ];
    for kind in kinds {
        let first = vec![faulty(Trigger::Step(25), kind.clone())];
        let second = vec![faulty(Trigger::Step(9), FaultKind::Die)];
        let starts = vec![first, second, vec![Script::default()]];
        let harness = Harness::ready(Setup {
            starts,
            ..Setup::default()
        })
        .await;
        run_and_compare(&harness, 21, 40).await;
        assert_eq!(*harness.seen.starts.lock().unwrap(), 3, "{kind:?}");
        assert_eq!(harness.seen.kill_reasons().len(), 2, "{kind:?}");
        harness.check_books().await;
        assert!(matches!(
            harness.handle.status().health,
            HealthVerdict::Healthy
        ));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_ranks_dies() {
    let starts = vec![
        vec![Script::default(), faulty(Trigger::Step(12), FaultKind::Die)],
        vec![Script::default(), Script::default()],
    ];
    let harness = Harness::ready(Setup {
        starts,
        ..Setup::default()
    })
    .await;
    run_and_compare(&harness, 22, 20).await;
    assert!(harness.seen.kill_reasons()[0].starts_with("rank 1"));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_watchdog_sees_a_stopped_and_a_stuck_worker_but_not_a_slow_one() {
    let watchdog = Watchdog {
        silence: Duration::from_millis(300),
        step: Duration::from_millis(1200),
        period: Duration::from_millis(50),
        ..Watchdog::default()
    };
    let beating = |fault: FaultKind| Script {
        heartbeat_millis: Some(50),
        ..faulty(Trigger::Step(3), fault)
    };
    let cases = [
        (FaultKind::Freeze, Some("silent")),
        (FaultKind::Hang, Some("unanswered")),
        (FaultKind::SlowMillis(800), None),
    ];
    for (fault, reason) in cases {
        let healthy = Script {
            heartbeat_millis: Some(50),
            ..Script::default()
        };
        let starts = vec![vec![beating(fault.clone())], vec![healthy]];
        let mut setup = Setup {
            starts,
            ..Setup::default()
        };
        setup.config.watchdog = watchdog;
        let harness = Harness::ready(setup).await;
        run_and_compare(&harness, 31, 8).await;
        let reasons = harness.seen.kill_reasons();
        match reason {
            Some(words) => assert!(
                reasons.len() == 1 && reasons[0].contains(words),
                "{reasons:?}"
            ),
            None => assert!(reasons.is_empty(), "{fault:?}: {reasons:?}"),
        }
        harness.check_books().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_row_ends_its_own_request_only() {
    let bad = 999;
    for (kind, failure) in [
        (
            FaultKind::RowError(0),
            SequenceFailure::Row("scripted".to_owned()),
        ),
        (FaultKind::RowNotFinite(0), SequenceFailure::NonFinite),
    ] {
        let starts = vec![vec![faulty(Trigger::TokenId(bad), kind)]];
        let harness = Harness::ready(Setup {
            starts,
            ..Setup::default()
        })
        .await;
        let victim = harness.submit(&[5, 6, 7, 8, bad], 10).await.unwrap();
        let prompt: Vec<u32> = (0..30).collect();
        let expected = expected_output(&prompt, 10, &[], VOCAB);
        assert!(
            !expected.contains(&bad),
            "the prompt of this test was to be a harmless one"
        );
        let other = harness.submit(&prompt, 10).await.unwrap();
        assert_eq!(read(victim).await, (vec![], Ending::Failed(failure)));
        assert_eq!(
            read(other).await,
            (expected, Ending::Finished(FinishReason::Length))
        );
        harness.check_books().await;
        assert_eq!(*harness.seen.starts.lock().unwrap(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_steps_are_run_again() {
    // The first step waits until all requests are queued. A failure's sequences run alone for a while, and one that
    // fails alone ends, so the second failure comes after that.
    let faults = [
        (1, FaultKind::SlowMillis(150)),
        (6, FaultKind::FailStep),
        (40, FaultKind::OutOfMemory),
    ]
    .map(|(step, what)| Fault {
        when: Trigger::Step(step),
        what,
    })
    .to_vec();
    let starts = vec![vec![Script {
        faults,
        ..Script::default()
    }]];
    let harness = Harness::ready(Setup {
        starts,
        ..Setup::default()
    })
    .await;
    run_and_compare(&harness, 41, 20).await;
    harness.check_books().await;
    assert_eq!(*harness.seen.starts.lock().unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_shows_no_progress_is_killed_and_a_slow_one_is_not() {
    let stuck = Script {
        prepare_millis: 600_000,
        ..Script::default()
    };
    let slow = Script {
        prepare_millis: 1500,
        ..Script::default()
    };
    let mut setup = Setup {
        starts: vec![vec![stuck], vec![slow]],
        ..Setup::default()
    };
    setup.config.watchdog.start_silence = Duration::from_millis(600);
    setup.config.watchdog.period = Duration::from_millis(50);
    let harness = Harness::ready(setup).await;
    let reasons = harness.seen.kill_reasons();
    assert!(
        reasons.len() == 1 && reasons[0].contains("no progress"),
        "{reasons:?}"
    );
    run_and_compare(&harness, 33, 5).await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_request_that_kills_the_workers_is_found_and_ends_alone() {
    let deadly = 999;
    for max_steps_in_flight in [1, 2] {
        let kills = faulty(Trigger::TokenId(deadly), FaultKind::Die);
        let mut setup = Setup {
            starts: vec![vec![kills]],
            ..Setup::default()
        };
        setup.config.max_steps_in_flight = max_steps_in_flight;
        let harness = Harness::ready(setup).await;
        let mut good = Vec::new();
        for index in 0..12 {
            let prompt: Vec<u32> = (0..20).map(|position| index * 30 + position).collect();
            let expected = expected_output(&prompt, 30, &[], VOCAB);
            if expected.contains(&deadly) {
                continue;
            }
            let stream = harness.submit(&prompt, 30).await.unwrap();
            good.push((tokio::spawn(read(stream)), expected));
        }
        let victim = harness.submit(&[5, 6, 7, 8, deadly], 10).await.unwrap();
        assert_eq!(
            read(victim).await,
            (vec![], Ending::Failed(SequenceFailure::WorkerCrash))
        );
        assert!(good.len() > 8);
        for (task, expected) in good {
            assert_eq!(
                task.await.unwrap(),
                (expected, Ending::Finished(FinishReason::Length))
            );
        }
        harness.check_books().await;
        harness
            .wait_until("no suspects", |harness| {
                harness.handle.status().stats.suspects == 0
            })
            .await;
        let said: Vec<bool> = harness
            .seen
            .messages
            .lock()
            .unwrap()
            .iter()
            .filter_map(|message| match message {
                ToLauncher::Isolation { suspects, .. } => Some(*suspects > 0),
                _ => None,
            })
            .collect();
        assert_eq!(said, [true, false], "the search has a beginning and an end");
    }
}

/// Twenty at once: each dies of its own, and who stood beside them loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_that_kill_the_workers_all_end_and_the_others_go_on() {
    let deadly = 999;
    let kills = faulty(Trigger::TokenId(deadly), FaultKind::Die);
    let harness = Harness::ready(Setup {
        starts: vec![vec![kills]],
        ..Setup::default()
    })
    .await;
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for index in 0..20 {
        let prompt: Vec<u32> = (0..20).map(|position| index * 30 + position).collect();
        let expected = expected_output(&prompt, 30, &[], VOCAB);
        if !expected.contains(&deadly) && !prompt.contains(&deadly) {
            let stream = harness.submit(&prompt, 30).await.unwrap();
            good.push((tokio::spawn(read(stream)), expected));
        }
        let victim = harness.submit(&[index, 6, 7, deadly], 10).await.unwrap();
        bad.push(tokio::spawn(read(victim)));
    }
    for victim in bad {
        assert_eq!(
            victim.await.unwrap(),
            (vec![], Ending::Failed(SequenceFailure::WorkerCrash))
        );
    }
    assert!(good.len() > 12);
    for (task, expected) in good {
        assert_eq!(
            task.await.unwrap(),
            (expected, Ending::Finished(FinishReason::Length))
        );
    }
    harness.check_books().await;
}
