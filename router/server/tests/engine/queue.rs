//! What waits, and what operators ask of it: deadlines, flushes, a drain.

use crate::engine_support::{Ending, Harness, Setup, VOCAB, read};
use headrace_control::ToLauncher;
use headrace_fake_worker::{Fault, FaultKind, Script, Trigger, expected_output};
use headrace_router::engine::SequenceEvent;
use headrace_scheduler::{FinishReason, SequenceFailure};
use std::time::{Duration, Instant};

const LATE: Ending = Ending::Failed(SequenceFailure::DeadlineExceeded);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_passes_while_no_group_is_up() {
    let slow_start = Script {
        prepare_millis: 30_000,
        ..Script::default()
    };
    let harness = Harness::ready(Setup {
        starts: vec![vec![Script::default()], vec![slow_start]],
        ..Setup::default()
    })
    .await;
    harness.seen.workers.lock().unwrap()[0].kill();
    harness
        .wait_until("down", |harness| !harness.handle.status().ready)
        .await;
    let mut request = harness.request(&[1, 2, 3], 5);
    let due = Instant::now() + Duration::from_millis(150);
    request.deadline = Some(harness.handle.time_of(due));
    let stream = harness.handle.submit(request, None).await.unwrap();
    assert_eq!(read(stream).await, (vec![], LATE));
    assert!(Instant::now() >= due);
    harness
        .wait_until("counted", |harness| {
            let stats = harness.handle.status().stats;
            (stats.waiting, stats.deadlines_exceeded) == (0, 1)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_passes_while_a_step_runs() {
    let long_step = Script {
        faults: vec![Fault {
            when: Trigger::Step(2),
            what: FaultKind::SlowMillis(1500),
        }],
        ..Script::default()
    };
    let mut setup = Setup {
        starts: vec![vec![long_step]],
        ..Setup::default()
    };
    setup.config.max_sequences = 1;
    let harness = Harness::ready(setup).await;
    let running = harness.submit(&[1, 2, 3], 4).await.unwrap();
    harness
        .wait_until("in the long step", |harness| {
            let stats = harness.handle.status().stats;
            stats.steps_completed == 1 && stats.steps_in_flight == 1
        })
        .await;
    let mut request = harness.request(&[4, 5], 5);
    request.deadline = Some(
        harness
            .handle
            .time_of(Instant::now() + Duration::from_millis(100)),
    );
    let begun = Instant::now();
    let late = harness.handle.submit(request, None).await.unwrap();
    assert_eq!(read(late).await, (vec![], LATE));
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "it was told with the step only"
    );
    let expected = expected_output(&[1, 2, 3], 4, &[], VOCAB);
    assert_eq!(
        read(running).await,
        (expected, Ending::Finished(FinishReason::Length))
    );
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_is_told_while_its_first_step_runs() {
    let long_step = Script {
        faults: vec![Fault {
            when: Trigger::Step(1),
            what: FaultKind::SlowMillis(3000),
        }],
        ..Script::default()
    };
    let harness = Harness::ready(Setup {
        starts: vec![vec![long_step]],
        ..Setup::default()
    })
    .await;
    let mut stream = harness.submit(&[1, 2, 3], 4).await.unwrap();
    let first = stream.recv().await;
    assert!(
        matches!(first, Some(SequenceEvent::Started { .. })),
        "{first:?}"
    );
    harness
        .wait_until("in its first step", |harness| {
            let stats = harness.handle.status().stats;
            (stats.steps_completed, stats.running) == (0, 1)
        })
        .await;
    let mut heard = 0;
    while let Some(event) = stream.recv().await {
        assert!(!matches!(event, SequenceEvent::Started { .. }), "twice");
        heard += usize::from(matches!(event, SequenceEvent::Token(_)));
    }
    assert_eq!(heard, 4);
}

/// Prompt tokens that the prefix cache had.
async fn cached_tokens(harness: &Harness, prompt: &[u32]) -> u32 {
    let mut stream = harness.submit(prompt, 2).await.unwrap();
    let mut cached = 0;
    while let Some(event) = stream.recv().await {
        if let SequenceEvent::Started { cached_tokens, .. } = event {
            cached = cached_tokens;
        }
    }
    cached
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_empties_the_prefix_cache() {
    let harness = Harness::ready(Setup::default()).await;
    let prompt: Vec<u32> = (100..140).collect();
    assert_eq!(cached_tokens(&harness, &prompt).await, 0);
    assert_eq!(cached_tokens(&harness, &prompt).await, 39);
    let cached = harness.check_books().await.cached_blocks;
    assert!(cached >= 10);
    let flushed = harness.handle.flush_cache().await.unwrap();
    assert_eq!(
        (flushed.freed_blocks as u64, flushed.kept_blocks),
        (cached, 0)
    );
    harness
        .wait_until("flushed", |harness| {
            harness.handle.status().stats.cached_blocks == 0
        })
        .await;
    assert_eq!(cached_tokens(&harness, &prompt).await, 0);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_asked_for_over_http_goes_to_the_launcher() {
    let harness = Harness::ready(Setup::default()).await;
    harness.handle.request_drain();
    harness
        .wait_until("asked", |harness| {
            let messages = harness.seen.messages.lock().unwrap();
            messages
                .iter()
                .any(|message| matches!(message, ToLauncher::DrainRequested))
        })
        .await;
    // The launcher decides.
    assert!(!harness.handle.status().draining);
}
