//! The life of a run, with a fake router and fake workers.
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]
#![allow(clippy::too_many_lines, reason = "tables of cases")]

mod stage;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use stage::{Stage, model_flags};
use std::time::{Duration, Instant};

#[test]
fn a_run_from_start_to_drain() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--port", "3456", "--api-key", "k1"]);
    let mut running = stage.start(&flags, &[("FAKE_DRAIN_SECONDS", "0.3"), ("API_KEY", "")]);
    running.wait_ready();
    // The worker's JSON record, as text for people. It may come after the last lines: the worker listens before it says so.
    let record = " INFO headrace.worker: listening rank=0 threads=";
    running.wait_until("the worker's record", |stage| {
        stage.read("stdout").contains(record)
    });

    let stdout = stage.read("stdout");
    let own = stdout.lines().filter(|line| !line.contains(record));
    let last: Vec<&str> = own.rev().take(4).collect();
    assert!(
        last[0].starts_with("curl http://127.0.0.1:3456/generate "),
        "{stdout}"
    );
    assert!(
        last[0].contains("$HEADRACE_KEY") && !stdout.contains("k1"),
        "{stdout}"
    );
    assert!(last[1].starts_with("export HEADRACE_KEY=... "), "{stdout}");
    assert_eq!(last[3], "Ready: http://127.0.0.1:3456");
    let run_dirs: Vec<_> = std::fs::read_dir(stage.path("tmp"))
        .unwrap()
        .flatten()
        .collect();
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&run_dirs[0].metadata().unwrap().permissions());
    assert_eq!((run_dirs.len(), mode & 0o777), (1, 0o700));

    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0), "{}", stage.read("stdout"));
    let kinds: Vec<Value> = stage
        .heard()
        .iter()
        .map(|message| message["type"].clone())
        .collect();
    assert_eq!(kinds, ["configure", "model", "group_up", "drain"]);
    let configure = &stage.heard()[0];
    assert_eq!(
        configure["api_keys"],
        json!([{"name": "key-1", "key": "k1", "priority": 0}])
    );
    assert_eq!(configure["port"], json!(3456));
    let document = &stage.heard()[1];
    assert_eq!(document["model_id"], json!(store));
    assert_eq!(document["vocab_size"], json!(5));
    assert_eq!(document["dtype"], json!("float32"));
    assert_eq!(document["weights"]["format"], json!("safetensors"));
    let group_up = &stage.heard()[2];
    assert_eq!(group_up["epoch"], json!(1));
    assert!(
        group_up["addresses"][0]
            .as_str()
            .unwrap()
            .starts_with("unix:///")
    );
    assert_eq!(stage.heard()[3]["grace_seconds"], json!(90));
    assert_eq!(stage.read("stderr"), "");
    stage.assert_nothing_left();
}

#[test]
fn the_router_is_told_of_queue_keys_and_grammar() {
    let stage = Stage::new();
    let keys = stage.path("keys");
    std::fs::write(&keys, "# night shift\ns3cret name=night priority=5\n").unwrap();
    let keys = keys.to_str().unwrap();
    let mut store = String::new();
    let more = [
        "--api-key",
        "a=b",
        "--api-key-file",
        keys,
        "--schedule-policy",
        "lpm",
        "--target-itl-ms",
        "40",
        "--max-queued-tokens",
        "5000000000",
        "--stall-timeout",
        "7",
        "--lenient-grammar",
        "--guard-info-and-metrics",
    ];
    let flags = model_flags(&stage, &mut store, &more);
    let variables = [
        ("ADMIN_API_KEY", "r00t"),
        ("FAKE_ENVIRONMENT", "1"),
        ("AIP_PREDICT_ROUTE", "/predict"),
        ("AIP_HEALTH_ROUTE", ""),
    ];
    let mut running = stage.start(&flags, &variables);
    running.wait_ready();
    let configure = &stage.heard_of("configure")[0];
    assert_eq!(configure["aip_predict_route"], "/predict");
    assert_eq!(configure["aip_health_route"], json!(null));
    for (field, expected) in [
        (
            "api_keys",
            json!([
                {"name": "key-1", "key": "a=b", "priority": 0},
                {"name": "night", "key": "s3cret", "priority": 5}
            ]),
        ),
        ("admin_key", json!("r00t")),
        ("schedule_policy", json!("lpm")),
        ("target_itl_ms", json!(40)),
        ("max_queued_tokens", json!(5_000_000_000_u64)),
        ("stall_timeout_seconds", json!(7)),
        ("lenient_grammar", json!(true)),
        ("guard_info_and_metrics", json!(true)),
    ] {
        assert_eq!(configure[field], expected, "{field}");
    }
    for pid in stage.living() {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        assert!(environment.contains("FAKE_ENVIRONMENT"), "{environment}");
        assert!(!environment.contains("r00t"), "{environment}");
    }
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    let output = stage.read("stdout") + &stage.read("stderr");
    assert!(
        !output.contains("s3cret") && !output.contains("r00t"),
        "{output}"
    );
}

