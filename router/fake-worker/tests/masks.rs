//! Late masks: waited for just before sampling, by name, once.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

use headrace_fake_worker::{
    FakeWorker, Fault, FaultKind, Script, Trigger, WorkerOptions, expected_output,
};
use headrace_scheduler::{NewSequence, Row, RowOutcome, SamplingParams, StepOutcome, StepPlan};
use headrace_worker_client::{
    GroupEvent, GroupRequest, RunningGroup, StepReport, TokenMask, start_group,
};
use std::time::Duration;
use tempfile::TempDir;

const VOCAB: u32 = 1000;

struct Stage {
    _folder: TempDir,
    workers: Vec<FakeWorker>,
    group: RunningGroup,
}

async fn stage(scripts: Vec<Script>) -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let world_size = u32::try_from(scripts.len()).unwrap();
    let workers: Vec<FakeWorker> = scripts
        .into_iter()
        .zip(0..)
        .map(|(script, rank)| {
            let options = WorkerOptions {
                rank,
                world_size,
                vocab_size: VOCAB,
                num_blocks: 32,
                ..WorkerOptions::default()
            };
            let socket = folder.path().join(format!("rank-{rank}.sock"));
            FakeWorker::start(socket, options, script).unwrap()
        })
        .collect();
    let addresses: Vec<String> = workers.iter().map(FakeWorker::address).collect();
    let request = GroupRequest {
        epoch: 1,
        block_size: 4,
        max_batch_tokens: 64,
        max_sequences: 8,
        max_total_tokens: 64,
        kv_cache_bytes: None,
        required_blocks: None,
        max_blocks: None,
        poison_fresh_blocks: false,
    };
    let started = start_group(&addresses, request, |_| ()).await.unwrap();
    Stage {
        _folder: folder,
        workers,
        group: started.group,
    }
}

fn enter(slot: u32, ids: &[u32], blocks: &[u32]) -> NewSequence {
    NewSequence {
        slot,
        token_ids: ids.to_vec(),
        prompt_length: u32::try_from(ids.len()).unwrap(),
        computed_length: 0,
        blocks: blocks.to_vec(),
        sampling: SamplingParams::greedy(),
    }
}

fn row(slot: u32, num_tokens: u32, masked: bool) -> Row {
    Row {
        slot,
        num_tokens,
        sample: true,
        prompt_logprobs: false,
        masked,
    }
}

fn step(step_id: u64, rows: Vec<Row>) -> StepPlan {
    StepPlan {
        step_id,
        rows,
        ..StepPlan::default()
    }
}

/// A first step: slot 1 constrained, slot 2 free, with the same prompt.
fn first_step(prompt: &[u32]) -> StepPlan {
    let length = u32::try_from(prompt.len()).unwrap();
    let mut plan = step(1, vec![row(1, length, true), row(2, length, false)]);
    plan.new_sequences = vec![enter(1, prompt, &[1, 2, 3]), enter(2, prompt, &[4, 5, 6])];
    plan
}

async fn next_step(group: &mut RunningGroup) -> StepReport {
    loop {
        if let GroupEvent::Step(report) = group.next_event().await.unwrap() {
            return *report;
        }
    }
}

fn outcomes(report: &StepReport) -> Vec<RowOutcome> {
    let StepOutcome::Ok(rows) = &report.result.outcome else {
        panic!("{:?}", report.result)
    };
    rows.iter().map(|row| row.outcome.clone()).collect()
}

