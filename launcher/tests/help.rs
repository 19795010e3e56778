//! `--help`, `--version` and `--env`, under both names.
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]

mod stage;

use stage::Stage;

/// Reviewed by people; written anew with `UPDATE_GOLDEN=1`.
#[test]
fn help_is_grouped_and_says_what_each_flag_does() {
    let ended = Stage::new().run(&["--help"], &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/help.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &ended.stdout).unwrap();
    }
    assert_eq!(ended.stdout, std::fs::read_to_string(golden).unwrap());
    for heading in [
        "Model:",
        "Server:",
        "Limits of a request:",
        "Batching and memory:",
        "Workers:",
        "Terminal:",
    ] {
        assert!(
            ended.stdout.lines().any(|line| line == heading),
            "{heading}"
        );
    }
}

#[test]
fn versions_under_both_names() {
    let stage = Stage::new();
    let version = env!("CARGO_PKG_VERSION");
    for flag in ["--version", "-V"] {
        assert_eq!(
            stage.run(&[flag], &[]).stdout,
            format!("launcher {version}\n")
        );
    }
    let alias = stage.path("bin/text-generation-launcher");
    std::os::unix::fs::symlink("launcher", &alias).unwrap();
    let run = |flag: &str| {
        let output = std::process::Command::new(&alias)
            .arg(flag)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(
        run("--version"),
        format!("text-generation-launcher {version}\n")
    );
    assert!(run("--help").contains("Usage: text-generation-launcher "));
}

#[test]
fn the_environment_is_printed() {
    let ended = Stage::new().run(&["--env", "--quantize", "awq"], &[]);
    assert_eq!(ended.code, Some(0));
    assert!(
        ended
            .stdout
            .contains(concat!("headrace: ", env!("CARGO_PKG_VERSION")))
    );
    assert!(ended.stdout.contains("Usable cores: "));
}