#[test]
fn a_second_signal_ends_at_once() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["-g", "60"]);
    let mut running = stage.start(&flags, &[("FAKE_DRAIN_SECONDS", "60")]);
    running.wait_ready();
    running.signal(Signal::SIGINT);
    // Its twin, as `timeout` sends one, is the same signal.
    running.signal(Signal::SIGTERM);
    running.wait_until("drain", |stage| !stage.heard_of("drain").is_empty());
    std::thread::sleep(Duration::from_millis(300));
    assert!(!stage.read("stdout").contains("a second signal: ending"));
    let started = Instant::now();
    running.signal(Signal::SIGINT);
    assert_eq!(running.wait().code(), Some(130));
    assert!(started.elapsed() < Duration::from_secs(3));
    let stdout = stage.read("stdout");
    assert_eq!(
        stdout.matches("a second signal: ending").count(),
        1,
        "{stdout}"
    );
    stage.assert_nothing_left();
}

#[test]
fn a_drain_asked_for_over_http_is_one_with_the_signal_after_it() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["-g", "60"]);
    let mut running = stage.start(&flags, &[("FAKE_DRAIN_SECONDS", "1")]);
    running.wait_ready();
    kill(stage.pids("router")[0], Signal::SIGUSR2).unwrap();
    running.wait_until("drain", |stage| !stage.heard_of("drain").is_empty());
    assert_eq!(stage.heard_of("drain")[0]["grace_seconds"], json!(60));
    // An orchestrator's own signal follows its call; asking twice is no second signal.
    kill(stage.pids("router")[0], Signal::SIGUSR2).unwrap();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0), "{}", stage.read("stdout"));
    assert_eq!(stage.heard_of("drain").len(), 1);
    stage.assert_nothing_left();
}

#[test]
fn a_router_that_outstays_the_grace_time_is_stopped() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["-g", "0"]);
    let mut running = stage.start(&flags, &[("FAKE_DRAIN_SECONDS", "60")]);
    running.wait_ready();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(1));
    assert!(
        stage
            .read("stderr")
            .contains("did not end within the grace time")
    );
    stage.assert_nothing_left();
}

#[test]
fn what_has_another_effect_than_its_words_is_warned_of() {
    let stage = Stage::new();
    let mut store = String::new();
    let more = ["--revision", "main", "--max-batch-total-tokens", "10"];
    let flags = model_flags(&stage, &mut store, &more);
    let variables = [
        ("LOG_LEVEL", "loud"),
        ("FAKE_TOTAL", "16"),
        ("ATTENTION", "paged"),
        ("USE_FLASH_ATTENTION", ""),
        ("PREFILL_CHUNKING", "0"),
    ];
    let mut running = stage.start(&flags, &variables);
    running.wait_ready();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    let stdout = stage.read("stdout");
    for part in [
        "--revision main has no effect",
        "--max-batch-total-tokens 10 is rounded up to 16",
        "LOG_LEVEL loud",
        "ATTENTION paged has no effect",
        "PREFILL_CHUNKING 0 has no effect",
        "no more than 16 tokens",
    ] {
        let warnings = stdout.lines().filter(|line| line.contains(" WARN "));
        let count = warnings.filter(|line| line.contains(part)).count();
        assert_eq!(count, 1, "{part}: {stdout}");
    }
    assert_eq!(stage.heard_of("configure")[0]["log_level"], json!("info"));
    assert_eq!(stage.heard_of("model")[0]["revision"], json!(null));
}

