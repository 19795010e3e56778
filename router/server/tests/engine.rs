//! The engine against fake workers over real sockets: right ids, exact ends, full books, in every kind of trouble.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

mod engine_support;

use engine_support::{Dice, Ending, Harness, Setup, VOCAB, read};
use headrace_control::{ToLauncher, ToRouter};
use headrace_fake_worker::{
    FakeWorker, Fault, FaultKind, Script, Trigger, expected_output, expected_sampled_output,
};
use headrace_router::engine::{
    EngineEnd, HealthVerdict, LauncherLink, RunningEngine, SubmitFailure, Watchdog,
};
use headrace_router::health;
use headrace_router::metrics::Metrics;
use headrace_scheduler::{
    FinishReason, SamplingParams, SequenceFailure, SequenceRequest, StopConditions, SubmitError,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn faulty(when: Trigger, what: FaultKind) -> Script {
    Script {
        faults: vec![Fault { when, what }],
        ..Script::default()
    }
}

/// Runs `count` requests at once and compares every id with an undisturbed run's.
async fn run_and_compare(harness: &Harness, seed: u64, count: usize) {
    let mut dice = Dice(seed);
    let mut running = Vec::new();
    for index in 0..count {
        let prompt = dice.prompt(120);
        let tokens = 1 + dice.below(40);
        let mut request = harness.request(&prompt, tokens);
        let end_id = dice.below(VOCAB);
        request.stop.eos_token_ids = vec![end_id].into();
        let expected = if index % 3 == 0 {
            request.sampling.do_sample = true;
            request.sampling.seed = seed + index as u64;
            expected_sampled_output(
                &prompt,
                tokens as usize,
                &[end_id],
                VOCAB,
                request.sampling.seed,
            )
        } else {
            expected_output(&prompt, tokens as usize, &[end_id], VOCAB)
        };
        let reason = if expected.last() == Some(&end_id) {
            FinishReason::Eos
        } else {
            FinishReason::Length
        };
        let stream = harness.handle.submit(request).await.unwrap();
        running.push((tokio::spawn(read(stream)), expected, reason));
    }
    for (index, (task, expected, reason)) in running.into_iter().enumerate() {
        let (ids, ending) = task.await.unwrap();
        assert_eq!(ending, Ending::Finished(reason), "request {index}");
        assert_eq!(ids, expected, "request {index}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_give_exactly_the_models_ids() {
    for (num_blocks, max_batch_tokens, prefix_caching) in [
        (512, 64, true),
        (512, 7, true),
        (48, 64, true),
        (48, 16, false),
    ] {
        let mut setup = Setup {
            num_blocks,
            ..Setup::default()
        };
        setup.config.max_batch_tokens = max_batch_tokens;
        setup.config.prefix_caching = prefix_caching;
        let harness = Harness::ready(setup).await;
        run_and_compare(&harness, 7, 60).await;
        let stats = harness.check_books().await;
        assert_eq!(stats.prefix_hit_tokens > 0, prefix_caching, "{stats:?}");
        if num_blocks == 48 {
            assert!(
                stats.preemptions > 0,
                "the pool was to be too small: {stats:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_ranks_are_one_group() {
    let setup = Setup {
        starts: vec![vec![
            Script::default(),
            Script::default(),
            Script::default(),
        ]],
        ..Setup::default()
    };
    let harness = Harness::ready(setup).await;
    run_and_compare(&harness, 3, 30).await;
    harness.check_books().await;
    let steps: Vec<u64> = harness
        .seen
        .workers
        .lock()
        .unwrap()
        .iter()
        .map(FakeWorker::steps)
        .collect();
    assert!(
        steps[0] > 10 && steps.iter().all(|count| *count == steps[0]),
        "{steps:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_steps_in_flight_change_nothing() {
    let mut setup = Setup::default();
    setup.config.max_steps_in_flight = 2;
    let harness = Harness::ready(setup).await;
    run_and_compare(&harness, 5, 40).await;
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_cancels_leaves_nothing_behind() {
    let mut setup = Setup {
        num_blocks: 64,
        ..Setup::default()
    };
    setup.config.max_batch_tokens = 24;
    setup.starts = vec![vec![Script {
        step_micros: 300,
        ..Script::default()
    }]];
    let harness = Harness::ready(setup).await;
    let mut dice = Dice(11);
    let mut tasks = Vec::new();
    for index in 0..240u64 {
        let prompt = dice.prompt(150);
        let tokens = 1 + dice.below(60);
        let patience = u64::from(dice.below(60_000));
        let request = harness.request(&prompt, tokens);
        let expected = expected_output(&prompt, tokens as usize, &[], VOCAB);
        let handle = harness.handle.clone();
        tasks.push(tokio::spawn(async move {
            let patience = Duration::from_micros(if index % 10 == 0 { 0 } else { patience });
            let outcome = tokio::time::timeout(patience, async {
                let (ids, ending) = read(handle.submit(request).await.unwrap()).await;
                assert_eq!(
                    (ids, ending),
                    (expected, Ending::Finished(FinishReason::Length))
                );
            });
            // Late: dropping the future dropped the stream, in whatever state the sequence was.
            outcome.await.is_ok()
        }));
    }
    let mut finished = 0;
    for task in tasks {
        finished += u32::from(task.await.unwrap());
    }
    assert!(finished < 200, "{finished} finished: the storm was none");
    harness.check_books().await;
    run_and_compare(&harness, 12, 10).await;
    harness.check_books().await;
}

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
async fn the_pool_bounds_one_sequence_and_refusals_are_by_name() {
    let harness = Harness::ready(Setup {
        num_blocks: 8,
        ..Setup::default()
    })
    .await;
    let limits = harness.handle.status().limits.unwrap();
    assert_eq!(limits.max_total_tokens, 32);
    let prompt = [7; 20];
    let failure = harness.submit(&prompt, 13).await.unwrap_err();
    assert!(matches!(
        failure,
        SubmitFailure::Queue(SubmitError::TooLong {
            needed: 33,
            limit: 32
        })
    ));
    let stream = harness.submit(&prompt, 12).await.unwrap();
    assert_eq!(
        read(stream).await.0,
        expected_output(&prompt, 12, &[], VOCAB)
    );
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_never_reads_delays_nobody() {
    let harness = Harness::ready(Setup::default()).await;
    let unread = harness.submit(&[1, 2, 3], 1500).await.unwrap();
    let expected = expected_output(&[9, 9], 50, &[], VOCAB);
    for _ in 0..20 {
        let stream = harness.submit(&[9, 9], 50).await.unwrap();
        assert_eq!(read(stream).await.0, expected);
    }
    harness
        .wait_until("over", |harness| harness.handle.status().stats.running == 0)
        .await;
    let (ids, ending) = read(unread).await;
    assert_eq!(ending, Ending::Finished(FinishReason::Length));
    assert_eq!(ids, expected_output(&[1, 2, 3], 1500, &[], VOCAB));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_logprobs_cover_every_position_but_the_first() {
    let harness = Harness::ready(Setup::default()).await;
    let prompt: Vec<u32> = (50..250).collect();
    // Cached by the first, and still computed by the second.
    read(harness.submit(&prompt, 4).await.unwrap()).await;
    let mut request = harness.request(&prompt, 4);
    request.prompt_logprobs = true;
    request.sampling.top_n = 3;
    let mut stream = harness.handle.submit(request).await.unwrap();
    let mut positions = Vec::new();
    while let Some(event) = stream.recv().await {
        if let headrace_router::engine::SequenceEvent::PromptLogprobs(tokens) = event {
            assert!(
                tokens
                    .iter()
                    .all(|token| token.logprob.is_some() && token.top.len() == 3)
            );
            positions.extend(tokens.into_iter().map(|token| token.id));
        }
    }
    assert_eq!(positions, prompt[1..]);
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
    let request = SequenceRequest {
        id: handle.next_sequence_id(),
        prompt: [1].into(),
        sampling: SamplingParams::greedy(),
        stop: StopConditions {
            max_new_tokens: 1,
            ..StopConditions::default()
        },
        prompt_logprobs: false,
        priority: 0,
        tenant: 0,
        deadline: None,
        namespace: 0,
        constrained: false,
        retention: headrace_scheduler::Retention::default(),
    };
    assert_eq!(
        handle.submit(request).await.unwrap_err(),
        SubmitFailure::EngineGone
    );
}
