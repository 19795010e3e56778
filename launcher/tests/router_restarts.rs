//! The router dies: what comes back, what stays, what ends.
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]

mod stage;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use stage::{Running, Stage, model_flags};

fn kill_router(stage: &Stage, signal: Signal) {
    kill(*stage.pids("router").last().unwrap(), signal).unwrap();
}

fn wait_for_group_ups(running: &mut Running<'_>, count: usize) {
    running.wait_until(&format!("GroupUp {count}"), |stage| {
        stage.heard_of("group_up").len() >= count
    });
}

fn values(messages: &[Value], key: &str) -> Vec<Value> {
    messages
        .iter()
        .map(|message| message[key].clone())
        .collect()
}

#[test]
fn it_comes_back_on_its_port_and_a_single_worker_stays() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--port", "0", "--api-key", "k"]);
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    kill_router(&stage, Signal::SIGKILL);
    running.wait_until("second ready line", |stage| {
        stage
            .read("stdout")
            .contains("is served on http://127.0.0.1:45678 again")
    });
    let stdout = stage.read("stdout");
    assert!(
        stdout.contains("ERROR headrace.launcher: router ended with signal SIGKILL"),
        "{stdout}"
    );
    assert!(
        stdout.contains("the router starts again in 0.5 s"),
        "{stdout}"
    );
    assert_eq!(stdout.matches("Ready: http://").count(), 1, "{stdout}");

    // The same configuration and the port that was taken; the same model.
    let configures = stage.heard_of("configure");
    assert_eq!(values(&configures, "port"), [json!(0), json!(45678)]);
    assert_eq!(configures[0]["api_keys"], configures[1]["api_keys"]);
    let models = stage.heard_of("model");
    assert_eq!((models.len(), &models[0]), (2, &models[1]));
    let order = values(&stage.heard(), "type");
    assert_eq!(
        order,
        [
            "configure",
            "model",
            "group_up",
            "configure",
            "successor",
            "model",
            "group_up"
        ]
    );
    // A new epoch of the worker that was there.
    let ups = stage.heard_of("group_up");
    assert_eq!(values(&ups, "epoch"), [json!(1), json!(2)]);
    assert_eq!(ups[0]["addresses"], ups[1]["addresses"]);
    assert_eq!(stage.pids("headrace.worker").len(), 1);

    // Its own death afterwards is what it always was.
    kill(stage.pids("headrace.worker")[0], Signal::SIGKILL).unwrap();
    wait_for_group_ups(&mut running, 3);
    running.wait_until("the line", |stage| {
        stage.read("stdout").contains("the workers are up again")
    });
    let ups = stage.heard_of("group_up");
    assert_eq!(ups[2]["epoch"], json!(3));
    let old = ups[0]["addresses"][0].as_str().unwrap();
    let new = ups[2]["addresses"][0].as_str().unwrap();
    assert!(!std::fs::exists(old.strip_prefix("unix://").unwrap()).unwrap());
    assert!(std::fs::exists(new.strip_prefix("unix://").unwrap()).unwrap());
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    assert_eq!(stage.read("stderr"), "");
    stage.assert_nothing_left();
}

#[test]
fn several_ranks_start_again_with_it_and_that_is_not_their_fault() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(
        &stage,
        &mut store,
        &["--num-shard", "2", "--max-restarts", "1"],
    );
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    let first = stage.pids("headrace.worker");
    kill_router(&stage, Signal::SIGKILL);
    wait_for_group_ups(&mut running, 2);
    assert_eq!(stage.pids("headrace.worker").len(), 4);
    assert!(first.iter().all(|pid| !stage.living().contains(pid)));
    // The one restart that they may have is still theirs.
    kill(stage.pids("headrace.worker 1")[1], Signal::SIGKILL).unwrap();
    wait_for_group_ups(&mut running, 3);
    assert_eq!(
        values(&stage.heard_of("group_down"), "is_final"),
        [json!(false)]
    );
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}

#[test]
fn the_cause_of_an_engine_that_panicked_is_told() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--max-restarts", "1"]);
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    kill_router(&stage, Signal::SIGALRM);
    wait_for_group_ups(&mut running, 2);
    let cause = "router ended with exit code 101: the engine panicked: boom";
    let stdout = stage.read("stdout");
    assert_eq!(stdout.matches(cause).count(), 1, "{stdout}");
    kill_router(&stage, Signal::SIGALRM);
    assert_eq!(running.wait().code(), Some(1));
    assert_eq!(
        stage.read("stderr"),
        format!("error: {cause}; the limit of restarts is spent (--max-restarts 1)\n")
    );
    stage.assert_nothing_left();
}

#[test]
fn a_crash_loop_ends_and_without_restarts_the_first_death_does() {
    for (most, again, cause) in [
        (2, "die", "router ended with exit code 3: no luck"),
        // Somebody else took the port meanwhile.
        (
            1,
            "busy",
            "router ended with exit code 1: 0.0.0.0:3000: address already in use",
        ),
        (0, "serve", "router ended with signal SIGKILL"),
    ] {
        let stage = Stage::new();
        let mut store = String::new();
        let text = most.to_string();
        let flags = model_flags(&stage, &mut store, &["--max-restarts", &text]);
        let mut running = stage.start(&flags, &[("FAKE_ROUTER_AGAIN", again)]);
        running.wait_ready();
        kill_router(&stage, Signal::SIGKILL);
        assert_eq!(running.wait().code(), Some(1), "{again}");
        assert_eq!(
            stage.read("stderr"),
            format!("error: {cause}; the limit of restarts is spent (--max-restarts {most})\n")
        );
        assert_eq!(stage.pids("router").len(), most + 1);
        stage.assert_nothing_left();
    }
}