fn ids(report: &StepReport) -> Vec<Vec<u32>> {
    outcomes(report)
        .into_iter()
        .map(|outcome| match outcome {
            RowOutcome::Tokens(tokens) => tokens.iter().map(|token| token.id).collect(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn a_step_waits_for_its_masks_on_every_rank_and_no_other_message_stalls() {
    let mut stage = stage(vec![Script::default(), Script::default()]).await;
    let prompt: Vec<u32> = (100..106).collect();
    let expected = expected_output(&prompt, 3, &[], VOCAB);
    let group = &mut stage.group;
    group.send(&first_step(&prompt)).unwrap();
    // The step after it is sent before its mask: it lies in front of the mask on the wire.
    group
        .send(&step(2, vec![row(1, 1, true), row(2, 1, false)]))
        .unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(100), next_step(group)).await;
    assert!(waited.is_err(), "answered without its mask");
    let forced = (expected[0] + 10) % VOCAB;
    group
        .send_mask(1, 1, 0, &TokenMask::Allow(vec![forced]))
        .unwrap();
    assert_eq!(
        ids(&next_step(group).await),
        [vec![forced], vec![expected[0]]]
    );
    // The next allowed one, upwards from what the model wants.
    let even: Vec<u32> = (0..VOCAB.div_ceil(32)).map(|_| 0x5555_5555).collect();
    group
        .send_mask(2, 1, 1, &TokenMask::Bitset(even.into()))
        .unwrap();
    let sampled = ids(&next_step(group).await);
    assert_eq!(sampled[0][0] % 2, 0);
    assert_eq!(sampled[1], [expected[1]]);
    // What the model wants anyway is not changed by a mask that allows it.
    group.send(&step(3, vec![row(2, 1, true)])).unwrap();
    let others = (0..5).filter(|id| *id != expected[2]).collect();
    group.send_mask(3, 2, 2, &TokenMask::Deny(others)).unwrap();
    assert_eq!(ids(&next_step(group).await), [vec![expected[2]]]);
    assert!(stage.workers.iter().all(|worker| worker.misuse().is_none()));
}

#[tokio::test]
async fn a_row_that_is_called_off_samples_nothing_and_holds_nobody_up() {
    let mut stage = stage(vec![Script::default()]).await;
    let prompt: Vec<u32> = (1..5).collect();
    let expected = expected_output(&prompt, 2, &[], VOCAB);
    let group = &mut stage.group;
    group.send(&first_step(&prompt)).unwrap();
    // Twice is as good as once.
    group.call_off(1, 1).unwrap();
    group.call_off(1, 1).unwrap();
    assert_eq!(ids(&next_step(group).await), [vec![], vec![expected[0]]]);
    // Late ones, for a step that has answered, are dropped.
    group.call_off(1, 1).unwrap();
    group
        .send_mask(1, 1, 0, &TokenMask::Allow(vec![1]))
        .unwrap();
    let mut plan = step(2, vec![row(2, 1, false)]);
    plan.finished_slots = vec![1];
    group.send(&plan).unwrap();
    assert_eq!(ids(&next_step(group).await), [vec![expected[1]]]);
    assert_eq!(stage.workers[0].misuse(), None);
}

#[tokio::test]
async fn equal_masks_travel_once_and_are_known_in_later_steps() {
    let mut stage = stage(vec![Script::default()]).await;
    let prompt: Vec<u32> = (1..5).collect();
    let group = &mut stage.group;
    let mask = TokenMask::Deny((0..20).collect());
    let mut plan = first_step(&prompt);
    plan.rows[1].masked = true;
    group.send(&plan).unwrap();
    group.send_mask(1, 1, 0, &mask).unwrap();
    group.send_mask(1, 2, 0, &mask).unwrap();
    let first = ids(&next_step(group).await);
    for step_id in 2..6 {
        group.send(&step(step_id, vec![row(1, 1, true)])).unwrap();
        let position = u32::try_from(step_id).unwrap() - 1;
        group.send_mask(step_id, 1, position, &mask).unwrap();
        assert!(ids(&next_step(group).await)[0][0] >= 20);
    }
    assert_eq!(first[0], first[1]);
    assert_eq!(stage.workers[0].masks(), (6, 5));
}

#[tokio::test]
async fn a_mask_for_another_output_or_without_any_id_fails_its_row_alone() {
    let mut stage = stage(vec![Script::default()]).await;
    let prompt: Vec<u32> = (1..5).collect();
    let expected = expected_output(&prompt, 1, &[], VOCAB);
    let group = &mut stage.group;
    let mut plan = first_step(&prompt);
    plan.new_sequences.push(enter(3, &prompt, &[7, 8]));
    plan.rows.push(row(3, 4, true));
    group.send(&plan).unwrap();
    group
        .send_mask(1, 1, 7, &TokenMask::Allow(vec![5]))
        .unwrap();
    group.send_mask(1, 3, 0, &TokenMask::Allow(vec![])).unwrap();
    let got = outcomes(&next_step(group).await);
    assert_eq!(
        got[0],
        RowOutcome::Failed("a mask for output 7 came for output 0".to_owned())
    );
    assert!(matches!(&got[1], RowOutcome::Tokens(tokens) if tokens[0].id == expected[0]));
    assert_eq!(
        got[2],
        RowOutcome::Failed("no id of the vocabulary may be sampled".to_owned())
    );
}

#[tokio::test]
async fn masks_of_a_step_that_failed_are_forgotten_with_it() {
    let script = Script {
        faults: vec![Fault {
            when: Trigger::Step(1),
            what: FaultKind::FailStep,
        }],
        ..Script::default()
    };
    let mut stage = stage(vec![script]).await;
    let prompt: Vec<u32> = (1..5).collect();
    let group = &mut stage.group;
    group.send(&first_step(&prompt)).unwrap();
    let report = next_step(group).await;
    assert!(matches!(report.result.outcome, StepOutcome::Failed(_)));
    // Too late for its step; for the one that runs again, another one comes.
    group
        .send_mask(1, 1, 0, &TokenMask::Allow(vec![5]))
        .unwrap();
    let mut again = step(2, vec![row(1, 4, true)]);
    again.acknowledged_failure = Some(1);
    group.send(&again).unwrap();
    group
        .send_mask(2, 1, 0, &TokenMask::Allow(vec![6]))
        .unwrap();
    assert_eq!(ids(&next_step(group).await), [vec![6]]);
}
