//! Workers die or hang: the group starts again, within its limit.
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]

mod stage;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use stage::{Stage, model_flags};
use std::time::Duration;

#[test]
fn a_dead_rank_takes_its_group_along_and_all_start_again() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(
        &stage,
        &mut store,
        &["--num-shard", "2", "--compute-threads", "3"],
    );
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    let first = stage.pids("headrace.worker");
    assert_eq!(first.len(), 2);
    assert!(stage.read("stdout").contains("threads=3"));
    kill(stage.pids("headrace.worker 1")[0], Signal::SIGKILL).unwrap();
    running.wait_until("second GroupUp", |stage| {
        stage.heard_of("group_up").len() == 2
    });

    let down = &stage.heard_of("group_down")[0];
    assert_eq!(
        down["cause"],
        json!("worker rank 1 ended with signal SIGKILL")
    );
    assert_eq!(down["is_final"], json!(false));
    let up = &stage.heard_of("group_up")[1];
    assert_eq!(
        (&up["epoch"], up["addresses"].as_array().unwrap().len()),
        (&json!(2), 2)
    );
    let living = stage.living();
    assert_eq!(living.len(), 3, "router and two new workers");
    assert!(first.iter().all(|pid| !living.contains(pid)));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}

/// A cleaner of temporary files takes what nobody has read for days.
#[test]
fn a_group_starts_again_though_its_model_document_was_removed() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &[]);
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    let folders = std::fs::read_dir(stage.path("tmp")).unwrap();
    let documents: Vec<_> = folders
        .map(|folder| folder.unwrap().path().join("model.json"))
        .filter(|path| path.exists())
        .collect();
    assert_eq!(documents.len(), 1);
    std::fs::remove_file(&documents[0]).unwrap();
    kill(stage.pids("headrace.worker")[0], Signal::SIGKILL).unwrap();
    running.wait_until("second GroupUp", |stage| {
        stage.heard_of("group_up").len() == 2
    });
    assert_eq!(stage.heard_of("group_down").len(), 1);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn the_end_of_a_process_says_more_than_its_broken_stream() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--num-shard", "2"]);
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    // The router complains of the stream; the process that it belonged to is reaped a moment later.
    kill(stage.pids("router")[0], Signal::SIGUSR1).unwrap();
    running.wait_until("the complaint", |stage| {
        stage.read("condemned").contains('1')
    });
    kill(stage.pids("headrace.worker 1")[0], Signal::SIGKILL).unwrap();
    running.wait_until("second GroupUp", |stage| {
        stage.heard_of("group_up").len() == 2
    });
    let causes: Vec<Value> = stage
        .heard_of("group_down")
        .iter()
        .map(|down| down["cause"].clone())
        .collect();
    assert_eq!(causes, ["worker rank 1 ended with signal SIGKILL"]);
    let stdout = stage.read("stdout");
    assert_eq!(stdout.matches("ERROR").count(), 1, "{stdout}");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}

#[test]
fn ranks_that_end_with_the_drained_router_are_no_fault() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--num-shard", "2"]);
    let variables = [("FAKE_LAST_SECONDS", "0.5")];
    let mut running = stage.start(&flags, &variables);
    running.wait_ready();
    running.signal(Signal::SIGTERM);
    running.wait_until("the drain", |stage| stage.read("drained") == "1");
    std::thread::sleep(Duration::from_millis(100));
    for pid in stage.pids("headrace.worker") {
        kill(pid, Signal::SIGTERM).unwrap();
    }
    assert_eq!(running.wait().code(), Some(0), "{}", stage.read("stderr"));
    let stdout = stage.read("stdout");
    assert!(
        !stdout.contains("ERROR") && !stdout.contains("start again"),
        "{stdout}"
    );
    stage.assert_nothing_left();
}

#[test]
fn the_limit_of_restarts_ends_the_run_with_the_cause() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--max-restarts", "1"]);
    let mut running = stage.start(&flags, &[("FAKE_WORKER", "die")]);
    assert_eq!(running.wait().code(), Some(1));
    assert_eq!(
        stage.read("stderr"),
        "error: worker rank 0 ended with exit code 3: out of luck; the limit of restarts is spent \
         (--max-restarts 1)\n"
    );
    let finals: Vec<Value> = stage
        .heard_of("group_down")
        .iter()
        .map(|down| down["is_final"].clone())
        .collect();
    assert_eq!(finals, [false, true]);
    assert_eq!(stage.heard_of("group_up").len(), 2);
    stage.assert_nothing_left();
}

#[test]
fn deaths_while_the_router_isolates_do_not_count() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--max-restarts", "1"]);
    let variables = [("FAKE_WORKER", "die"), ("FAKE_ISOLATION", "1")];
    let mut running = stage.start(&flags, &variables);
    running.wait_until("fourth GroupUp", |stage| {
        stage.heard_of("group_up").len() >= 4
    });
    let stdout = stage.read("stdout");
    assert!(!stdout.contains("start again in 1.0 s"), "{stdout}");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}

#[test]
fn completed_steps_clear_the_count_of_restarts() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--max-restarts", "1"]);
    let mut running = stage.start(&flags, &[("FAKE_WORKER", "die"), ("FAKE_STEPS", "1")]);
    running.wait_until("fourth GroupUp", |stage| {
        stage.heard_of("group_up").len() >= 4
    });
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}

#[test]
fn a_hung_worker_is_killed_when_the_router_says_so() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &[]);
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    let hung = stage.pids("headrace.worker")[0];
    // It does not even take SIGTERM.
    kill(hung, Signal::SIGSTOP).unwrap();
    kill(stage.pids("router")[0], Signal::SIGUSR1).unwrap();
    running.wait_until("second GroupUp", |stage| {
        stage.heard_of("group_up").len() == 2
    });
    assert!(!stage.living().contains(&hung));
    assert_eq!(
        stage.heard_of("group_down")[0]["cause"],
        json!("the step watchdog fired")
    );
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}