#[test]
fn a_router_that_never_listened_is_not_started_again() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &[]);
    let mut running = stage.start(&flags, &[("FAKE_ROUTER", "mute")]);
    running.wait_until("configuration", |stage| {
        !stage.heard_of("configure").is_empty()
    });
    kill_router(&stage, Signal::SIGKILL);
    assert_eq!(running.wait().code(), Some(1));
    assert_eq!(
        stage.read("stderr"),
        "error: router ended with signal SIGKILL\n"
    );
    assert_eq!(stage.pids("router").len(), 1);
    stage.assert_nothing_left();
}

#[test]
fn a_signal_while_it_is_away_or_not_yet_back_ends_the_run() {
    for again in ["serve", "mute"] {
        let stage = Stage::new();
        let mut store = String::new();
        let flags = model_flags(&stage, &mut store, &[]);
        let mut running = stage.start(&flags, &[("FAKE_ROUTER_AGAIN", again)]);
        running.wait_ready();
        kill_router(&stage, Signal::SIGKILL);
        let starts = if again == "mute" { 2 } else { 1 };
        running.wait_until("its end", |stage| {
            stage.read("stdout").contains("the router starts again")
                && stage.heard_of("configure").len() >= starts
        });
        running.signal(Signal::SIGTERM);
        assert_eq!(running.wait().code(), Some(0), "{again}");
        // On a busy machine it may be back before the signal comes; then it drains.
        let stdout = stage.read("stdout");
        let was_back = stdout.lines().any(|line| line.ends_with(" again"));
        let drains = usize::from(was_back);
        assert_eq!(stage.heard_of("drain").len(), drains, "{again}");
        stage.assert_nothing_left();
    }
}

#[test]
fn its_death_in_a_drain_ends_the_run_with_the_cause() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &[]);
    let mut running = stage.start(&flags, &[("FAKE_DRAIN_SECONDS", "60")]);
    running.wait_ready();
    running.signal(Signal::SIGTERM);
    running.wait_until("drain", |stage| !stage.heard_of("drain").is_empty());
    kill_router(&stage, Signal::SIGKILL);
    assert_eq!(running.wait().code(), Some(1));
    assert_eq!(
        stage.read("stderr"),
        "error: router ended with signal SIGKILL\n"
    );
    stage.assert_nothing_left();
}

#[test]
fn workers_that_die_with_it_come_back_too() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &[]);
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    kill_router(&stage, Signal::SIGKILL);
    kill(stage.pids("headrace.worker")[0], Signal::SIGKILL).unwrap();
    wait_for_group_ups(&mut running, 2);
    running.wait_until("second ready line", |stage| {
        stage.read("stdout").contains("again\n")
    });
    let ups = stage.heard_of("group_up");
    assert_eq!(ups.len(), 2);
    assert_ne!(ups[0]["addresses"], ups[1]["addresses"]);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}

#[test]
fn a_download_goes_on_without_it() {
    let stage = Stage::new();
    let folder = stage.model();
    let variables = [
        ("FAKE_DOWNLOAD", folder.to_str().unwrap()),
        ("FAKE_DOWNLOAD_WAITS", "1"),
    ];
    let mut running = stage.start(&["--model-id", "some/model"], &variables);
    running.wait_until("progress", |stage| {
        stage.read("stdout").contains("5 B of 10 B")
    });
    kill_router(&stage, Signal::SIGKILL);
    running.wait_until("second configuration", |stage| {
        stage.heard_of("configure").len() == 2
    });
    std::fs::write(stage.path("go"), "").unwrap();
    running.wait_ready();
    assert_eq!(stage.pids("headrace.hub.download").len(), 1);
    assert_eq!(stage.heard_of("model").len(), 1);
    // The first was never ready.
    assert_eq!(stage.heard_of("successor").len(), 0);
    assert_eq!(values(&stage.heard_of("group_up"), "epoch"), [json!(1)]);
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}

#[test]
fn its_suspicions_end_with_it() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--max-restarts", "1"]);
    let mut running = stage.start(&flags, &[("FAKE_ISOLATION", "1")]);
    running.wait_ready();
    kill_router(&stage, Signal::SIGKILL);
    wait_for_group_ups(&mut running, 2);
    for deaths in 1..=2 {
        kill(
            *stage.pids("headrace.worker").last().unwrap(),
            Signal::SIGKILL,
        )
        .unwrap();
        running.wait_until_or_end(|stage| stage.heard_of("group_up").len() == 2 + deaths);
    }
    assert_eq!(running.wait().code(), Some(1));
    assert!(
        stage
            .read("stderr")
            .contains("the limit of restarts is spent")
    );
    stage.assert_nothing_left();
}
