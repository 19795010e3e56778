//! `text-generation-server`, as scripts of TGI's users call it.
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]

mod stage;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stage::Stage;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const ID: &str = "org/name";

fn command(stage: &Stage, arguments: &[&str], download: &str) -> Command {
    let mut command = Command::new(stage.alias("text-generation-server"));
    command
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", stage.path("."))
        .env("FAKE_STAGE", stage.path("."))
        .env("FAKE_DOWNLOAD", download)
        .stdin(Stdio::null());
    command
}

fn run(arguments: &[&str], download: &str) -> (Output, Stage) {
    let stage = Stage::new();
    let output = command(&stage, arguments, download).output().unwrap();
    (output, stage)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn weights_are_downloaded_into_the_cache() {
    let arguments = [
        "download-weights",
        ID,
        "--revision",
        "main",
        "--extension",
        ".safetensors",
        "--auto-convert",
        "--no-trust-remote-code",
        "--logger-level",
        "INFO",
        "--json-output",
    ];
    let (output, stage) = run(&arguments, "/cache/snapshots/abc");
    let log = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(
        last["message"],
        "org/name (main) is in /cache/snapshots/abc"
    );
    assert!(stage.read("pids").starts_with("headrace.hub.download - "));
}

#[test]
fn a_download_that_fails_ends_with_its_own_line() {
    let (output, _stage) = run(&["download-weights", ID], "fail");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "error: org/name: the hub cannot be reached\n"
    );
}

#[test]
fn a_model_of_this_machine_needs_no_download() {
    let stage = Stage::new();
    let folder = stage.model();
    let arguments = ["download-weights", folder.to_str().unwrap()];
    let output = command(&stage, &arguments, "fail").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("nothing to download"));
}

#[test]
fn a_signal_ends_the_download_too() {
    let stage = Stage::new();
    let mut child = command(&stage, &["download-weights", ID], "hang")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let downloader = loop {
        let pids = stage.read("pids");
        if let Some(pid) = pids
            .strip_suffix('\n')
            .and_then(|line| line.rsplit(' ').next())
        {
            break Pid::from_raw(pid.parse().unwrap());
        }
        assert!(Instant::now() < deadline, "no download began");
        std::thread::sleep(Duration::from_millis(5));
    };
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert!(kill(downloader, None).is_err(), "it is gone");
}

#[test]
fn what_is_not_here_is_refused_in_one_line() {
    for (arguments, words) in [
        (
            &["serve", ID, "--sharded", "--uds-path", "/x"][..],
            "run `launcher`",
        ),
        (&["serve"], "run `launcher`"),
        (&["quantize", ID, "out"], "quantising is not supported"),
        (
            &["download-weights", ID, "--extension", ".bin"],
            "--extension .bin: only .safetensors files are served",
        ),
        (&["download-weights", ID, "--merge-lora"], "--merge-lora: "),
        (
            &["download-weights", ID, "--logger-level", "loud"],
            "--logger-level loud: must be",
        ),
        (
            &["download-weights", "/no/such"],
            "error: MODEL_ID /no/such: no such file or directory",
        ),
        (&["download-weights", ""], "error: MODEL_ID: is empty"),
        (
            &["download-weights", ID, "--python", "/bin/false"],
            "error: --python /bin/false: ",
        ),
        (
            &["download-weights", ID, "--revision"],
            "error: --revision: needs a value",
        ),
        (
            &[],
            "a subcommand is needed: `text-generation-server download-weights MODEL_ID`",
        ),
        (&["download-weights"], "<MODEL_ID>"),
        (&["fly"], "'fly'"),
    ] {
        let (output, _stage) = run(arguments, "/cache");
        let line = text(&output.stderr);
        assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        assert!(
            line.starts_with("error: ") && line.contains(words),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}

#[test]
fn help_and_version_have_the_name() {
    let (help, _stage) = run(&["--help"], "/cache");
    let help = text(&help.stdout);
    for words in [
        "Usage: text-generation-server ",
        "download-weights",
        "Refused: ",
    ] {
        assert!(help.contains(words), "{help}");
    }
    let (version, _stage) = run(&["--version"], "/cache");
    assert_eq!(
        text(&version.stdout),
        format!("text-generation-server {}\n", env!("CARGO_PKG_VERSION"))
    );
}
