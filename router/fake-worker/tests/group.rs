//! Router side and worker side of the protocol against each other, over real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends by panicking"
)]

use headrace_fake_worker::{
    FakeWorker, Fault, FaultKind, Script, Trigger, WorkerOptions, expected_output,
};
use headrace_scheduler::{
    BlockCopy, NewSequence, Row, RowOutcome, SamplingParams, StepOutcome, StepPlan,
};
use headrace_worker_client::{
    GroupEvent, GroupRequest, PrepareStage, RunningGroup, StartError, StartedGroup, StepReport,
    WorkerError, start_group,
};
use std::sync::Mutex;
use tempfile::TempDir;

const VOCAB: u32 = 1000;

fn request() -> GroupRequest {
    GroupRequest {
        epoch: 1,
        block_size: 4,
        max_batch_tokens: 64,
        max_sequences: 8,
        max_total_tokens: 64,
        kv_cache_bytes: None,
        required_blocks: None,
        max_blocks: None,
        poison_fresh_blocks: false,
    }
}

/// One fake worker a script; the scripts are in rank order.
fn workers(folder: &TempDir, scripts: Vec<Script>) -> Vec<FakeWorker> {
    let world_size = u32::try_from(scripts.len()).unwrap();
    scripts
        .into_iter()
        .zip(0..)
        .map(|(script, rank)| {
            let options = WorkerOptions {
                rank,
                world_size,
                vocab_size: VOCAB,
                num_blocks: 32 - rank,
                ..WorkerOptions::default()
            };
            FakeWorker::start(
                folder.path().join(format!("rank-{rank}.sock")),
                options,
                script,
            )
            .unwrap()
        })
        .collect()
}

async fn start(workers: &[FakeWorker], request: GroupRequest) -> Result<StartedGroup, StartError> {
    let addresses: Vec<String> = workers.iter().map(FakeWorker::address).collect();
    start_group(&addresses, request, |_| ()).await
}

fn enter(slot: u32, ids: &[u32], computed: u32, blocks: &[u32]) -> NewSequence {
    NewSequence {
        slot,
        token_ids: ids.to_vec(),
        prompt_length: u32::try_from(ids.len()).unwrap(),
        computed_length: computed,
        blocks: blocks.to_vec(),
        sampling: SamplingParams::greedy(),
    }
}

fn row(slot: u32, num_tokens: u32, sample: bool) -> Row {
    Row {
        slot,
        num_tokens,
        sample,
        prompt_logprobs: false,
        masked: false,
    }
}

async fn next_step(group: &mut RunningGroup) -> Result<StepReport, WorkerError> {
    loop {
        if let GroupEvent::Step(report) = group.next_event().await? {
            return Ok(*report);
        }
    }
}

