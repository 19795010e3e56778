//! A launcher that is killed: what goes with it, and what the next one clears away.
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]

mod stage;

use nix::sys::signal::Signal;
use stage::{Stage, model_flags};
use std::time::{Duration, Instant};

#[test]
fn a_killed_launcher_takes_its_children_along() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &["--num-shard", "2"]);
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    running.signal(Signal::SIGKILL);
    running.wait();
    let deadline = Instant::now() + Duration::from_secs(5);
    while !stage.living().is_empty() {
        assert!(Instant::now() < deadline, "{:?} are left", stage.living());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_a_killed_launcher_left_is_swept_and_nothing_else() {
    let stage = Stage::new();
    let mut store = String::new();
    let flags = model_flags(&stage, &mut store, &[]);
    let run_dirs = || {
        let entries = std::fs::read_dir(stage.path("tmp")).unwrap().flatten();
        let paths = entries.map(|entry| entry.path());
        let mut found: Vec<_> = paths
            .filter(|path| path.join("model.json").exists())
            .collect();
        found.sort();
        found
    };
    let mut running = stage.start(&flags, &[]);
    running.wait_ready();
    running.signal(Signal::SIGKILL);
    running.wait();
    let dead = run_dirs();
    assert_eq!(dead.len(), 1);

    // Like ours, but with no lock, another mode, another name, or not what it seems.
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let elsewhere = stage.path("elsewhere");
    let make = |path: &std::path::Path, with_lock: bool| {
        std::fs::create_dir(path).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::clone(&private)).unwrap();
        if with_lock {
            std::fs::write(path.join("lock"), "").unwrap();
        }
    };
    make(&elsewhere, true);
    let kept = ["nolock", "abcde1", "longer1", "link01"];
    let kept = kept.map(|name| stage.path("tmp").join(format!("headrace-{name}")));
    make(&kept[0], false);
    make(&kept[1], true);
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&kept[1], open_to_all).unwrap();
    make(&kept[2], true);
    std::os::unix::fs::symlink(&elsewhere, &kept[3]).unwrap();

    let mut second = stage.start(&flags, &[]);
    second.wait_ready();
    let living = run_dirs();
    assert_eq!(living.len(), 1);
    assert_ne!(living, dead);
    let line = format!("removed {}, which", dead[0].display());
    assert!(
        stage.read("stdout").contains(&line),
        "{}",
        stage.read("stdout")
    );
    // A third one leaves the second alone.
    stage.run(&flags, &[("FAKE_ROUTER", "busy")]);
    assert_eq!(run_dirs(), living);
    second.signal(Signal::SIGTERM);
    assert_eq!(second.wait().code(), Some(0));
    assert_eq!(stage.living(), []);
    let left = std::fs::read_dir(stage.path("tmp")).unwrap().count();
    assert_eq!(left, 4, "those that are not ours stay");
    assert!(elsewhere.join("lock").exists());
}
