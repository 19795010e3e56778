//! Start, health, drain and the engine's end.

use crate::engine_support::{Ending, Harness, Setup, VOCAB, read};
use headrace_control::{ToLauncher, ToRouter};
use headrace_fake_worker::{Script, expected_output};
use headrace_router::engine::{
    EngineEnd, HealthVerdict, LauncherLink, RunningEngine, SubmitFailure,
};
use headrace_router::health;
use headrace_router::metrics::Metrics;
use headrace_scheduler::{FinishReason, SequenceRequest};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_finishes_what_was_admitted_and_ends() {
    let slow = Script {
        step_micros: 2000,
        ..Script::default()
    };
    let harness = Harness::ready(Setup {
        starts: vec![vec![slow]],
        ..Setup::default()
    })
    .await;
    let stream = harness.submit(&[1, 2, 3], 60).await.unwrap();
    harness
        .control
        .send(ToRouter::Drain { grace_seconds: 30 })
        .unwrap();
    harness
        .wait_until("draining", |harness| harness.handle.status().draining)
        .await;
    let status = harness.handle.status();
    assert_eq!(
        (
            health::health(&status).status,
            health::ready(&status).status
        ),
        (200, 503)
    );
    assert_eq!(
        harness.submit(&[1], 1).await.unwrap_err(),
        SubmitFailure::Draining
    );
    let expected = expected_output(&[1, 2, 3], 60, &[], VOCAB);
    assert_eq!(
        read(stream).await,
        (expected, Ending::Finished(FinishReason::Length))
    );
    assert_eq!(harness.engine.ended().await, Ok(EngineEnd::Drained));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_grace_time_ends_a_drain() {
    let slow = Script {
        step_micros: 20_000,
        ..Script::default()
    };
    let mut setup = Setup {
        starts: vec![vec![slow]],
        ..Setup::default()
    };
    setup.config.watchdog.period = Duration::from_millis(50);
    let harness = Harness::ready(setup).await;
    let stream = harness.submit(&[1, 2, 3], 1000).await.unwrap();
    let begun = Instant::now();
    harness
        .control
        .send(ToRouter::Drain { grace_seconds: 1 })
        .unwrap();
    let (ids, ending) = read(stream).await;
    assert!(!ids.is_empty() && ids.len() < 1000);
    assert!(
        matches!(&ending, Ending::Other(why) if why.contains("grace time")),
        "{ending:?}"
    );
    assert_eq!(harness.engine.ended().await, Ok(EngineEnd::Drained));
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(5),
        "{took:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_and_readiness_follow_the_group() {
    let preparing = Script {
        prepare_millis: 300,
        ..Script::default()
    };
    let starts = vec![
        vec![preparing.clone()],
        vec![Script {
            prepare_millis: 600,
            ..preparing
        }],
    ];
    let setup = Setup {
        starts,
        services_ready: false,
        ..Setup::default()
    };
    let harness = Harness::start(setup);
    let probes = |harness: &Harness| {
        let status = harness.handle.status();
        (
            health::health(&status).status,
            health::ready(&status).status,
        )
    };
    assert_eq!(probes(&harness), (503, 503));
    assert_eq!(
        harness.submit(&[1], 1).await.unwrap_err(),
        SubmitFailure::NotReady
    );
    harness
        .wait_until("progress", |harness| {
            health::ready(&harness.handle.status())
                .body
                .contains("weights: ")
        })
        .await;
    harness
        .wait_until("up", |harness| harness.handle.status().limits.is_some())
        .await;
    // The tokenizer is still being built.
    assert_eq!(probes(&harness), (503, 503));
    assert_eq!(
        harness.submit(&[1], 1).await.unwrap_err(),
        SubmitFailure::NotReady
    );
    harness.handle.services_ready();
    harness
        .wait_until("ready", |harness| probes(harness) == (200, 200))
        .await;

    // A killed worker: alive, not ready, and requests queue.
    harness.seen.workers.lock().unwrap()[0].kill();
    harness
        .wait_until("down", |harness| probes(harness) == (200, 503))
        .await;
    let stream = harness.submit(&[4, 5], 6).await.unwrap();
    harness
        .wait_until("queued", |harness| {
            harness.handle.status().stats.waiting == 1
        })
        .await;
    let expected = expected_output(&[4, 5], 6, &[], VOCAB);
    assert_eq!(
        read(stream).await,
        (expected, Ending::Finished(FinishReason::Length))
    );
    assert_eq!(probes(&harness), (200, 200));

    // Said for each start, so that the launcher can tell of the restart's end.
    let ready = harness
        .seen
        .messages
        .lock()
        .unwrap()
        .iter()
        .filter(|message| matches!(message, ToLauncher::Ready { .. }))
        .count();
    assert_eq!(ready, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spent_restarts_end_what_is_open() {
    let harness = Harness::ready(Setup::default()).await;
    let open = harness.submit(&[4, 5], 2000).await.unwrap();
    let cause = "it died 5 times".to_owned();
    harness
        .control
        .send(ToRouter::GroupDown {
            group: 0,
            cause,
            is_final: true,
        })
        .unwrap();
    harness
        .wait_until("unhealthy", |harness| {
            let status = harness.handle.status();
            (
                health::health(&status).status,
                health::ready(&status).status,
            ) == (503, 503)
        })
        .await;
    assert!(matches!(read(open).await.1, Ending::Other(why) if why.contains("5 times")));
    assert_eq!(
        harness.submit(&[1], 1).await.unwrap_err(),
        SubmitFailure::NotReady
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_final_refusal_goes_to_the_launcher_in_one_line() {
    let script: Script = serde_json::from_str(
        r#"{"prepare_error": {"is_final": true, "message": "model.safetensors: no tensor x"}}"#,
    )
    .unwrap();
    let harness = Harness::start(Setup {
        starts: vec![vec![script]],
        ..Setup::default()
    });
    harness
        .wait_until("failed", |harness| {
            harness.seen.messages.lock().unwrap().iter().any(|message| {
                matches!(message, ToLauncher::Failed { cause, is_final: true }
                    if cause.contains("model.safetensors: no tensor x"))
            })
        })
        .await;
    assert!(harness.seen.kill_reasons().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engine_ends_with_the_launcher() {
    let (control, receiver) = tokio::sync::mpsc::unbounded_channel();
    let (link, _outgoing) = LauncherLink::channel();
    let metrics = Arc::new(Metrics::new());
    let engine = RunningEngine::start(Setup::default().config, receiver, link, metrics).unwrap();
    let handle = engine.handle();
    assert_eq!(handle.status().health, HealthVerdict::Starting);
    drop(control);
    assert_eq!(engine.ended().await, Ok(EngineEnd::LauncherGone));
    let request = SequenceRequest::greedy(handle.next_sequence_id(), [1], 1);
    assert_eq!(
        handle.submit(request, None).await.unwrap_err(),
        SubmitFailure::EngineGone
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_the_engine_ends_it_with_the_cause() {
    let (control, receiver) = tokio::sync::mpsc::unbounded_channel();
    let (link, _outgoing) = LauncherLink::channel();
    let mut config = Setup::default().config;
    // The flags cannot give this; the scheduler refuses it by a panic.
    config.block_size = 0;
    let engine = RunningEngine::start(config, receiver, link, Arc::new(Metrics::new())).unwrap();
    let handle = engine.handle();
    let model = crate::engine_support::document();
    control.send(ToRouter::Model(Box::new(model))).unwrap();
    let cause = engine.ended().await.unwrap_err();
    assert_eq!(cause, "the engine panicked: a block and a slot at least");
    assert!(handle.flush_cache().await.is_none());
}
