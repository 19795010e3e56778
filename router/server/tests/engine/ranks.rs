//! Several ranks of one group: what one of them does differently is the group's, and costs each sequence one resumption.

use crate::engine_support::{Ending, Harness, Setup, VOCAB, faulty, read};
use headrace_fake_worker::{FakeWorker, Fault, FaultKind, Script, Trigger, expected_output};
use headrace_scheduler::{FinishReason, SequenceFailure};

/// Requests that all run when the fault comes.
const RUNNING: u32 = 6;

/// The first step takes long, so that all are there in the second one.
fn patient() -> Fault {
    Fault {
        when: Trigger::Step(1),
        what: FaultKind::SlowMillis(200),
    }
}

fn at_step(step: u64, what: FaultKind) -> Script {
    let when = Trigger::Step(step);
    Script {
        faults: vec![patient(), Fault { when, what }],
        ..Script::default()
    }
}

fn undisturbed() -> Script {
    Script {
        faults: vec![patient()],
        ..Script::default()
    }
}

/// Runs requests of 40 ids each, and compares.
async fn run(harness: &Harness) {
    let mut streams = Vec::new();
    for index in 0..RUNNING {
        let prompt: Vec<u32> = (0..8).map(|position| index * 50 + position).collect();
        let stream = harness.submit(&prompt, 40).await.unwrap();
        streams.push((tokio::spawn(read(stream)), prompt));
    }
    for (task, prompt) in streams {
        let expected = expected_output(&prompt, 40, &[], VOCAB);
        let due = (expected, Ending::Finished(FinishReason::Length));
        assert_eq!(task.await.unwrap(), due);
    }
}

/// How many sequences the ranks that run now have taken in.
fn entered(harness: &Harness) -> Vec<u64> {
    let workers = harness.seen.workers.lock().unwrap();
    workers.iter().map(FakeWorker::entered).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rank_that_answers_otherwise_restarts_the_group_and_each_request_resumes_once() {
    let cases = [
        (1, FaultKind::FailStep),
        (0, FaultKind::FailStep),
        (1, FaultKind::OutOfMemory),
        (0, FaultKind::OutOfMemory),
        (1, FaultKind::WrongStepId),
        (1, FaultKind::AnswerTwice),
        (1, FaultKind::BreakStream),
        (1, FaultKind::Die),
    ];
    for steps_in_flight in [1, 2] {
        for (rank, kind) in cases.clone() {
            let mut first = vec![undisturbed(), undisturbed()];
            first[rank] = at_step(15, kind.clone());
            let mut setup = Setup {
                starts: vec![first, vec![Script::default(), Script::default()]],
                ..Setup::default()
            };
            setup.config.max_steps_in_flight = steps_in_flight;
            let harness = Harness::ready(setup).await;
            run(&harness).await;
            let stats = harness.check_books().await;
            let case = format!("{kind:?} of rank {rank}, {steps_in_flight} in flight");
            assert_eq!(*harness.seen.starts.lock().unwrap(), 2, "{case}");
            assert_eq!(harness.seen.kill_reasons().len(), 1, "{case}");
            assert_eq!(stats.isolations, 0, "{case}");
            assert_eq!(entered(&harness), [u64::from(RUNNING); 2], "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_that_all_ranks_voted_for_restarts_nobody() {
    for kind in [FaultKind::FailStep, FaultKind::OutOfMemory] {
        let script = at_step(15, kind.clone());
        let harness = Harness::ready(Setup {
            starts: vec![vec![script.clone(), script]],
            ..Setup::default()
        })
        .await;
        run(&harness).await;
        harness.check_books().await;
        assert_eq!(*harness.seen.starts.lock().unwrap(), 1, "{kind:?}");
        assert_eq!(entered(&harness), [u64::from(RUNNING); 2], "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_kills_one_rank_only_is_found_and_ends_alone() {
    let deadly = 999;
    let kills = faulty(Trigger::TokenId(deadly), FaultKind::Die);
    let harness = Harness::ready(Setup {
        starts: vec![vec![Script::default(), kills]],
        ..Setup::default()
    })
    .await;
    let mut good = Vec::new();
    for index in 0..8 {
        let prompt: Vec<u32> = (0..20).map(|position| index * 30 + position).collect();
        let expected = expected_output(&prompt, 30, &[], VOCAB);
        if !expected.contains(&deadly) {
            let stream = harness.submit(&prompt, 30).await.unwrap();
            good.push((tokio::spawn(read(stream)), expected));
        }
    }
    assert!(good.len() > 4);
    let victim = harness.submit(&[5, 6, 7, deadly], 10).await.unwrap();
    assert_eq!(
        read(victim).await,
        (vec![], Ending::Failed(SequenceFailure::WorkerCrash))
    );
    for (task, expected) in good {
        let due = (expected, Ending::Finished(FinishReason::Length));
        assert_eq!(task.await.unwrap(), due);
    }
    let reasons = harness.seen.kill_reasons();
    assert!(
        reasons.iter().all(|why| why.starts_with("rank 1")),
        "{reasons:?}"
    );
    harness.check_books().await;
    // Nothing of the search is left.
    assert_eq!(harness.handle.status().stats.suspects, 0);
}
