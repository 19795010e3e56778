//! Clients that read slowly or not at all.

use crate::engine_support::{Ending, Harness, Setup, VOCAB, read};
use headrace_fake_worker::expected_output;
use headrace_router::engine::{SequenceEvent, SequenceStream};
use headrace_scheduler::FinishReason;
use std::time::{Duration, Instant};

/// More than a buffer holds.
const LONG: u32 = 900;

async fn paused(harness: &Harness) {
    harness
        .wait_until("paused", |harness| {
            let stats = harness.handle.status().stats;
            stats.paused == 1 && stats.steps_in_flight == 0
        })
        .await;
}

/// What can be read at once.
fn buffered(stream: &mut SequenceStream) -> usize {
    std::iter::from_fn(|| stream.try_recv()).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_never_reads_pauses_its_own_sequence_only() {
    for max_steps_in_flight in [1, 2] {
        let mut setup = Setup::default();
        setup.config.max_steps_in_flight = max_steps_in_flight;
        let harness = Harness::ready(setup).await;
        let unread = harness.submit(&[1, 2, 3], LONG).await.unwrap();
        let expected = expected_output(&[9, 9], 50, &[], VOCAB);
        for _ in 0..20 {
            let stream = harness.submit(&[9, 9], 50).await.unwrap();
            assert_eq!(read(stream).await.0, expected);
        }
        paused(&harness).await;
        let before = harness.handle.status().stats.steps_completed;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(harness.handle.status().stats.steps_completed, before);
        // It goes on when it is read.
        let (ids, ending) = read(unread).await;
        assert_eq!(ending, Ending::Finished(FinishReason::Length));
        assert_eq!(ids, expected_output(&[1, 2, 3], LONG as usize, &[], VOCAB));
        assert_eq!(harness.check_books().await.paused, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_unread_stream_holds_is_bounded() {
    let mut setup = Setup::default();
    setup.config.max_steps_in_flight = 2;
    let harness = Harness::ready(setup).await;
    let mut unread = harness.submit(&[1, 2, 3], LONG).await.unwrap();
    paused(&harness).await;
    let held = buffered(&mut unread);
    assert!((128..=140).contains(&held), "{held} events");
    drop(unread);
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_prompt_logprobs_pause_the_prefill() {
    let mut setup = Setup::default();
    setup.config.max_batch_tokens = 1;
    let harness = Harness::ready(setup).await;
    let prompt: Vec<u32> = (1..400).collect();
    let mut request = harness.request(&prompt, 3);
    request.prompt_logprobs = true;
    let mut stream = harness.handle.submit(request, None).await.unwrap();
    paused(&harness).await;
    assert!(harness.handle.status().stats.steps_completed < 200);
    let (mut positions, mut last) = (Vec::new(), None);
    while let Some(event) = stream.recv().await {
        if let SequenceEvent::PromptLogprobs(tokens) = &event {
            positions.extend(tokens.iter().map(|token| token.id));
        }
        last = Some(event);
    }
    assert_eq!(positions, prompt[1..]);
    assert_eq!(last, Some(SequenceEvent::Finished(FinishReason::Length)));
    harness.check_books().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_sequences_blocks_are_taken_under_pressure_and_computed_again() {
    let harness = Harness::ready(Setup {
        num_blocks: 60,
        ..Setup::default()
    })
    .await;
    let unread = harness.submit(&[1, 2, 3], 200).await.unwrap();
    paused(&harness).await;
    let held = harness.handle.status().stats.owned_blocks;
    assert!(held > 30, "{held} blocks");
    // 50 of 60 blocks: not beside those of the paused one.
    let stream = harness.submit(&[9, 9], 198).await.unwrap();
    let expected = expected_output(&[9, 9], 198, &[], VOCAB);
    assert_eq!(
        read(stream).await,
        (expected, Ending::Finished(FinishReason::Length))
    );
    let (ids, ending) = read(unread).await;
    assert_eq!(ending, Ending::Finished(FinishReason::Length));
    assert_eq!(ids, expected_output(&[1, 2, 3], 200, &[], VOCAB));
    assert!(harness.check_books().await.recomputed_tokens > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_sequence_outlives_its_workers() {
    let harness = Harness::ready(Setup::default()).await;
    let unread = harness.submit(&[1, 2, 3], LONG).await.unwrap();
    paused(&harness).await;
    harness.seen.workers.lock().unwrap()[0].kill();
    harness
        .wait_until("up again", |harness| {
            *harness.seen.starts.lock().unwrap() == 2 && harness.handle.status().ready
        })
        .await;
    assert_eq!(harness.handle.status().stats.paused, 1);
    let (ids, ending) = read(unread).await;
    assert_eq!(ending, Ending::Finished(FinishReason::Length));
    assert_eq!(ids, expected_output(&[1, 2, 3], LONG as usize, &[], VOCAB));
    harness.check_books().await;
}

fn impatient() -> Setup {
    let mut setup = Setup::default();
    setup.config.stall_timeout = Duration::from_millis(400);
    setup.config.watchdog.period = Duration::from_millis(20);
    setup
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_stream_is_dropped_and_says_so_to_a_late_reader() {
    let harness = Harness::ready(impatient()).await;
    let unread = harness.submit(&[1, 2, 3], LONG).await.unwrap();
    paused(&harness).await;
    // Its blocks are given back although nobody reads.
    harness.check_books().await;
    let (ids, ending) = read(unread).await;
    assert!(
        matches!(&ending, Ending::Other(why) if why.contains("too slowly")),
        "{ending:?}"
    );
    let expected = expected_output(&[1, 2, 3], LONG as usize, &[], VOCAB);
    assert!(ids.len() > 100 && expected.starts_with(&ids));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_not_a_stalled_one() {
    let harness = Harness::ready(impatient()).await;
    let mut stream = harness.submit(&[1, 2, 3], 300).await.unwrap();
    paused(&harness).await;
    let begun = Instant::now();
    let mut ids = Vec::new();
    let last = loop {
        if begun.elapsed() < Duration::from_secs(2) {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        match stream.recv().await {
            Some(SequenceEvent::Token(token)) => ids.push(token.id),
            Some(SequenceEvent::Started { .. }) => {}
            other => break other,
        }
    };
    assert_eq!(last, Some(SequenceEvent::Finished(FinishReason::Length)));
    assert_eq!(ids, expected_output(&[1, 2, 3], 300, &[], VOCAB));
    harness.check_books().await;
}