/// The sampled ids of each row.
fn ids(report: &StepReport) -> Vec<Vec<u32>> {
    let StepOutcome::Ok(rows) = &report.result.outcome else {
        panic!("{:?}", report.result)
    };
    rows.iter()
        .map(|row| match &row.outcome {
            RowOutcome::Tokens(tokens) => tokens.iter().map(|token| token.id).collect(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn chunks_copies_and_decoding_give_the_models_ids() {
    let folder = tempfile::tempdir().unwrap();
    let workers = workers(&folder, vec![Script::default(), Script::default()]);
    let mut started = start(&workers, request()).await.unwrap();
    assert_eq!(started.num_blocks, 31, "the smallest rank's");
    assert_eq!(started.description.world_size, 2);
    let group = &mut started.group;
    let prompt: Vec<u32> = (100..110).collect();
    let expected = expected_output(&prompt, 4, &[], VOCAB);

    // A prefill in chunks of 6 and 4.
    let mut plan = StepPlan {
        step_id: 1,
        ..StepPlan::default()
    };
    plan.new_sequences.push(enter(3, &prompt, 0, &[7, 2, 30]));
    plan.rows.push(row(3, 6, false));
    group.send(&plan).unwrap();
    assert_eq!(ids(&next_step(group).await.unwrap()), [Vec::<u32>::new()]);
    let plan = StepPlan {
        step_id: 2,
        rows: vec![row(3, 4, true)],
        ..StepPlan::default()
    };
    group.send(&plan).unwrap();
    assert_eq!(ids(&next_step(group).await.unwrap()), [vec![expected[0]]]);

    // Another sequence shares two full blocks and copies one token of the third; both decode.
    let mut plan = StepPlan {
        step_id: 3,
        ..StepPlan::default()
    };
    plan.rows.push(row(3, 1, true));
    plan.rows.push(row(0, 1, true));
    plan.new_sequences.push(enter(0, &prompt, 9, &[7, 2, 11]));
    plan.block_copies.push(BlockCopy {
        source: 30,
        destination: 11,
        num_tokens: 1,
    });
    group.send(&plan).unwrap();
    assert_eq!(
        ids(&next_step(group).await.unwrap()),
        [vec![expected[1]], vec![expected[0]]]
    );

    // Two steps in flight.
    for step_id in [4, 5] {
        let mut plan = StepPlan {
            step_id,
            rows: vec![row(0, 1, true)],
            ..StepPlan::default()
        };
        if step_id == 5 {
            plan.block_appends.push((0, vec![12]));
            plan.finished_slots.push(3);
        }
        group.send(&plan).unwrap();
    }
    assert_eq!(group.steps_in_flight(), 2);
    assert_eq!(ids(&next_step(group).await.unwrap()), [vec![expected[1]]]);
    assert_eq!(ids(&next_step(group).await.unwrap()), [vec![expected[2]]]);
    assert!(workers.iter().all(|worker| worker.misuse().is_none()));
}

#[tokio::test]
async fn a_lost_prefix_and_a_shared_write_are_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let workers = workers(&folder, vec![Script::default()]);
    let mut started = start(&workers, request()).await.unwrap();
    let group = &mut started.group;
    // It claims four computed tokens in a block that nobody wrote.
    let mut plan = StepPlan {
        step_id: 1,
        ..StepPlan::default()
    };
    plan.new_sequences
        .push(enter(0, &[1, 2, 3, 4, 5], 4, &[0, 1]));
    plan.rows.push(row(0, 1, true));
    group.send(&plan).unwrap();
    let report = next_step(group).await.unwrap();
    let StepOutcome::Ok(rows) = &report.result.outcome else {
        panic!()
    };
    assert_eq!(rows[0].outcome, RowOutcome::NonFinite);
    // Two sequences write into one block.
    let mut plan = StepPlan {
        step_id: 2,
        ..StepPlan::default()
    };
    plan.new_sequences.push(enter(1, &[1, 2], 0, &[5]));
    plan.new_sequences.push(enter(2, &[1, 2], 0, &[5]));
    plan.rows.extend([row(1, 2, true), row(2, 2, true)]);
    group.send(&plan).unwrap();
    let error = next_step(group).await.unwrap_err();
    assert!(matches!(&error, WorkerError::Stream { cause, .. } if cause.contains("2 tables")));
    assert!(workers[0].misuse().unwrap().contains("protocol misuse"));
}

#[tokio::test]
async fn a_failed_step_skips_what_follows_until_it_is_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let fault = Fault {
        when: Trigger::Step(1),
        what: FaultKind::OutOfMemory,
    };
    let workers = workers(
        &folder,
        vec![Script {
            faults: vec![fault],
            ..Script::default()
        }],
    );
    let mut started = start(&workers, request()).await.unwrap();
    let group = &mut started.group;
    let mut plan = StepPlan {
        step_id: 1,
        ..StepPlan::default()
    };
    plan.new_sequences.push(enter(0, &[1, 2], 0, &[5]));
    plan.rows.push(row(0, 2, true));
    group.send(&plan).unwrap();
    let plan = StepPlan {
        step_id: 2,
        rows: vec![row(0, 1, true)],
        ..StepPlan::default()
    };
    group.send(&plan).unwrap();
    let outcome = next_step(group).await.unwrap().result.outcome;
    assert!(matches!(outcome, StepOutcome::OutOfMemory(_)));
    assert_eq!(
        next_step(group).await.unwrap().result.outcome,
        StepOutcome::Skipped
    );
    let plan = StepPlan {
        step_id: 3,
        rows: vec![row(0, 2, true)],
        acknowledged_failure: Some(1),
        ..StepPlan::default()
    };
    group.send(&plan).unwrap();
    assert_eq!(
        ids(&next_step(group).await.unwrap()),
        [expected_output(&[1, 2], 1, &[], VOCAB)]
    );
}

#[tokio::test]
async fn each_broken_answer_breaks_the_group() {
    let kinds = [
        (FaultKind::Die, false),
        (FaultKind::BreakStream, false),
        (FaultKind::WrongStepId, true),
        (FaultKind::AnswerTwice, true),
        (FaultKind::IdOutOfVocabulary, true),
        (FaultKind::RowMissing, true),
    ];
    for (kind, is_violation) in kinds {
        let folder = tempfile::tempdir().unwrap();
        let twice = kind == FaultKind::AnswerTwice;
        let fault = Fault {
            when: Trigger::Step(1),
            what: kind.clone(),
        };
        let workers = workers(
            &folder,
            vec![Script {
                faults: vec![fault],
                ..Script::default()
            }],
        );
        let mut started = start(&workers, request()).await.unwrap();
        let mut plan = StepPlan {
            step_id: 1,
            ..StepPlan::default()
        };
        plan.new_sequences.push(enter(0, &[1, 2], 0, &[5]));
        plan.rows.push(row(0, 2, true));
        started.group.send(&plan).unwrap();
        if twice {
            next_step(&mut started.group).await.unwrap();
        }
        let error = next_step(&mut started.group).await.unwrap_err();
        assert_eq!(
            matches!(error, WorkerError::Protocol { .. }),
            is_violation,
            "{kind:?}: {error}"
        );
    }
}

#[tokio::test]
async fn every_rank_must_acknowledge_and_agree() {
    let folder = tempfile::tempdir().unwrap();
    let slow = Fault {
        when: Trigger::Step(1),
        what: FaultKind::SlowMillis(150),
    };
    let failed = Fault {
        when: Trigger::Step(2),
        what: FaultKind::FailStep,
    };
    let second = Script {
        faults: vec![slow, failed],
        ..Script::default()
    };
    let workers = workers(&folder, vec![Script::default(), second]);
    let mut started = start(&workers, request()).await.unwrap();
    let group = &mut started.group;
    let mut plan = StepPlan {
        step_id: 1,
        ..StepPlan::default()
    };
    plan.new_sequences.push(enter(0, &[1, 2], 0, &[5]));
    plan.rows.push(row(0, 2, true));
    let sent = std::time::Instant::now();
    group.send(&plan).unwrap();
    next_step(group).await.unwrap();
    assert!(sent.elapsed() >= std::time::Duration::from_millis(150));
    let plan = StepPlan {
        step_id: 2,
        rows: vec![row(0, 1, true)],
        ..StepPlan::default()
    };
    group.send(&plan).unwrap();
    let error = next_step(group).await.unwrap_err();
    assert!(matches!(error, WorkerError::Protocol { .. }), "{error}");
}

#[tokio::test]
async fn starts_fail_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let missing = format!("unix://{}", folder.path().join("none.sock").display());
    let error = start_group(&[missing], request(), |_| ())
        .await
        .unwrap_err();
    assert!(
        !error.is_final() && error.to_string().contains("none.sock"),
        "{error}"
    );
    let error = start_group(&["tcp://127.0.0.1:1".to_owned()], request(), |_| ()).await;
    assert!(error.unwrap_err().to_string().contains("only unix"));

    let refusal = serde_json::from_str(
        r#"{"prepare_error": {"is_final": true, "message": "w.gguf: no tensor q"}}"#,
    );
    let workers = workers(&folder, vec![refusal.unwrap()]);
    let error = start(&workers, request()).await.unwrap_err();
    assert!(
        error.is_final() && error.to_string().contains("w.gguf: no tensor q"),
        "{error}"
    );
}

#[tokio::test]
async fn progress_counts_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let script = || Script {
        prepare_millis: 20,
        ..Script::default()
    };
    let workers = workers(&folder, vec![script(), script()]);
    let addresses: Vec<String> = workers.iter().map(FakeWorker::address).collect();
    let seen: Mutex<Vec<PrepareStage>> = Mutex::default();
    let started = start_group(&addresses, request(), |stage| {
        seen.lock().unwrap().push(stage);
    })
    .await
    .unwrap();
    let seen = seen.into_inner().unwrap();
    let last = seen.last().unwrap();
    assert_eq!(
        (last.name.as_str(), last.done, last.total),
        ("weights", 1800, 2000)
    );
    assert!(seen.iter().all(|stage| stage.total == 2000), "{seen:?}");
    assert!(seen.is_sorted_by_key(|stage| stage.done), "{seen:?}");
    drop(started);
    // A second stream on the same workers: weights stay, slots are empty.
    let again = start(
        &workers,
        GroupRequest {
            epoch: 2,
            required_blocks: Some(31),
            ..request()
        },
    );
    assert_eq!(again.await.unwrap().num_blocks, 31);
}

#[tokio::test]
async fn a_group_that_is_closed_breaks_no_stream() {
    let folder = tempfile::tempdir().unwrap();
    let workers = workers(&folder, vec![Script::default(), Script::default()]);
    let started = start(&workers, request()).await.unwrap();
    started.group.close(std::time::Duration::from_secs(5)).await;
    let closed: Vec<u64> = workers.iter().map(FakeWorker::streams_closed).collect();
    assert_eq!(closed, [1, 1]);
}
