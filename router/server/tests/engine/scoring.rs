//! Logprobs of prompts, told while the workers under them die.

use crate::engine_support::{Harness, Setup, VOCAB, faulty, run_and_compare};
use headrace_fake_worker::{FaultKind, Script, Trigger, expected_output, expected_prompt_logprobs};
use headrace_router::engine::{SequenceEvent, SequenceStream};

/// Ids and logprobs of the prompt in the order in which they were told, and the output.
async fn read(mut stream: SequenceStream) -> (Vec<(u32, f32)>, Vec<u32>) {
    let (mut told, mut output) = (Vec::new(), Vec::new());
    while let Some(event) = stream.recv().await {
        match event {
            SequenceEvent::PromptLogprobs(tokens) => {
                assert!(output.is_empty(), "the prompt comes before the output");
                for token in tokens {
                    // Best first, and the id's own place in that order.
                    let rank = token.rank.unwrap() as usize;
                    assert_eq!(token.top.len(), 3);
                    assert_eq!(token.top[rank - 1], (token.id, token.logprob.unwrap()));
                    told.push((token.id, token.logprob.unwrap()));
                }
            }
            SequenceEvent::Token(token) => output.push(token.id),
            SequenceEvent::Started { .. } | SequenceEvent::Finished(_) => {}
            other => panic!("{other:?}"),
        }
    }
    (told, output)
}

/// Prompts of hundreds of ids in chunks of at most 16, beside others that decode; the group dies several times meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_die_while_prompts_are_scored_cost_a_pause_and_each_place_is_told_once() {
    for (kind, in_flight) in [
        (FaultKind::Die, 1),
        (FaultKind::Die, 2),
        (FaultKind::BreakStream, 2),
        (FaultKind::FailStep, 1),
    ] {
        let life = |step| vec![faulty(Trigger::Step(step), kind.clone())];
        let mut setup = Setup {
            starts: vec![life(11), life(7), life(1), vec![Script::default()]],
            ..Setup::default()
        };
        setup.config.max_batch_tokens = 16;
        setup.config.max_steps_in_flight = in_flight;
        let harness = Harness::ready(setup).await;
        let mut scored = Vec::new();
        for seed in 0..3_u32 {
            // No id repeats within a chunk, so a place told twice or left out shows.
            let prompt: Vec<u32> = (0..400 + seed * 37)
                .map(|at| (at * 7 + seed) % VOCAB)
                .collect();
            let mut request = harness.request(&prompt, 5);
            request.prompt_logprobs = true;
            request.sampling.prompt_top_n = 3;
            let stream = harness.handle.submit(request, None).await.unwrap();
            scored.push((prompt, tokio::spawn(read(stream))));
        }
        run_and_compare(&harness, 91, 6).await;
        for (prompt, task) in scored {
            let (told, output) = task.await.unwrap();
            let logprobs = expected_prompt_logprobs(&prompt, VOCAB);
            let expected: Vec<_> = prompt[1..].iter().copied().zip(logprobs).collect();
            assert_eq!(told, expected, "{kind:?}, {in_flight} in flight");
            assert_eq!(output, expected_output(&prompt, 5, &[], VOCAB));
        }
        if kind != FaultKind::FailStep {
            assert_eq!(harness.seen.kill_reasons().len(), 3, "{kind:?}");
        }
        harness.check_books().await;
    }
}

/// A preemption takes the blocks of a prompt that was told: it is computed again, and not told again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preempted_prompts_are_told_once() {
    let mut setup = Setup {
        num_blocks: 130,
        ..Setup::default()
    };
    setup.config.max_batch_tokens = 24;
    let harness = Harness::ready(setup).await;
    let mut scored = Vec::new();
    for seed in 0..4_u32 {
        let prompt: Vec<u32> = (0..180).map(|at| (at * 11 + seed * 5) % VOCAB).collect();
        let mut request = harness.request(&prompt, 160);
        request.prompt_logprobs = true;
        request.sampling.prompt_top_n = 3;
        let stream = harness.handle.submit(request, None).await.unwrap();
        scored.push((prompt, tokio::spawn(read(stream))));
    }
    for (prompt, task) in scored {
        let (told, output) = task.await.unwrap();
        let logprobs = expected_prompt_logprobs(&prompt, VOCAB);
        let expected: Vec<_> = prompt[1..].iter().copied().zip(logprobs).collect();
        assert_eq!(told, expected);
        assert_eq!(output, expected_output(&prompt, 160, &[], VOCAB));
    }
    let stats = harness.check_books().await;
    assert!(stats.recomputed_tokens > 0, "nothing was preempted");
}
