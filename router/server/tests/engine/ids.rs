//! Right ids and full books, whatever runs beside.

use crate::engine_support::{Dice, Ending, Harness, Setup, VOCAB, read, run_and_compare};
use headrace_fake_worker::{FakeWorker, Script, expected_output};
use headrace_router::engine::SubmitFailure;
use headrace_scheduler::{FinishReason, SubmitError};
use std::time::Duration;

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
async fn prompt_logprobs_cover_every_position_but_the_first() {
    let harness = Harness::ready(Setup::default()).await;
    let prompt: Vec<u32> = (50..250).collect();
    // Cached by the first, and still computed by the second.
    read(harness.submit(&prompt, 4).await.unwrap()).await;
    let mut request = harness.request(&prompt, 4);
    request.prompt_logprobs = true;
    request.sampling.prompt_top_n = 3;
    let mut stream = harness.handle.submit(request, None).await.unwrap();
    let mut positions = Vec::new();
    while let Some(event) = stream.recv().await {
        if let headrace_router::engine::SequenceEvent::PromptLogprobs(tokens) = event {
            assert!(tokens.iter().all(|token| token.logprob.is_some()
                && token.rank.is_some()
                && token.top.len() == 3));
            positions.extend(tokens.into_iter().map(|token| token.id));
        }
    }
    assert_eq!(positions, prompt[1..]);
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
                let (ids, ending) = read(handle.submit(request, None).await.unwrap()).await;
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