#[test]
fn a_hub_model_is_downloaded_and_named() {
    let stage = Stage::new();
    let folder = stage.model();
    let variables = [("FAKE_DOWNLOAD", folder.to_str().unwrap())];
    let flags = ["--model-id", "some/model", "--revision", "main"];
    let mut running = stage.start(&flags, &variables);
    running.wait_ready();
    assert!(stage.read("stdout").contains("download: 5 B of 10 B"));
    assert_eq!(stage.heard_of("progress")[0]["done"], json!(5));
    let document = &stage.heard_of("model")[0];
    assert_eq!(document["model_id"], json!("some/model"));
    assert_eq!(document["revision"], json!("main"));
    assert_eq!(document["pipeline_tag"], json!("tag"));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}

#[test]
fn the_default_model_comes_from_the_demo_package() {
    let stage = Stage::new();
    let gguf = stage.gguf();
    let mut running = stage.start(&[], &[("FAKE_DEMO", gguf.to_str().unwrap())]);
    running.wait_ready();
    let document = &stage.heard_of("model")[0];
    assert_eq!(
        document["model_id"],
        json!("HuggingFaceTB/SmolLM2-135M-Instruct")
    );
    assert_eq!(
        document["weights"],
        json!({"format": "gguf", "files": [gguf]})
    );
    assert_eq!(document["config"]["hidden_size"], json!(8));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn a_signal_during_the_download_leaves_nothing() {
    let stage = Stage::new();
    let mut running = stage.start(&["--model-id", "some/model"], &[("FAKE_DOWNLOAD", "hang")]);
    running.wait_until("progress", |stage| {
        stage.read("stdout").contains("5 B of 10 B")
    });
    running.signal(Signal::SIGTERM);
    assert_eq!(running.wait().code(), Some(0));
    stage.assert_nothing_left();
}

#[test]
fn json_output_is_json_and_nothing_else() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(
        &stage,
        &mut store,
        &["--json-output", "--cuda-graphs", "1,2"],
    );
    let mut running = stage.start(&flags, &[]);
    running.wait_until("ready record", |stage| {
        stage.read("stdout").contains("is served on")
    });
    running.signal(Signal::SIGTERM);
    running.wait();
    let mut targets = Vec::new();
    for line in stage.read("stdout").lines() {
        let record: Value = serde_json::from_str(line).expect("a JSON record");
        for key in ["timestamp", "level", "message"] {
            assert!(record[key].is_string(), "{line}");
        }
        targets.push(record["target"].as_str().unwrap().to_owned());
    }
    assert!(targets.iter().any(|target| target == "headrace.worker"));
    assert!(stage.read("stdout").contains("--cuda-graphs has no effect"));
}

/// Flags, variables, and the address that follows.
type AddressCase<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a str, u16);

#[test]
fn addresses_come_from_flags_and_platforms() {
    let stage = Stage::new();
    let model = stage.model();
    let model = model.to_str().unwrap();
    let plain = ("MODEL_ID", model);
    let cases: [AddressCase<'_>; 7] = [
        (&[], &[plain], "0.0.0.0", 3000),
        (
            &[],
            &[plain, ("PORT", "80"), ("HOSTNAME", "pod-1234")],
            "0.0.0.0",
            80,
        ),
        (&[], &[plain, ("HOSTNAME", "::1")], "::1", 3000),
        (
            &["--hostname", "localhost", "-p", "81"],
            &[plain, ("PORT", "80")],
            "127.0.0.1",
            81,
        ),
        (
            &[],
            &[plain, ("PORT", "80"), ("AIP_HTTP_PORT", "8081")],
            "0.0.0.0",
            8081,
        ),
        (
            &["serve"],
            &[("HF_MODEL_ID", model), ("PORT", "80")],
            "0.0.0.0",
            8080,
        ),
        (&["serve"], &[plain, ("PORT", "80")], "0.0.0.0", 80),
    ];
    for (flags, variables, hostname, port) in cases {
        let _ = std::fs::remove_file(stage.path("heard"));
        let mut running = stage.start(flags, variables);
        running.wait_until("configuration", |stage| {
            !stage.heard_of("configure").is_empty()
        });
        let configure = &stage.heard_of("configure")[0];
        assert_eq!(
            configure["hostname"],
            json!(hostname),
            "{flags:?} {variables:?}"
        );
        assert_eq!(configure["port"], json!(port), "{flags:?} {variables:?}");
        running.signal(Signal::SIGTERM);
        assert_eq!(running.wait().code(), Some(0));
        stage.assert_nothing_left();
    }
}
