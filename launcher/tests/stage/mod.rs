//! A folder with the built launcher between a fake router and a fake Python, and what can be seen of a run.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "what a test needs and lacks fails it")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

#[path = "../../checkpoint/tests/fixtures/mod.rs"]
pub(crate) mod fixtures;

/// Generous: two cores may be shared with other suites.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    folder: tempfile::TempDir,
}

/// How a run ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let stage = Self { folder };
        std::fs::create_dir(stage.path("bin")).unwrap();
        std::fs::create_dir(stage.path("tmp")).unwrap();
        let launcher = env!("CARGO_BIN_EXE_launcher");
        let ours = stage.path("bin/launcher");
        if std::fs::hard_link(launcher, &ours).is_err() {
            std::fs::copy(launcher, &ours).unwrap();
        }
        stage.script("bin/router", include_str!("fake_router.py"));
        stage.script("bin/python", include_str!("fake_python.py"));
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path(name), mode).unwrap();
    }

    /// A folder with a tiny llama that passes all checks.
    pub(crate) fn model(&self) -> PathBuf {
        let folder = self.path("model");
        if !folder.exists() {
            std::fs::create_dir(&folder).unwrap();
            let write =
                |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).unwrap();
            write(
                "config.json",
                fixtures::tiny_llama_config().to_string().as_bytes(),
            );
            let tensors = fixtures::safetensors_zeros(&fixtures::tiny_llama_tensors());
            write("model.safetensors", &tensors);
            write("tokenizer.json", b"{}");
        }
        folder
    }

    /// A folder with nothing in it.
    pub(crate) fn empty(&self) -> PathBuf {
        let folder = self.path("empty");
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// A sound GGUF file.
    pub(crate) fn gguf(&self) -> PathBuf {
        fixtures::tiny_llama().write(&self.path("model.gguf"))
    }

    /// The launcher with nothing of this process's environment but the search path.
    pub(crate) fn command(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(self.path("bin/launcher"));
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("."))
            .env("TMPDIR", self.path("tmp"))
            .env("FAKE_STAGE", self.path("."))
            .envs(variables.iter().copied())
            .stdin(Stdio::null());
        command
    }

    /// Another name of the launcher.
    pub(crate) fn alias(&self, name: &str) -> PathBuf {
        let alias = self.path("bin").join(name);
        if std::fs::hard_link(self.path("bin/launcher"), &alias).is_err() {
            std::fs::copy(self.path("bin/launcher"), &alias).unwrap();
        }
        alias
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        let started = Instant::now();
        let output = self.command(arguments, variables).output().unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            took: started.elapsed(),
        }
    }

    /// Starts it; output goes to files.
    pub(crate) fn start(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Running<'_> {
        let file = |name: &str| std::fs::File::create(self.path(name)).unwrap();
        let child = self
            .command(arguments, variables)
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        Running { stage: self, child }
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// What the router heard, in order.
    pub(crate) fn heard(&self) -> Vec<Value> {
        let text = self.read("heard");
        // The last line may still be on its way.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub(crate) fn heard_of(&self, kind: &str) -> Vec<Value> {
        self.heard()
            .into_iter()
            .filter(|message| message["type"] == kind)
            .collect()
    }

    /// Processes that the fakes noted, oldest first.
    pub(crate) fn pids(&self, prefix: &str) -> Vec<Pid> {
        let text = self.read("pids");
        let lines = text.lines().filter(|line| line.starts_with(prefix));
        lines
            .map(|line| Pid::from_raw(line.rsplit_once(' ').unwrap().1.parse().unwrap()))
            .collect()
    }

    /// No process, socket or file.
    pub(crate) fn assert_nothing_left(&self) {
        assert_eq!(self.living(), [], "processes are left");
        let files: Vec<_> = std::fs::read_dir(self.path("tmp"))
            .unwrap()
            .flatten()
            .collect();
        assert!(files.is_empty(), "files are left: {files:?}");
    }

    pub(crate) fn living(&self) -> Vec<Pid> {
        self.pids("")
            .into_iter()
            .filter(|pid| is_alive(*pid))
            .collect()
    }
}

/// Flags that serve the stage's own model.
pub(crate) fn model_flags<'a>(
    stage: &Stage,
    store: &'a mut String,
    more: &[&'a str],
) -> Vec<&'a str> {
    stage.model().to_str().unwrap().clone_into(store);
    let mut flags = vec!["--model-id", store.as_str()];
    flags.extend(more);
    flags
}

fn is_alive(pid: Pid) -> bool {
    // A zombie has ended.
    std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
        .is_ok_and(|stat| !stat.rsplit_once(") ").unwrap().1.starts_with('Z'))
}

pub(crate) struct Running<'a> {
    stage: &'a Stage,
    child: Child,
}

impl Running<'_> {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    /// Until `seen`, or the test fails.
    pub(crate) fn wait_until(&mut self, what: &str, seen: impl Fn(&Stage) -> bool) {
        let started = Instant::now();
        while !seen(self.stage) {
            let ended = self.child.try_wait().unwrap();
            let late = started.elapsed() > PATIENCE;
            assert!(
                !late && ended.is_none(),
                "no {what} ({ended:?}): {}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Until `seen` or the launcher's end, or the test fails.
    pub(crate) fn wait_until_or_end(&mut self, seen: impl Fn(&Stage) -> bool) {
        let started = Instant::now();
        while !seen(self.stage) && self.child.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < PATIENCE, "{}", self.output());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn wait_ready(&mut self) {
        self.wait_until("ready line", |stage| {
            stage.read("stdout").contains("Ready: http://")
        });
    }

    /// How it ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                started.elapsed() < PATIENCE,
                "does not end: {}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn output(&self) -> String {
        self.stage.read("stdout") + &self.stage.read("stderr")
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Only a failed test comes here with a living launcher.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in self.stage.living() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// It ends with one line on standard error that has these parts, soon, and leaves nothing.
pub(crate) fn assert_fault(
    stage: &Stage,
    flags: &[&str],
    variables: &[(&str, &str)],
    parts: &[&str],
) {
    let ended = stage.run(flags, variables);
    let stderr = &ended.stderr;
    assert!(
        ended.code.is_some_and(|code| code != 0),
        "{flags:?}: {}",
        ended.stdout
    );
    assert_eq!(stderr.lines().count(), 1, "{flags:?}: {stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{flags:?}: {stderr}");
    }
    // Two seconds or less where nothing else runs. One that waited for a limit of the launcher's would take twenty.
    assert!(
        ended.took < Duration::from_secs(15),
        "{flags:?} took {:?}",
        ended.took
    );
    stage.assert_nothing_left();
}
